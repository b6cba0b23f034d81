"""The rules of a scaling study: by which steps a base grows.

::

    rules:
      deeper: 2 | 3 | 4 | 6                          # words of the field stand for their keys, see WORDS
      wider: 48..96 step 16
      ffn: { encoder.ffn.relu.hidden: 128 | 256 | 512, decoder.ffn.relu.hidden: 128 | 256 | 512 }
      hybrid: [{ deeper: 2 | 3 }, { heads: 8 | 12 }]  # one after the other: the second on top of the first's last step

``hybrid`` is the order of PartialFormer's section 6.2: depth first, then heads.
"""

from collections.abc import Callable, Iterator

from scalesearch.errors import UserError
from scalesearch.space.syntax.choices import Alternatives
from scalesearch.space.syntax.diagnostics import Place, Problem
from scalesearch.space.syntax.domains import Between, Spec
from scalesearch.space.syntax.lexer import SyntaxProblem
from scalesearch.space.syntax.nodes import Node, Sequence, Table, Text
from scalesearch.space.syntax.value_parser import parse_value

WORDS = {
    "deeper": ("encoder.depth",),
    "wider": ("width",),
    "heads": ("encoder.heads", "decoder.heads"),
    "head_dim": ("encoder.head_dim", "decoder.head_dim"),
}
EXAMPLE = "such as `deeper: 2 | 3 | 4 | 6`, `{width: 64 | 96, encoder.heads: 4 | 6}`, or a list of such mappings"
MOST = 1000  # steps of a rule
Change = dict[str, str]
Step = tuple[Place, str, tuple[Change, ...]]  # where it stands, its name, and what is changed, one after the other


def steps_of(rule: Text, node: Node, complain: Callable[[Problem], None]) -> list[Step]:
    """Steps of one rule, from the smallest. What is wrong with it is reported."""
    stages: tuple[Node, ...] = node.items if isinstance(node, Sequence) else (node,)
    steps: list[Step] = []
    before: tuple[Change, ...] = ()
    names: tuple[str, ...] = ()
    for stage in stages:
        reached = [(change, (*names, words)) for change, words in _changes(rule, stage, complain)]
        steps += [(stage.here, _name(rule.text, words), (*before, change)) for change, words in reached]
        if reached:
            before, names = (*before, reached[-1][0]), reached[-1][1]
    return steps


def _name(rule: str, words: tuple[str, ...]) -> str:
    """``deeper 4``, or ``hybrid: deeper 4, heads 8``."""
    alone = len(words) == 1 and "," not in words[0] and words[0].startswith(f"{rule} ")
    return words[0] if alone else f"{rule}: {', '.join(words)}"


def _changes(rule: Text, stage: Node, complain: Callable[[Problem], None]) -> list[tuple[Change, str]]:
    """Changes and name of each step of a stage."""
    try:
        texts = list(_texts(rule, stage))
        columns = [(key, values_of(text)) for key, text in texts]
    except SyntaxProblem as problem:
        complain(Problem(stage.here, problem.message, problem.help, code=problem.code))
        return []
    except UserError as error:
        complain(Problem(stage.here, str(error), EXAMPLE, code=error.code))
        return []
    steps = max((len(values) for _, values in columns), default=0)
    uneven = [key for key, values in columns if len(values) not in (1, steps)]
    if uneven:
        complain(Problem(stage.here, f"`{uneven[0]}` has other than {steps} values, as another key of this step has",
                         "keys that grow together have as many values each, or one", code="bad-rule"))
        return []
    rows = [{key: values[at if len(values) > 1 else 0] for key, values in columns} for at in range(steps)]
    return [(_spread(row), _words(row)) for row in rows]


def _words(row: Change) -> str:
    """``heads 8``; a key that encoder and decoder have alike is named once."""
    shown = dict(row)
    for key in row:
        stack, _, name = key.partition(".")
        if stack == "encoder" and row.get(f"decoder.{name}") == row[key]:
            shown = {name if old == key else old: value for old, value in shown.items() if old != f"decoder.{name}"}
    return ", ".join(f"{key} {value}" for key, value in shown.items())


def _texts(rule: Text, stage: Node) -> Iterator[tuple[str, str]]:
    """Key and values, as written."""
    if isinstance(stage, Text) and rule.text in WORDS:
        yield rule.text, stage.text
    elif isinstance(stage, Table) and stage.entries:
        for key, value in stage:
            if not isinstance(value, Text):
                raise UserError(f"`{key.text}` is to have values, `4 | 8 | 16` or `4..16 step 4`", code="bad-rule")
            yield key.text, value.text
    elif isinstance(stage, Text):
        raise UserError(f"`{rule.text}` does not say which keys grow (words that do: {', '.join(WORDS)})",
                        code="bad-rule")
    else:
        raise UserError(f"`{rule.text}` is a mapping of keys to their values", code="bad-rule")


def _spread(row: Change) -> Change:
    return {key: value for name, value in row.items() for key in WORDS.get(name, (name,))}


def values_of(text: str) -> list[str]:
    """Lists the alternatives of ``text``, a value of the space language. ``2 | 4..6`` has 2, 4, 5 and 6.

    Raises:
        SyntaxProblem: it is not of the language.
        UserError: it holds a continuous range.
    """
    return [value for spec in _flat(parse_value(text)) for value in _values(spec)]


def _flat(spec: Spec) -> Iterator[Spec]:
    if isinstance(spec, Alternatives):
        for option in spec.options:
            yield from _flat(option)
    else:
        yield spec


def _values(spec: Spec) -> list[str]:
    if not isinstance(spec, Between):
        return [str(spec)]
    count, values = spec.range.count(), spec.range.values()
    if count is None or values is None:
        raise UserError(f"{spec} is a continuous range; list its values, or give it a step", code="endless")
    if count > MOST:
        raise UserError(f"{spec} has {count:,} values, each of which is a training; give it a larger step",
                        code="too-many-values")
    return [str(value) for value in values]
