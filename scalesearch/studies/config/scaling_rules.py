"""The rules of a scaling study: by which steps a base grows.

::

    rules:
      deeper: 2 | 3 | 4 | 6                          # words of the field stand for their keys, see WORDS
      wider: 48..96 step 16
      ffn: { encoder.ffn.relu.hidden: 128 | 256 | 512, decoder.ffn.relu.hidden: 128 | 256 | 512 }
      hybrid: [{ deeper: 2 | 3 }, { heads: 8 | 12 }]  # one after the other: the second on top of
          the first's last step

``hybrid`` is the order of PartialFormer's section 6.2: depth first, then heads.
"""

from collections.abc import Callable

from scalesearch.errors import UserError
from scalesearch.spaces.syntax.diagnostics import Problem, SourcePosition
from scalesearch.spaces.syntax.domains import AlternativesDomain, Domain, RangeDomain
from scalesearch.spaces.syntax.lexer import ValueSyntaxError
from scalesearch.spaces.syntax.nodes import MappingNode, Node, ScalarNode, SequenceNode
from scalesearch.spaces.syntax.parser import parse_value

KEYS_OF_RULE_WORD = {"deeper": ("encoder.depth",), "wider": ("width",),
                     "heads": ("encoder.heads", "decoder.heads"),
                     "head_dim": ("encoder.head_dim", "decoder.head_dim")}
RULE_EXAMPLE = ("such as `deeper: 2 | 3 | 4 | 6`, `{width: 64 | 96, encoder.heads: 4 | 6}`, or a "
                "list of such mappings")
MAX_STEPS = 1000  # steps of a rule
Change = dict[str, str]
# where it stands, its name, and what is changed, one after the other
Step = tuple[SourcePosition, str, tuple[Change, ...]]


def read_steps(rule: ScalarNode, node: Node, complain: Callable[[Problem], None]) -> list[Step]:
    """Return the steps of a rule, the smallest first; errors are reported."""
    steps: list[Step] = []
    before: tuple[Change, ...] = ()
    words: tuple[str, ...] = ()
    for stage in node.items if isinstance(node, SequenceNode) else (node,):
        try:
            rows = stage_steps(rule.text, stage)
        except (UserError, ValueSyntaxError) as error:
            complain(Problem(stage.display_position, error.message, error.help or RULE_EXAMPLE,
                             code=error.code))
            continue
        changes = [{key: value for name, value in row.items()
                    for key in KEYS_OF_RULE_WORD.get(name, (name,))} for row in rows]
        steps += [(stage.display_position, _name(rule.text, (*words, _describe_step(row))),
                   (*before, change)) for row, change in zip(rows, changes)]
        before = (*before, changes[-1])
        words = (*words, _describe_step(rows[-1]))
    return steps


def stage_steps(rule: str, stage: Node) -> list[Change]:
    """Key to value of each step of a stage; keys may be words of the field.

    Raises:
        UserError, SyntaxProblem: what is wrong.
    """
    if isinstance(stage, ScalarNode):
        if rule not in KEYS_OF_RULE_WORD:
            raise UserError(f"`{rule}` does not say which keys grow (words that do: "
                            f"{', '.join(KEYS_OF_RULE_WORD)})", code="bad-rule")
        texts = {rule: stage.text}
    elif isinstance(stage, MappingNode) and stage.entries:
        texts = {}
        for key, node in stage:
            if not isinstance(node, ScalarNode):
                raise UserError(f"`{key.text}` is to have values, `4 | 8 | 16` or `4..16 step 4`",
                                code="bad-rule")
            texts[key.text] = node.text
    else:
        raise UserError(f"`{rule}` is a mapping of keys to their values", code="bad-rule")
    columns = {key: list_values(parse_value(text)) for key, text in texts.items()}
    steps = max(map(len, columns.values()))
    for name, values in columns.items():
        if len(values) not in (1, steps):
            raise UserError(f"`{name}` has other than {steps} values, as another key of this step "
                            "has", code="bad-rule",
                            help="keys that grow together have as many values each, or one")
    return [{key: values[index if len(values) > 1 else 0] for key, values in columns.items()}
            for index in range(steps)]


def _name(rule: str, words: tuple[str, ...]) -> str:
    """``deeper 4``, or ``hybrid: deeper 4, heads 8``."""
    alone = len(words) == 1 and "," not in words[0] and words[0].startswith(f"{rule} ")
    return words[0] if alone else f"{rule}: {', '.join(words)}"


def _describe_step(row: Change) -> str:
    """Describe sizes; equal sizes of encoder and decoder are named once."""
    shown: Change = {}
    for key, value in row.items():
        stack, _, name = key.partition(".")
        other = {"encoder": "decoder", "decoder": "encoder"}.get(stack)
        is_equal = other is not None and row.get(f"{other}.{name}") == value
        shown[name if is_equal else key] = value
    return ", ".join(f"{key} {value}" for key, value in shown.items())


def list_values(domain: Domain) -> list[str]:
    """List the values of a domain: ``2 | 4..6`` has 2, 4, 5 and 6.

    Raises:
        UserError: it holds a continuous range.
    """
    if isinstance(domain, AlternativesDomain):
        return [value for option in domain.options for value in list_values(option)]
    if not isinstance(domain, RangeDomain):
        return [str(domain)]
    count = domain.parameter.count()
    values = domain.parameter.values()
    if count is None or values is None:
        raise UserError(f"{domain} is a continuous range; list its values, or give it a step",
                        code="continuous-range")
    if count > MAX_STEPS:
        raise UserError(f"{domain} has {count:,} values, each of which is a training; give it a "
                        "larger step", code="too-many-values")
    return [str(value) for value in values]
