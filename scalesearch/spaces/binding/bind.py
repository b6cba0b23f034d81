"""Bind a space file to a schema, and collect every problem."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from scalesearch.files import resolve_relative
from scalesearch.spaces.binding.binder import Binder, KeyContext
from scalesearch.spaces.binding.static_checks import (
    find_contradictions,
    find_cycles,
    find_unfitting_schedules,
    find_unsatisfiable,
    replace_invalid,
    warn_of_absent_keys,
)
from scalesearch.spaces.huggingface import Difference
from scalesearch.spaces.parameters.constraints import Constraint
from scalesearch.spaces.parameters.param_values import ParameterSpace
from scalesearch.spaces.schema.bound_tree import GroupNode, SchemaIndex, build_index
from scalesearch.spaces.schema.cost_names import (
    COST_NAMES,
    LATENCY_KEY,
    OWN_VOCABULARY,
    PROTOCOL_CHOICES,
    PROTOCOL_SIZES,
)
from scalesearch.spaces.schema.types import SchemaField, SchemaGroup
from scalesearch.spaces.syntax.diagnostics import ConfigError, Problem
from scalesearch.spaces.syntax.domains import ConstantDomain, InvalidDomain, iter_expressions
from scalesearch.spaces.syntax.nodes import (
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    duplicate_key_problem,
    unfold_dotted_keys,
)

ABSENT_STACKS = {("decoder-only",): "encoder", ("encoder-only",): "decoder"}  # by model
SPACE_LEVEL_KEYS = ("space", "notes", "where", "cost")
PROTOCOL_FIELDS = {
    **{key: SchemaField("word", words, deprecated=("artefact",) * (key == "artifact"))
       for key, words in PROTOCOL_CHOICES.items()},
    **{key: SchemaField("size") for key in PROTOCOL_SIZES}, LATENCY_KEY: SchemaField("text")}
COST_SCHEMA = SchemaGroup({"protocol": SchemaGroup(PROTOCOL_FIELDS), "budgets": SchemaGroup()})


@dataclass(frozen=True)
class BoundSpace:
    """A file's content, bound to the schema.

    Attributes:
        name: the name in the file, or an empty text.
        notes: free text.
        root: the bound tree.
        parameter_space: the parameters.
        constraints: conditions over values and costs, from ``where:``.
        budgets: named constraints.
        protocol: settings of the costs, ``name`` and those that the file sets.
        document: the nodes of the file.
        schema: its keys.
        not_expressed: differences to the Hugging Face model from which it was read, if any.
        max_positions: tokens that this model supports, if its configuration contains them.
    """

    name: str
    notes: str
    root: GroupNode
    parameter_space: ParameterSpace
    constraints: tuple[Constraint, ...]
    budgets: Mapping[str, Constraint]
    protocol: Mapping[str, str | int]
    document: MappingNode
    schema: SchemaGroup
    not_expressed: tuple[Difference, ...] = ()
    max_positions: int | None = None

    @cached_property
    def index(self) -> SchemaIndex:
        """The index of the schema, without the keys of a stack that no candidate has."""
        index = build_index(self.schema)
        for node in self.parameter_space.nodes_by_key.get("model", ()):
            if absent := ABSENT_STACKS.get(node.domain.constants or ()):
                index = index.without(absent)
        return index


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


class SpaceBinder(Binder):
    """Binds a space file to a schema."""

    extra_keys = SPACE_LEVEL_KEYS

    def __init__(self, document: MappingNode, schema: SchemaGroup, problems: list[Problem]) -> None:
        super().__init__(build_index(schema))
        self.document = document
        self.schema = schema
        self.problems = problems

    def bind_space(self) -> BoundSpace:
        """The content of the file.

        Raises:
            ConfigError: with every problem, including those of the constructor.
        """
        entries = unfold_dotted_keys(self.document, self.problems)
        self.is_complete = not self.problems
        space_level = {name.text: node for name, node in entries if name.text in SPACE_LEVEL_KEYS}
        keys = tuple(entry for entry in entries if entry[0].text not in SPACE_LEVEL_KEYS)
        position = self.document.position  # of missing keys, which have no text to underline
        if position.source.has_lines:
            position = replace(position, end=position.column + 1)
        root = self.bind_group(self.schema, replace(self.document, entries=keys),
                               KeyContext("", "", position))
        assert root is not None
        name, notes = (self.read_text(key, space_level.get(key)) for key in ("space", "notes"))
        where = space_level.get("where")
        if isinstance(where, MappingNode):
            self.report_problem(where.display_position, "`where:` is a list",
                                "write each constraint on a separate line, after `- `")
        items: tuple[Node, ...] = where.items if isinstance(where, SequenceNode) else ()
        if isinstance(where, ScalarNode) and where.text:
            items = (where,)
        constraints = [self.read_constraint(item) for item in items]
        cost = space_level.get("cost")
        if cost is not None and not isinstance(cost, MappingNode):
            self.report_problem(cost.display_position,
                                "`cost:` has the keys `protocol` and `budgets`")
            cost = None
        costs = {name: node for name, (_, node)
                 in self.known_entries(COST_SCHEMA, cost, "cost").items()}
        budgets = self.read_budgets(costs.get("budgets"))
        protocol = self.read_protocol(costs.get("protocol"), "vocab" in dict(root.fields))
        valid_constraints = tuple(filter(None, constraints))
        self.problems += find_contradictions(valid_constraints,
                                             *([budget] for budget in budgets.values()))
        parameter_space = check_space(root, valid_constraints, self.problems)
        warn_of_absent_keys(parameter_space, [
            *((constraint.expression, constraint.position)
              for constraint in (*valid_constraints, *budgets.values())),
            *((expression, node.position_of(expression.span)) for node in parameter_space.nodes
              if node.is_given for expression in iter_expressions(node.domain))])
        return BoundSpace(name, notes, root, parameter_space, valid_constraints, budgets, protocol,
                          self.document, self.schema)

    def read_text(self, key: str, node: Node | None) -> str:
        """The text under ``space`` or ``notes``."""
        if node is not None and not isinstance(node, ScalarNode):
            self.report_problem(node.display_position, f"`{key}` is a text")
        return node.text if isinstance(node, ScalarNode) else ""

    def read_constraint(self, node: Node) -> Constraint | None:
        """One constraint; ``None`` after a reported problem."""
        if isinstance(node, ScalarNode):
            return self.bind_constraint(node)
        if type(node) is not Node:
            self.report_problem(node.display_position,
                                "a constraint is one line, such as `decoder.depth <= "
                                "encoder.depth`", "quote a constraint that contains `: `"
                                if isinstance(node, MappingNode) else None)
        return None

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
        budgets = {name: self.read_constraint(value) for name, (_, value) in first.items()}
        return {name: budget for name, budget in budgets.items() if budget is not None}

    def read_protocol(self, node: Node | None, has_own_vocab: bool) -> dict[str, str | int]:
        """The settings of the protocol that the file sets, such as its name and sizes."""
        entries: dict[str, Node] = {"name": node} if isinstance(node, ScalarNode) else {}
        if isinstance(node, MappingNode):
            group = SchemaGroup(PROTOCOL_FIELDS)
            entries = {key: value for key, (_, value)
                       in self.known_entries(group, node, "cost.protocol").items()}
        elif node is not None and not entries:
            self.report_problem(node.display_position, "a protocol is a name or a mapping",
                                "`{ source: 30, target: 30, vocab: 32768 }`")
        protocol: dict[str, str | int] = {"name": "forward"}
        if has_own_vocab:
            protocol["vocab"] = OWN_VOCABULARY
        for key, value in entries.items():
            path = f"cost.protocol.{key}"
            if key == "vocab" and isinstance(value, ScalarNode) and (
                    has_own_vocab or value.text == OWN_VOCABULARY):
                if not has_own_vocab:
                    self.report_problem(value.display_position,
                                        f"`{path}` is `{OWN_VOCABULARY}`, and the space has no key "
                                        "`vocab`",
                                        "give a size, or `vocab: 1k | 2k | 4k` next to `width`")
                elif value.text != OWN_VOCABULARY:
                    self.report_problem(value.display_position,
                                        f"`{path}`: the space sets the vocabulary with the key "
                                        "`vocab`", "remove one of the two", code="given-twice")
                continue
            context = KeyContext(path, path, value.display_position)
            domain = self.bind_parameter(PROTOCOL_FIELDS[key], value, context).domain
            if isinstance(domain, ConstantDomain) and isinstance(domain.value, str | int):
                protocol[key] = (resolve_relative(value.position.source.name, str(domain.value))
                                 if key == LATENCY_KEY else domain.value)
            elif not isinstance(domain, InvalidDomain):
                self.report_problem(value.display_position, f"`{path}` is a constant")
        return protocol
