"""Binds a file's nodes to a schema: keys, names, constraints, costs; collects every problem."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from scalesearch.space.binding.binder import Binder, Spot
from scalesearch.space.binding.name_resolution import Resolver
from scalesearch.space.binding.static_checks import cycles, mend, misfits, unsatisfiable
from scalesearch.space.questionnaire.answers import Questionnaire
from scalesearch.space.questionnaire.constraints import Constraint
from scalesearch.space.schema.bound_tree import index_of
from scalesearch.space.schema.cost_names import COST_NAMES, PROTOCOL_NAMES, PROTOCOL_SIZES
from scalesearch.space.schema.types import Field, Group
from scalesearch.space.syntax.diagnostics import Place, Problem, SpaceErrors, suggest
from scalesearch.space.syntax.domains import Broken, Literal
from scalesearch.space.syntax.dotted_keys import duplicate, unfold
from scalesearch.space.syntax.lexer import SyntaxProblem
from scalesearch.space.syntax.nodes import Node, Sequence, Table, Text
from scalesearch.space.syntax.value_parser import parse_expression

EXTRA = ("space", "notes", "where", "cost")


@dataclass(frozen=True)
class Bound:
    """A file's content, bound to the schema."""

    name: str
    notes: str
    form: Questionnaire
    where: tuple[Constraint, ...]
    budgets: Mapping[str, Constraint]
    protocol: Mapping[str, str | int]


def bind(document: Table, schema: Group, problems: list[Problem]) -> Bound:
    """Binds a file to a schema. Raises SpaceErrors with everything that is wrong, ``problems`` included."""
    return _Document(document, schema, problems).bound()


class _Document(Binder):
    extra_keys = EXTRA

    def __init__(self, document: Table, schema: Group, problems: list[Problem]) -> None:
        super().__init__(index_of(schema))
        self.schema, self.problems, self.whole = schema, problems, not problems
        entries = unfold(document, problems)
        self.extra = {name.text: node for name, node in entries if name.text in EXTRA}
        self.document = replace(document, entries=tuple(entry for entry in entries if entry[0].text not in EXTRA))

    def bound(self) -> Bound:
        place = self.document.place
        top = Place(place.source, 0, 0, 1) if place.source.numbered else place
        root = self.group(self.schema, self.document, Spot("", "", top))
        assert root is not None
        self.problems += cycles(root)
        name, notes, constraints, cost = self.text("space"), self.text("notes"), self.where(), self.cost()
        whole, sound = mend(root, self.problems)
        form = Questionnaire(whole)
        where = tuple(constraint for constraint in constraints if constraint.names() <= sound | set(COST_NAMES))
        self.problems += [*misfits(form, sound), *unsatisfiable(form, where)]
        if self.problems:
            raise SpaceErrors(self.problems)
        return Bound(name, notes, form, constraints, *cost)

    def text(self, key: str) -> str:
        """The text under ``space`` or ``notes``."""
        node = self.extra.get(key)
        if node is None or isinstance(node, Text):
            return node.text if node else ""
        self.wrong(node.here, f"`{key}` is a text")
        return ""

    def constraint(self, node: Node) -> Constraint | None:
        """One constraint; ``None`` after a complaint."""
        if not isinstance(node, Text):
            if type(node) is not Node:
                help = "quote a constraint that contains `: `" if isinstance(node, Table) else None
                self.wrong(node.here, "a constraint is one line, such as `decoder.depth <= encoder.depth`", help)
            return None
        before = len(self.problems)

        def complain(problem: SyntaxProblem) -> None:
            self.wrong(node.at(problem.span), problem.message, problem.help, code=problem.code)

        try:
            expr = parse_expression(node.text)
        except SyntaxProblem as problem:
            complain(problem)
            return None
        resolved = Resolver(self.index, "", True, complain).truth(expr)
        return Constraint(resolved, node.at((0, len(node.text)))) if len(self.problems) == before else None

    def where(self) -> tuple[Constraint, ...]:
        """The constraints under ``where:``."""
        if "where" not in self.extra:
            return ()
        node = self.extra["where"]
        if isinstance(node, Table):
            self.wrong(node.here, "`where:` is a list", "write each constraint on a line of its own, after `- `")
            return ()
        items = node.items if isinstance(node, Sequence) else (node,) if isinstance(node, Text) and node.text else ()
        return tuple(constraint for item in items if (constraint := self.constraint(item)) is not None)

    def cost(self) -> tuple[dict[str, Constraint], dict[str, str | int]]:
        """The budgets and the protocol under ``cost:``."""
        if "cost" not in self.extra:
            return {}, {"name": "forward"}
        node = self.extra["cost"]
        if not isinstance(node, Table):
            self.wrong(node.here, "`cost:` has the keys `protocol` and `budgets`")
            return {}, {"name": "forward"}
        entries = {name.text: (name, value) for name, value in unfold(node, self.problems)}
        for name, _ in entries.values():
            if name.text not in ("protocol", "budgets"):
                help = suggest(name.text, ("protocol", "budgets"))
                self.wrong(name.place, f"unknown key `{name.text}` in `cost`", help, code="unknown-key")
        protocol: dict[str, str | int] = {"name": "forward"}
        if "protocol" in entries:
            protocol = self.protocol(entries["protocol"][1])
        return self.budgets(entries["budgets"][1]) if "budgets" in entries else {}, protocol

    def budgets(self, node: Node) -> dict[str, Constraint]:
        """``name: constraint`` each."""
        if not isinstance(node, Table):
            if not (isinstance(node, Text) and not node.text):
                self.wrong(node.here, "`budgets:` is a mapping", "for example `edge: params.non_embedding <= 10M`")
            return {}
        budgets: dict[str, Constraint] = {}
        first: dict[str, Text] = {}
        for name, value in node:
            if name.text in first:
                self.problems.append(duplicate(name, first[name.text]))
                continue
            first[name.text] = name
            constraint = self.constraint(value)
            if constraint is not None:
                budgets[name.text] = constraint
        return budgets

    def protocol(self, node: Node) -> dict[str, str | int]:
        """The protocol: its name, and sizes where given."""
        protocol: dict[str, str | int] = {"name": "forward"}
        if isinstance(node, Text):
            return protocol | self.protocol_value("name", node)
        if not isinstance(node, Table):
            self.wrong(node.here, "a protocol is a name or a mapping", "`{ source: 30, target: 30, vocab: 32768 }`")
            return protocol
        for name, value in unfold(node, self.problems):
            if name.text in ("name", *PROTOCOL_SIZES):
                protocol |= self.protocol_value(name.text, value)
            else:
                help = suggest(name.text, ("name", *PROTOCOL_SIZES))
                self.wrong(name.place, f"unknown key `{name.text}` in `protocol`", help, code="unknown-key")
        return protocol

    def protocol_value(self, key: str, node: Node) -> dict[str, str | int]:
        """One entry of a protocol, a constant."""
        field = Field("word", PROTOCOL_NAMES) if key == "name" else Field("size")
        spec = self.leaf(field, node, Spot(f"cost.protocol.{key}", f"cost.protocol.{key}", node.here)).spec
        if isinstance(spec, Literal) and isinstance(spec.value, str | int):
            return {key: spec.value}
        if not isinstance(spec, Broken):
            self.wrong(node.here, f"`cost.protocol.{key}` is a constant")
        return {}
