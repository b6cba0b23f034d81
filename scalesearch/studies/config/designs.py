"""Reads the keys of grids, ablations and scaling studies.

::

    type: grid                       # architectures: files, or changes of `base`
    architectures: [reference/edgeformer, {name: wide, set: {width: 384}}]  # default: the space

    type: ablation                   # one architecture, and what is changed of it
    base: small/edgeformer           # a file, {file: …, set: {…}}, or the architecture itself
    changes:
      - share: none
      - adapt: nothing
      - { name: alone, set: { share: none, adapt: nothing } }

    type: scaling                    # one architecture, and how it grows
    base: small/partialformer
    rules:
      deeper: 2 | 4 | 6              # words stand for keys, see KEYS_OF_RULE_WORD
      wider: 48..96 step 16
      ffn: { encoder.ffn.relu.hidden: 128 | 256, decoder.ffn.relu.hidden: 128 | 256 }
      hybrid: [{ deeper: 2 | 4 }, { heads: 8 | 12 }]  # the second on top of the first's last step
    held_out: largest                # each rule's fit is checked by this size; or none

``hybrid`` is the order of PartialFormer's section 6.2: depth first, then heads.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any

from scalesearch.config.model import schema_of
from scalesearch.config.reader import ConfigReader, is_none
from scalesearch.errors import UserError
from scalesearch.spaces import Space
from scalesearch.spaces.syntax.diagnostics import SourcePosition
from scalesearch.spaces.syntax.domains import AlternativesDomain, Domain, RangeDomain
from scalesearch.spaces.syntax.lexer import ValueSyntaxError
from scalesearch.spaces.syntax.nodes import MappingNode, Node, ScalarNode, SequenceNode
from scalesearch.spaces.syntax.parser import parse_value
from scalesearch.studies.config.fixed_architectures import (
    ABLATION,
    COMPRESS,
    GRID,
    SCALING,
    SEARCH,
    ArchitectureSet,
    FixedArchitecture,
)
from scalesearch.studies.config.sections import ArchitectureSpec, ReferenceSpec
from scalesearch.studies.config.spec import StudyFile
from scalesearch.studies.config.values import node_text
from scalesearch.terminal import format_count

KEYS_BY_STUDY_TYPE = {"base": (GRID, ABLATION, SCALING), "architectures": (GRID,),
                      "changes": (ABLATION,), "rules": (SCALING,), "held_out": (SCALING,),
                      **dict.fromkeys(("parent", "replace", "fit"), (COMPRESS,)),
                      **dict.fromkeys(("space", "teacher"), (SEARCH, GRID, ABLATION, SCALING)),
                      "trials": (SEARCH, COMPRESS)}
SEARCH_ONLY_KEYS = ("sampler", "compute", "stop", "warm_start", "reference")
REQUIRED_KEYS = {COMPRESS: ("parent", "runs/large"), ABLATION: ("changes", "- share: none"),
                 SCALING: ("rules", "{deeper: 2 | 4 | 6 | 8}")}
CHANGE_EXAMPLE = "such as `share: none`, or `{name: alone, set: {…}}`"
BASE_KEY = "base"
DEEPER = "deeper"  # the decoder if it is the only stack, else the encoder
KEYS_OF_RULE_WORD = {DEEPER: ("encoder.depth",), "wider": ("width",),
                     "heads": ("encoder.heads", "decoder.heads"),
                     "head_dim": ("encoder.head_dim", "decoder.head_dim")}
RULE_EXAMPLE = ("such as `deeper: 2 | 3 | 4 | 6`, `{width: 64 | 96, encoder.heads: 4 | 6}`, or a "
                "list of such mappings")
MAX_STEPS = 1000  # steps of a rule
Change = dict[str, str]
OpenSpace = Callable[[str], Space]
# position in the study file, name, file of a space (else the base), and changes one after the other
Row = tuple[SourcePosition, str, str | None, tuple[Mapping[str, str], ...]]


def check_keys_of_type(study_type: str, table: MappingNode, reader: ConfigReader) -> None:
    """Report keys that a study of ``study_type`` does not take, and those missing."""
    set_keys = [key for key, node in table if not is_none(node)]
    for key in set_keys:
        name = key.text.partition(".")[0]
        kinds = KEYS_BY_STUDY_TYPE.get(name, (study_type,))
        if study_type not in kinds:
            reader.report_problem(key, f"`{name}` does not belong to a study of type {study_type}",
                                  "it belongs to "
                                  + " or ".join(f"`type: {type_}`" for type_ in kinds),
                                  code="key-of-other-study-type")
        if study_type != SEARCH and (name in SEARCH_ONLY_KEYS or (
                name == "rungs" and study_type != COMPRESS)):
            reader.report_problem(key,
                                  f"`{name}` belongs to a search, and a study of type {study_type} "
                                  "trains fixed architectures",
                                  "remove it",
                                  code="key-of-other-study-type")
    required, example = REQUIRED_KEYS.get(study_type, ("", ""))
    if required and not any(node.text.partition(".")[0] == required for node in set_keys):
        reader.report_problem(table.position,
                              f"a study of type {study_type} needs the key `{required}`",
                              f"such as `{required}: {example}`", code="missing-key")


def read_replacements(texts: Mapping[str, str]) -> dict[str, Any]:
    """Read the values of ``replace``: sizes by key, and numbers of layers that may share.

    The variant may be in a key: ``encoder.ffn.relu.hidden`` is ``encoder.ffn.hidden``.

    Raises:
        UserError: a value is not a whole number.
    """
    replacements: dict[str, Any] = {}
    for key, text in texts.items():
        words = key.split(".")
        if len(words) == 4 and words[1] == "ffn":
            del words[2]
        try:
            values = tuple(int(value) for value in list_values(parse_value(text)))
        except ValueError:  # also of its syntax
            raise UserError(f"replace: {key}: expected whole numbers such as `0 | 64 | 128`, not "
                            f"`{text}`", key="replace", code="bad-value") from None
        replacements[".".join(words)] = values[0] if words[0] == "share" else values
    return replacements


def space_key(study_type: str, positions: Mapping[str, SourcePosition]) -> str:
    """Return the key of the space that is searched or varied."""
    return BASE_KEY if BASE_KEY in positions or (
        study_type in REQUIRED_KEYS and "space" not in positions) else "space"


def read_architectures(spec: StudyFile, space: Space | None, open_space: OpenSpace,
                       reader: ConfigReader) -> ArchitectureSet | None:
    """Read the fixed architectures of a study; each problem is noted at the row's place.

    The result is None for a search, or if they are invalid.

    Args:
        space: of ``base`` or ``space``, where given.
        open_space: reads a space's file by its name.
        reader: of the file, which takes all problems.
    """
    if spec.type == COMPRESS:  # its architectures follow from the scores of replacements
        return ArchitectureSet(COMPRESS, (), "", space) if space else None
    if spec.type == GRID and "architectures" not in reader.positions:
        return ArchitectureSet(GRID, (), "", space) if space else None
    if spec.type == SEARCH or (spec.type != GRID and space is None):
        return None
    rules: dict[str, tuple[str, ...]] = {}
    base: list[Row] = [(reader.positions[BASE_KEY if BASE_KEY in reader.positions else "space"],
                        BASE_KEY, None, ())] if spec.type != GRID else []
    if spec.type == GRID:
        key = "architectures"
        rows = [_read_row(row, reader.positions[f"architectures[{index}]"], reader)
                for index, row in enumerate(spec.architectures) if row is not None]
    elif spec.type == ABLATION:
        key = "changes"
        rows = [*base, *read_changes(spec.changes, reader)]
    else:
        key = "rules"
        rows = [*base]
        keys_of_word = _keys_of_rule_word(space)
        for rule, value in spec.rules if isinstance(spec.rules, MappingNode) else ():
            steps = read_steps(rule, value, keys_of_word, reader)
            rules[rule.text] = tuple(name for _, name, _, _ in steps)
            rows += steps
        if spec.rules is not None and not rules:
            reader.report_problem(spec.rules, "rules are a mapping of names to how they grow",
                                  RULE_EXAMPLE)

    architectures: list[FixedArchitecture] = []
    first_space = space
    for place, name, file, changes in rows:
        try:
            start = open_space(file) if file else space
            if start is None:
                raise UserError("`base` is missing: these values change it; add it, or give each "
                                "entry a `file`", code="no-base")
            row_space = reduce(Space.with_overrides, changes, start)
            architectures.append(FixedArchitecture(name, row_space.single_architecture("it"), {}))
        except UserError as error:
            for problem in getattr(error, "problems", ()) or [error]:
                reader.report_problem(place, f"{name}: {problem.message}", problem.help,
                                      code=problem.code)
            continue
        first_space = first_space or row_space
    names = [row.label for row in architectures]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        reader.report_problem(reader.positions[key], f"two rows are called `{twice}`",
                              "give each a `name` of its own", code="name-taken")
    if not names or twice:
        return None
    identities = {row.label: row.architecture.id for row in architectures}
    for rule, _ in spec.rules if rules else ():
        if {identities.get(label, "") for label in rules[rule.text]} == {identities.get(BASE_KEY)}:
            reader.report_problem(rule, f"`{rule.text}` never changes the network",
                                  "name keys that the model has, or other sizes",
                                  code="bad-rule")
    return ArchitectureSet(spec.type, tuple(architectures), names[0], first_space, rules,
                           spec.held_out)


def _read_row(row: ReferenceSpec, place: SourcePosition, reader: ConfigReader) -> Row:
    """Return the row of a file or of params; a recipe of its own is a problem."""
    if row.recipe:
        reader.report_problem(place, f"{row.name}: all rows are trained by the study's recipe",
                              "remove `recipe`")
    return place, row.name, row.file, (row.set,)


def read_changes(changes: Node | None, reader: ConfigReader) -> Iterator[Row]:
    """Yield the rows of an ablation."""
    for item in changes.items if isinstance(changes, SequenceNode) else ():
        keys = {key.text for key, _ in item} if isinstance(item, MappingNode) else set()
        if not isinstance(item, MappingNode) or not keys:
            reader.report_problem(item, "a change is a mapping", CHANGE_EXAMPLE)
        elif not keys <= set(schema_of(ArchitectureSpec).fields):
            overrides = {key.text: node_text(value) for key, value in item}
            yield (item.display_position,
                   ", ".join(f"{key}: {value}" for key, value in overrides.items()), None,
                   (overrides,))
        else:
            row_reader = ConfigReader(ArchitectureSpec, "changes")
            row = row_reader.read(item)
            reader.problems += row_reader.problems
            if row is not None:
                yield _read_row(row, item.display_position, reader)
    if changes is not None and not (isinstance(changes, SequenceNode) and changes.items):
        reader.report_problem(changes, "changes are a list", CHANGE_EXAMPLE)


def _keys_of_rule_word(base: Space | None) -> Mapping[str, tuple[str, ...]]:
    """Return the keys that each word stands for in the model of ``base``."""
    try:
        model = base.single_architecture().config["model"] if base else ""
    except UserError:  # reported with the row of the base
        model = ""
    is_decoder_only = model == "decoder-only"
    return KEYS_OF_RULE_WORD | ({DEEPER: ("decoder.depth",)} if is_decoder_only else {})


def read_steps(rule: ScalarNode, node: Node, keys_of_word: Mapping[str, tuple[str, ...]],
               reader: ConfigReader) -> list[Row]:
    """Return the steps of a rule, the smallest first; errors are reported.

    Args:
        rule: name of the rule.
        node: its sizes.
        keys_of_word: the keys that each word stands for.
    """
    steps: list[Row] = []
    before: tuple[Change, ...] = ()
    words: tuple[str, ...] = ()
    for stage in node.items if isinstance(node, SequenceNode) else (node,):
        try:
            rows = _stage_steps(rule.text, stage)
        except (UserError, ValueSyntaxError) as error:
            reader.report_problem(stage, error.message, error.help or RULE_EXAMPLE,
                                  code=error.code)
            continue
        changes = [{key: value for name, value in row.items()
                    for key in keys_of_word.get(name, (name,))} for row in rows]
        for row, change in zip(rows, changes):
            step = _describe_step(row)
            name = f"{rule.text}: {', '.join([*words, step])}"
            if not words and "," not in step and step.startswith(f"{rule.text} "):
                name = step  # ``deeper 4``, not ``deeper: deeper 4``
            steps.append((stage.display_position, name, None, (*before, change)))
        before = (*before, changes[-1])
        words = (*words, _describe_step(rows[-1]))
    return steps


def _stage_steps(rule: str, stage: Node) -> list[Change]:
    """Key to value of each step of a stage; keys may be words of the field.

    Raises:
        UserError, SyntaxProblem: what is wrong.
    """
    if isinstance(stage, ScalarNode):
        if rule not in KEYS_OF_RULE_WORD:
            raise UserError(f"`{rule}` needs keys (rules without keys: "
                            f"{', '.join(KEYS_OF_RULE_WORD)})", code="bad-rule")
        texts = {rule: stage.text}
    elif isinstance(stage, MappingNode) and stage.entries:
        texts = {}
        for key, node in stage:
            if not isinstance(node, ScalarNode):
                raise UserError(f"`{key.text}` needs values, `4 | 8 | 16` or `4..16 step 4`",
                                code="bad-rule")
            texts[key.text] = node.text
    else:
        raise UserError(f"`{rule}` is a mapping of keys to their values", code="bad-rule")
    columns = {key: list_values(parse_value(text)) for key, text in texts.items()}
    steps = max(map(len, columns.values()))
    for name, values in columns.items():
        if len(values) not in (1, steps):
            raise UserError(f"`{name}` has {format_count(len(values), 'value')}, and another key "
                            f"of this step has {steps}", code="bad-rule",
                            help="keys that grow together need equally many values, or one")
    return [{key: values[index if len(values) > 1 else 0] for key, values in columns.items()}
            for index in range(steps)]


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
        raise UserError(f"{domain} has {count:,} values, and each is a training run; give it a "
                        "larger step", code="too-many-values")
    return [str(value) for value in values]
