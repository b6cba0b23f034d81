"""Bind a space file to a schema, and collect every problem."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from scalesearch.files import resolve_relative
from scalesearch.spaces.binding.binder import Binder, KeyContext, rename_deprecated_keys
from scalesearch.spaces.binding.name_resolution import NameResolver
from scalesearch.spaces.binding.static_checks import (
    find_cycles,
    find_unfitting_schedules,
    find_unsatisfiable,
    replace_invalid,
)
from scalesearch.spaces.parameters.constraints import Constraint
from scalesearch.spaces.parameters.param_values import ParameterSpace
from scalesearch.spaces.schema.bound_tree import GroupNode, build_index
from scalesearch.spaces.schema.cost_names import (
    COST_NAMES,
    DEPRECATED_COST_NAMES,
    LATENCY_KEY,
    OWN_VOCABULARY,
    PROTOCOL_CHOICES,
    PROTOCOL_SIZES,
)
from scalesearch.spaces.schema.types import SchemaField, SchemaGroup
from scalesearch.spaces.syntax.diagnostics import (
    ConfigError,
    Problem,
    SourcePosition,
    suggest_match,
    warn_deprecated,
)
from scalesearch.spaces.syntax.domains import ConstantDomain, InvalidDomain
from scalesearch.spaces.syntax.lexer import ValueSyntaxError
from scalesearch.spaces.syntax.nodes import (
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    duplicate_key_problem,
    unfold_dotted_keys,
)
from scalesearch.spaces.syntax.parser import parse_expression

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
    """Bind a file to a schema.

    Raises:
        ConfigError: with every problem, including ``problems``.
    """
    return _SpaceBinder(document, schema, problems).bind_space()


def check_space(root: GroupNode, constraints: tuple[Constraint, ...],
                problems: list[Problem]) -> ParameterSpace:
    """The parameters of a bound tree, after checks for what no single key shows.

    Raises:
        ConfigError: with every problem, including ``problems``.
    """
    nodes = list(root.parameter_nodes())
    problems += find_cycles(nodes)
    nodes, valid_keys = replace_invalid(nodes, problems)
    parameter_space = ParameterSpace(nodes)
    valid_constraints = tuple(
        constraint for constraint in constraints
        if constraint.referenced_names() <= valid_keys | set(COST_NAMES))
    problems += find_unfitting_schedules(parameter_space, valid_keys)
    problems += find_unsatisfiable(parameter_space, valid_constraints)
    if problems:
        raise ConfigError(problems)
    return parameter_space


class _SpaceBinder(Binder):
    extra_keys = SPACE_LEVEL_KEYS

    def __init__(self, document: MappingNode, schema: SchemaGroup, problems: list[Problem]) -> None:
        super().__init__(build_index(schema))
        self.schema = schema
        self.problems = problems
        entries = unfold_dotted_keys(document, problems)
        self.is_complete = not problems
        self.space_level_nodes = {name.text: node
                                  for name, node in entries if name.text in SPACE_LEVEL_KEYS}
        self.document = replace(
            document,
            entries=tuple(entry for entry in entries if entry[0].text not in SPACE_LEVEL_KEYS))

    def bind_space(self) -> BoundSpace:
        position = self.document.position
        has_lines = position.source.has_lines
        top = SourcePosition(position.source, 0, 0, 1) if has_lines else position
        root = self.bind_group(self.schema, self.document, KeyContext("", "", top))
        assert root is not None
        self.has_own_vocab = "vocab" in dict(root.fields)
        name = self.read_text("space")
        notes = self.read_text("notes")
        constraints = self.read_constraints()
        budgets, protocol = self.read_cost()
        parameter_space = check_space(root, constraints, self.problems)
        return BoundSpace(name, notes, root, parameter_space, constraints, budgets, protocol)

    def read_text(self, key: str) -> str:
        """The text under ``space`` or ``notes``."""
        node = self.space_level_nodes.get(key)
        if node is None or isinstance(node, ScalarNode):
            return node.text if node else ""
        self.report_problem(node.display_position, f"`{key}` is a text")
        return ""

    def read_constraint(self, node: Node) -> Constraint | None:
        """One constraint; ``None`` after a reported problem."""
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

        def report_error(problem: ValueSyntaxError) -> None:
            self.report_problem(node.position_of(problem.span), problem.message, problem.help,
                                code=problem.code)

        try:
            expr = parse_expression(node.text)
        except ValueSyntaxError as problem:
            report_error(problem)
            return None
        resolved = NameResolver(self.index, "", True, report_error).resolve_condition(expr)
        if len(self.problems) > before:
            return None
        return Constraint(resolved, node.position_of((0, len(node.text))))

    def read_constraints(self) -> tuple[Constraint, ...]:
        """The constraints under ``where:``."""
        node = self.space_level_nodes.get("where")
        if isinstance(node, MappingNode):
            self.report_problem(node.display_position, "`where:` is a list",
                                "write each constraint on a separate line, after `- `")
        items = node.items if isinstance(node, SequenceNode) else (node,) if isinstance(
            node, ScalarNode) and node.text else ()
        constraints = [self.read_constraint(item) for item in items]
        return tuple(constraint for constraint in constraints if constraint is not None)

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
        """The entries of ``table`` under ``names``; reports the others."""
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
        """The budgets: names of constraints to constraints."""
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
        """The settings of the protocol that the file sets, such as its name and sizes."""
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
            context = KeyContext(path, path, value.display_position)
            domain = self.bind_parameter(field, value, context).domain
            if isinstance(domain, ConstantDomain) and isinstance(domain.value, str | int):
                protocol[key] = (resolve_relative(value.position.source.name, str(domain.value))
                                 if key == LATENCY_KEY else domain.value)
            elif not isinstance(domain, InvalidDomain):
                self.report_problem(value.display_position, f"`{path}` is a constant")
        return protocol

    def report_vocab_conflict(self, value: ScalarNode) -> None:
        """Report that ``cost.protocol.vocab`` contradicts ``vocab`` or its absence."""
        if not self.has_own_vocab:
            self.report_problem(value.display_position,
                                f"`cost.protocol.vocab` is `{OWN_VOCABULARY}`, and the space has "
                                "no key `vocab`",
                                "give a size, or `vocab: 1k | 2k | 4k` next to `width`")
        elif value.text != OWN_VOCABULARY:
            self.report_problem(value.display_position,
                                "`cost.protocol.vocab`: the space sets the vocabulary with the "
                                "key `vocab`", "remove one of the two", code="given-twice")


def rename_deprecated_costs(node: ScalarNode) -> ScalarNode:
    """A condition with the present names of its costs.

    A warning is printed for each deprecated name.
    """
    for old, new in DEPRECATED_COST_NAMES.items():
        if old in node.text:
            warn_deprecated(node.position, f"the cost `{old}` is now `{new}`")
            node = replace(node, text=node.text.replace(old, new))  # both have the same length
    return node
