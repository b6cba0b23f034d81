"""Binds a file's nodes to a schema: keys, names, constraints, costs; collects every problem."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from scalesearch.space.binding.binder import Binder
from scalesearch.space.binding.error_recovery import mend
from scalesearch.space.binding.name_resolution import Resolver
from scalesearch.space.binding.static_checks import cycles, misfits, unsatisfiable
from scalesearch.space.questionnaire.constraints import Constraint
from scalesearch.space.schema.bound_tree import Branch, Leaf, index_of
from scalesearch.space.schema.cost_names import COST_NAMES, PROTOCOL_NAMES, PROTOCOL_SIZES
from scalesearch.space.schema.types import Field, Group
from scalesearch.space.syntax.choices import each_option, rewrite
from scalesearch.space.syntax.diagnostics import Place, Problem, SpaceErrors, closest, suggest
from scalesearch.space.syntax.domains import Broken, Indexed, Literal, Spec
from scalesearch.space.syntax.dotted_keys import duplicate, unfold
from scalesearch.space.syntax.expressions import Expr
from scalesearch.space.syntax.lexer import SyntaxProblem
from scalesearch.space.syntax.nodes import Node, Sequence, Table, Text
from scalesearch.space.syntax.value_parser import parse_expression

EXTRA = ("space", "notes", "where", "cost")


@dataclass(frozen=True)
class Bound:
    """A file's content, bound to the schema."""

    name: str
    notes: str
    root: Branch
    where: tuple[Constraint, ...]
    budgets: Mapping[str, Constraint]
    protocol: Mapping[str, str | int]


def bind(document: Table, schema: Group, problems: list[Problem]) -> Bound:
    """Binds a file to a schema. Raises SpaceErrors with everything that is wrong, ``problems`` included."""
    return _Binding(document, schema, problems).bound()


class _Binding:
    def __init__(self, document: Table, schema: Group, problems: list[Problem]) -> None:
        self.schema = schema
        self.index = index_of(schema)
        self.problems = problems
        self.whole = not problems
        own: list[Problem] = []
        entries = unfold(document, own)
        self.problems += own
        self.extra = {name.text: (name, node) for name, node in entries if name.text in EXTRA}
        rest = tuple((name, node) for name, node in entries if name.text not in EXTRA)
        self.document = replace(document, entries=rest)
        self.top = Place(document.place.source, 0, 0, 1) if document.place.source.numbered else document.place

    def wrong(self, place: Place, message: str, help: str | None = None, code: str = "bad-value") -> None:
        self.problems.append(Problem(place, message, help, code=code))

    def bound(self) -> Bound:
        binder = Binder(self.index)
        binder.extra_keys = EXTRA
        binder.whole = self.whole
        root = binder.group(self.schema, self.document, "", "", (), self.top)
        assert root is not None
        self.problems += binder.problems
        root = self.resolve_branch(root)
        self.problems += cycles(root)
        bound = Bound(self.text("space"), self.text("notes"), root, self.where(), *self.cost())
        whole, sound = mend(root, self.problems)
        where = tuple(constraint for constraint in bound.where if constraint.names() <= sound | set(COST_NAMES))
        self.problems += [*misfits(whole, sound), *unsatisfiable(whole, where)]
        if self.problems:
            raise SpaceErrors(self.problems)
        return bound

    def text(self, key: str) -> str:
        """The text under ``space`` or ``notes``."""
        if key not in self.extra:
            return ""
        node = self.extra[key][1]
        if isinstance(node, Text):
            return node.text
        self.wrong(node.here, f"`{key}` is a text")
        return ""

    def resolve_branch(self, branch: Branch) -> Branch:
        """``branch`` with every name in it looked up."""
        fields = tuple((name, self._resolved(child)) for name, child in branch.fields)
        variants = tuple((name, self.resolve_branch(inner)) for name, inner in branch.variants)
        chooser = self.resolve_leaf(branch.chooser) if branch.chooser else None
        return replace(branch, chooser=chooser, fields=fields, variants=variants)

    def _resolved(self, child: Branch | Leaf) -> Branch | Leaf:
        return self.resolve_leaf(child) if isinstance(child, Leaf) else self.resolve_branch(child)

    def resolve_leaf(self, leaf: Leaf) -> Leaf:
        """``leaf`` with the names of its expressions looked up, and its references to schedules checked."""

        def complain(problem: SyntaxProblem) -> None:
            self.wrong(leaf.place(problem.span), problem.message, problem.help, code=problem.code)

        resolver = Resolver(self.index, leaf.path.rpartition(".")[0], False, complain)

        def change(expr: Expr, condition: bool) -> Expr:
            return resolver.truth(expr) if condition else resolver.value(expr, leaf.field)

        def first_spelling(option: Spec) -> Spec:
            if not isinstance(option, Indexed):
                return option
            self.check_layer(leaf, option, resolver)
            known, scope = self.index.find(option.path, resolver.scope), option.path.rpartition(".")[0]
            return replace(option, path=f"{scope}.{known.key.rpartition('.')[2]}") if known and scope else option

        return replace(leaf, spec=each_option(rewrite(leaf.spec, change), first_spelling))

    def check_layer(self, leaf: Leaf, option: Indexed, resolver: Resolver) -> None:
        """Complains where ``encoder.attention[i]`` points to something that is no other schedule."""
        known = self.index.find(option.path, resolver.scope)
        schedules = [path for path, other in self.index.paths.items() if other.field.kind == "schedule"]
        top = leaf.path.partition(".")[0]
        short = [path.removeprefix(f"{top}.") for path in schedules if path != leaf.path]
        span = (option.span[0], option.span[0] + len(option.path))
        if known is None or known.field.kind != "schedule":
            meant = closest(option.path, short)
            help = f"did you mean `{meant}`?" if meant else f"the schedules are {', '.join(short)}"
            self.wrong(leaf.place(span), f"`{option.path}` is not a schedule of this space", help,
                       code="unknown-schedule")
        elif known.key == leaf.key:
            self.wrong(
                leaf.place(span), f"`{leaf.path}` cannot use its own layers", "for that, write `cycle(2)` or a list",
                code="depends-on-itself"
            )

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
        node = self.extra["where"][1]
        if isinstance(node, Table):
            self.wrong(node.here, "`where:` is a list", "write each constraint on a line of its own, after `- `")
            return ()
        items = node.items if isinstance(node, Sequence) else (node,) if isinstance(node, Text) and node.text else ()
        return tuple(constraint for item in items if (constraint := self.constraint(item)) is not None)

    def cost(self) -> tuple[dict[str, Constraint], dict[str, str | int]]:
        """The budgets and the protocol under ``cost:``."""
        if "cost" not in self.extra:
            return {}, {"name": "forward"}
        node = self.extra["cost"][1]
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
        leaf = Binder(self.index)
        spec: Spec = leaf.leaf(field, node, f"cost.protocol.{key}", f"cost.protocol.{key}", (), node.here).spec
        self.problems += leaf.problems
        if isinstance(spec, Literal) and isinstance(spec.value, str | int):
            return {key: spec.value}
        if not isinstance(spec, Broken):
            self.wrong(node.here, f"`cost.protocol.{key}` is a constant")
        return {}
