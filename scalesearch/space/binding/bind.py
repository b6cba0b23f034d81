"""Binds a file's nodes to a schema: keys, names, constraints, costs; collects every problem."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from scalesearch.files import resolve_relative
from scalesearch.space.binding.binder import ONE_OF_KEY, Binder, KeyContext, rename_deprecated_keys
from scalesearch.space.binding.name_resolution import NameResolver
from scalesearch.space.binding.static_checks import find_cycles, find_misfits, find_unsatisfiable, replace_invalid
from scalesearch.space.parameters.constraints import Constraint
from scalesearch.space.parameters.param_values import ParameterSpace
from scalesearch.space.schema.bound_tree import GroupNode, build_index
from scalesearch.space.schema.cost_names import (
    COST_NAMES,
    DEPRECATED_COST_NAMES,
    LATENCY_KEY,
    OWN_VOCABULARY,
    PROTOCOL_CHOICES,
    PROTOCOL_SIZES,
)
from scalesearch.space.schema.types import InlinedVariant, SchemaField, SchemaGroup
from scalesearch.space.syntax.diagnostics import (
    ConfigError,
    Problem,
    SourcePosition,
    suggest_match,
    warn_deprecated,
)
from scalesearch.space.syntax.domains import ConstantDomain, InvalidDomain
from scalesearch.space.syntax.lexer import ValueSyntaxError
from scalesearch.space.syntax.nodes import (
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    duplicate_key_problem,
    unfold_dotted_keys,
)
from scalesearch.space.syntax.value_parser import parse_expression

SPACE_LEVEL_KEYS = ("space", "notes", "where", "cost")
DEPRECATED_PROTOCOL_KEYS = SchemaGroup({"artifact": SchemaField("word", deprecated=("artefact",))})


@dataclass(frozen=True)
class BoundSpace:
    """A file's content, bound to the schema."""

    name: str
    notes: str
    root: GroupNode
    parameter_space: ParameterSpace
    constraints: tuple[Constraint, ...]
    budgets: Mapping[str, Constraint]
    protocol: Mapping[str, str | int]


def bind_space(document: MappingNode, schema: SchemaGroup, problems: list[Problem]) -> BoundSpace:
    """Binds a file to a schema.

    Raises SpaceErrors with everything that is wrong, ``problems`` included.
    """
    return _SpaceBinder(document, schema, problems).bind_space()


class _SpaceBinder(Binder):
    extra_keys = SPACE_LEVEL_KEYS

    def __init__(self, document: MappingNode, schema: SchemaGroup, problems: list[Problem]) -> None:
        super().__init__(build_index(schema))
        self.schema = schema
        self.problems = problems
        self.is_complete = not problems
        entries = unfold_dotted_keys(document, problems)
        self.space_level_nodes = {name.text: node
                                  for name, node in entries if name.text in SPACE_LEVEL_KEYS}
        self.document = replace(
            document,
            entries=tuple(entry for entry in entries if entry[0].text not in SPACE_LEVEL_KEYS))

    def bind_space(self) -> BoundSpace:
        place = self.document.position
        top = SourcePosition(place.source, 0, 0, 1) if place.source.has_lines else place
        root = self.bind_group(self.schema, self.document, KeyContext("", "", top))
        assert root is not None
        leaves = list(root.parameter_nodes())
        self.problems += find_cycles(leaves)
        self.has_own_vocab = "vocab" in dict(root.fields)
        name = self.read_text("space")
        notes = self.read_text("notes")
        constraints = self.read_constraints()
        cost = self.read_cost()
        leaves, sound = replace_invalid(leaves, self.problems)
        form = ParameterSpace(leaves)
        where = tuple(constraint
                      for constraint in constraints
                      if constraint.referenced_names() <= sound | set(COST_NAMES))
        self.problems += [*find_misfits(form, sound), *find_unsatisfiable(form, where)]
        if self.problems:
            raise ConfigError(self.problems)
        return BoundSpace(name, notes, root, form, constraints, *cost)

    def read_text(self, key: str) -> str:
        """The text under ``space`` or ``notes``."""
        node = self.space_level_nodes.get(key)
        if node is None or isinstance(node, ScalarNode):
            return node.text if node else ""
        self.report_problem(node.display_position, f"`{key}` is a text")
        return ""

    def read_constraint(self, node: Node) -> Constraint | None:
        """One constraint; ``None`` after a complaint."""
        if not isinstance(node, ScalarNode):
            if type(node) is not Node:
                help = "quote a constraint that contains `: `" if isinstance(
                    node, MappingNode) else None
                self.report_problem(node.display_position,
                                    "a constraint is one line, such as `decoder.depth <= "
                                    "encoder.depth`", help)
            return None
        before = len(self.problems)
        node = rename_deprecated_costs(node)

        def complain(problem: ValueSyntaxError) -> None:
            self.report_problem(node.position_of(problem.span), problem.message, problem.help,
                                code=problem.code)

        try:
            expr = parse_expression(node.text)
        except ValueSyntaxError as problem:
            complain(problem)
            return None
        resolved = NameResolver(self.index, "", True, complain).resolve_condition(expr)
        return Constraint(resolved, node.position_of((0, len(node.text)))) if len(
            self.problems) == before else None

    def read_constraints(self) -> tuple[Constraint, ...]:
        """The constraints under ``where:``."""
        node = self.space_level_nodes.get("where")
        if isinstance(node, MappingNode):
            self.report_problem(node.display_position, "`where:` is a list",
                                "write each constraint on a line of its own, after `- `")
        items = node.items if isinstance(node, SequenceNode) else (node,) if isinstance(
            node, ScalarNode) and node.text else ()
        return tuple(constraint
                     for item in items if (constraint := self.read_constraint(item)) is not None)

    def read_cost(self) -> tuple[dict[str, Constraint], dict[str, str | int]]:
        """The budgets and the protocol under ``cost:``."""
        node = self.space_level_nodes.get("cost")
        if node is not None and not isinstance(node, MappingNode):
            self.report_problem(node.display_position,
                                "`cost:` has the keys `protocol` and `budgets`")
        entries = self.known_children(
            node, ("protocol", "budgets"), "cost") if isinstance(node, MappingNode) else {}
        return self.read_budgets(entries.get("budgets")), {"name": "forward"} | self.read_protocol(
            entries.get("protocol"))

    def known_children(
            self, table: MappingNode, names: tuple[str, ...], where: str) -> dict[str, Node]:
        """The entries of ``table`` under ``names``; complains about the others."""
        entries: dict[str, Node] = {}
        for name, value in unfold_dotted_keys(table, self.problems):
            if name.text in names:
                entries[name.text] = value
            else:
                help = suggest_match(name.text, names)
                self.report_problem(name.position, f"unknown key `{name.text}` in `{where}`", help,
                                    code="unknown-key")
        return entries

    def read_budgets(self, node: Node | None) -> dict[str, Constraint]:
        """``name: constraint`` each."""
        if not isinstance(node, MappingNode):
            if node is not None and not (isinstance(node, ScalarNode) and not node.text):
                self.report_problem(node.display_position, "`budgets:` is a mapping",
                                    "for example `edge: params.non_embedding <= 10M`")
            return {}
        first: dict[str, tuple[ScalarNode, Node]] = {}
        for name, value in node:
            if name.text in first:
                self.problems.append(duplicate_key_problem(name, first[name.text][0]))
            first.setdefault(name.text, (name, value))
        read = {name: self.read_constraint(value) for name, (_, value) in first.items()}
        return {name: constraint for name, constraint in read.items() if constraint is not None}

    def read_protocol(self, node: Node | None) -> dict[str, str | int]:
        """What is given of the protocol: its name, sizes."""
        entries: dict[str, Node] = {"name": node} if isinstance(node, ScalarNode) else {}
        if isinstance(node, MappingNode):
            node = rename_deprecated_keys(node, DEPRECATED_PROTOCOL_KEYS)
            entries = self.known_children(node, (*PROTOCOL_CHOICES, *PROTOCOL_SIZES, LATENCY_KEY),
                                          "protocol")
        elif node is not None and not entries:
            self.report_problem(node.display_position, "a protocol is a name or a mapping",
                                "`{ source: 30, target: 30, vocab: 32768 }`")
        protocol: dict[str, str | int] = {"vocab": OWN_VOCABULARY} if self.has_own_vocab else {}
        for key, value in entries.items():
            path = f"cost.protocol.{key}"
            words = PROTOCOL_CHOICES.get(key)
            field = SchemaField("word", words) if words else SchemaField(
                "text" if key == LATENCY_KEY else "size")
            if key == "vocab" and isinstance(value, ScalarNode) and (
                    value.text == OWN_VOCABULARY or self.has_own_vocab):
                self.report_vocab_conflict(value)
                continue
            spec = self.bind_parameter(field, value,
                                       KeyContext(path, path, value.display_position)).domain
            if isinstance(spec, ConstantDomain) and isinstance(spec.value, str | int):
                protocol[key] = (resolve_relative(value.position.source.name, str(spec.value))
                                 if key == LATENCY_KEY else spec.value)
            elif not isinstance(spec, InvalidDomain):
                self.report_problem(value.display_position, f"`{path}` is a constant")
        return protocol


    def report_vocab_conflict(self, value: ScalarNode) -> None:
        """Complains about ``cost.protocol.vocab``, where it contradicts the key ``vocab``."""
        if not self.has_own_vocab:
            self.report_problem(value.display_position,
                                f"`cost.protocol.vocab` is `{OWN_VOCABULARY}`, and the space has "
                                "no key `vocab`",
                                "give a size, or `vocab: 1k | 2k | 4k` beside `width`")
        elif value.text != OWN_VOCABULARY:
            self.report_problem(value.display_position,
                                "`cost.protocol.vocab`: the space has a vocabulary of its own, "
                                "under `vocab`", "remove one of the two", code="given-twice")


def canonical_spelling(table: MappingNode, group: SchemaGroup,
                       problems: list[Problem]) -> MappingNode:
    """``table``, the mapping of ``group``, in the schema's own spelling; notes keys given twice in ``problems``."""
    entries: list[tuple[ScalarNode, Node]] = []
    for name, node in unfold_dotted_keys(table, problems):
        own = group.spellings.get(name.text, name.text)
        child = group.fields.get(own)
        inside = (canonical_spelling(node, child, problems)
                  if isinstance(child, SchemaGroup) and isinstance(node, MappingNode) else node)
        entries.append((name if own == name.text else replace(name, text=own, char_positions=()),
                        inside))
    return replace(table,
                   entries=tuple(_inline_variant_keys(entries, group.inlined_variant, problems)
                                 if group.inlined_variant else entries))


def _inline_variant_keys(entries: list[tuple[ScalarNode, Node]], beside: InlinedVariant,
                         problems: list[Problem]) -> list[tuple[ScalarNode, Node]]:
    """``entries`` with the keys that stand inside the variant of ``beside`` beside its group."""
    lifted: list[tuple[ScalarNode, Node]] = []

    def without(node: Node, way: tuple[str, ...]) -> Node:
        """``node`` without the keys that stand below it under the keys ``way``."""
        if not isinstance(node, MappingNode):
            return node
        inside = unfold_dotted_keys(node, problems)
        if not way:
            lifted.extend(entry for entry in inside if entry[0].text in beside.inlined_keys)
            return replace(node,
                           entries=tuple(entry
                                         for entry in inside
                                         if entry[0].text not in beside.inlined_keys))
        return replace(node,
                       entries=tuple((name,
                                      without(inner, way if name.text == ONE_OF_KEY else way[1:]))
                                     if name.text in (ONE_OF_KEY, way[0]) else (name, inner)
                                     for name, inner in inside))

    kept = [(name, without(node, (beside.variant,)) if name.text == beside.group else node)
            for name, node in entries]
    return [*kept, *lifted]


def rename_deprecated_costs(node: ScalarNode) -> ScalarNode:
    """A condition with the present names of its costs; prints a warning for each deprecated one."""
    for old, new in DEPRECATED_COST_NAMES.items():
        if old in node.text:
            warn_deprecated(node.position, f"the cost `{old}` is now `{new}`")
            node = replace(node, text=node.text.replace(old, new))  # both have the same length
    return node
