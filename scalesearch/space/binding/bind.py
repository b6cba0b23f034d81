"""Binds a file's nodes to a schema: keys, names, constraints, costs; collects every problem."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from scalesearch.files import beside
from scalesearch.space.binding.binder import ONE_OF, Binder, Spot
from scalesearch.space.binding.name_resolution import Resolver
from scalesearch.space.binding.static_checks import cycles, mend, misfits, unsatisfiable
from scalesearch.space.questionnaire.answers import Questionnaire
from scalesearch.space.questionnaire.constraints import Constraint
from scalesearch.space.schema.bound_tree import Branch, index_of
from scalesearch.space.schema.cost_names import COST_NAMES, LATENCY, OWN, PROTOCOL_SIZES, PROTOCOL_WORDS
from scalesearch.space.schema.types import Beside, Field, Group
from scalesearch.space.syntax.diagnostics import Place, Problem, SpaceErrors, suggest
from scalesearch.space.syntax.domains import Broken, Literal
from scalesearch.space.syntax.lexer import SyntaxProblem
from scalesearch.space.syntax.nodes import Node, Sequence, Table, Text, duplicate, unfold
from scalesearch.space.syntax.value_parser import parse_expression

EXTRA = ("space", "notes", "where", "cost")


@dataclass(frozen=True)
class Bound:
    """A file's content, bound to the schema."""

    name: str
    notes: str
    root: Branch
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
        leaves = list(root.leaves())
        self.problems += cycles(leaves)
        self.own_vocab = "vocab" in dict(root.fields)
        name, notes, constraints, cost = self.text("space"), self.text("notes"), self.where(), self.cost()
        leaves, sound = mend(leaves, self.problems)
        form = Questionnaire(leaves)
        where = tuple(constraint for constraint in constraints if constraint.names() <= sound | set(COST_NAMES))
        self.problems += [*misfits(form, sound), *unsatisfiable(form, where)]
        if self.problems:
            raise SpaceErrors(self.problems)
        return Bound(name, notes, root, form, constraints, *cost)

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
        node = self.extra.get("where")
        if isinstance(node, Table):
            self.wrong(node.here, "`where:` is a list", "write each constraint on a line of its own, after `- `")
        items = node.items if isinstance(node, Sequence) else (node,) if isinstance(node, Text) and node.text else ()
        return tuple(constraint for item in items if (constraint := self.constraint(item)) is not None)

    def cost(self) -> tuple[dict[str, Constraint], dict[str, str | int]]:
        """The budgets and the protocol under ``cost:``."""
        node = self.extra.get("cost")
        if node is not None and not isinstance(node, Table):
            self.wrong(node.here, "`cost:` has the keys `protocol` and `budgets`")
        entries = self.known(node, ("protocol", "budgets"), "cost") if isinstance(node, Table) else {}
        return self.budgets(entries.get("budgets")), {"name": "forward"} | self.protocol(entries.get("protocol"))

    def known(self, table: Table, names: tuple[str, ...], where: str) -> dict[str, Node]:
        """The entries of ``table`` under ``names``; complains about the others."""
        entries: dict[str, Node] = {}
        for name, value in unfold(table, self.problems):
            if name.text in names:
                entries[name.text] = value
            else:
                help = suggest(name.text, names)
                self.wrong(name.place, f"unknown key `{name.text}` in `{where}`", help, code="unknown-key")
        return entries

    def budgets(self, node: Node | None) -> dict[str, Constraint]:
        """``name: constraint`` each."""
        if not isinstance(node, Table):
            if node is not None and not (isinstance(node, Text) and not node.text):
                self.wrong(node.here, "`budgets:` is a mapping", "for example `edge: params.non_embedding <= 10M`")
            return {}
        first: dict[str, tuple[Text, Node]] = {}
        for name, value in node:
            if name.text in first:
                self.problems.append(duplicate(name, first[name.text][0]))
            first.setdefault(name.text, (name, value))
        read = {name: self.constraint(value) for name, (_, value) in first.items()}
        return {name: constraint for name, constraint in read.items() if constraint is not None}

    def protocol(self, node: Node | None) -> dict[str, str | int]:
        """What is given of the protocol: its name, sizes."""
        entries: dict[str, Node] = {"name": node} if isinstance(node, Text) else {}
        if isinstance(node, Table):
            entries = self.known(node, (*PROTOCOL_WORDS, *PROTOCOL_SIZES, LATENCY), "protocol")
        elif node is not None and not entries:
            self.wrong(node.here, "a protocol is a name or a mapping", "`{ source: 30, target: 30, vocab: 32768 }`")
        protocol: dict[str, str | int] = {"vocab": OWN} if self.own_vocab else {}
        for key, value in entries.items():
            path, words = f"cost.protocol.{key}", PROTOCOL_WORDS.get(key)
            field = Field("word", words) if words else Field("text" if key == LATENCY else "size")
            if key == "vocab" and isinstance(value, Text) and (value.text == OWN or self.own_vocab):
                self.shared_vocab(value)
                continue
            spec = self.leaf(field, value, Spot(path, path, value.here)).spec
            if isinstance(spec, Literal) and isinstance(spec.value, str | int):
                protocol[key] = beside(value.place.source.name, str(spec.value)) if key == LATENCY else spec.value
            elif not isinstance(spec, Broken):
                self.wrong(value.here, f"`{path}` is a constant")
        return protocol


    def shared_vocab(self, value: Text) -> None:
        """Complains about ``cost.protocol.vocab``, where it contradicts the key ``vocab``."""
        if not self.own_vocab:
            self.wrong(value.here, f"`cost.protocol.vocab` is `{OWN}`, and the space has no key `vocab`",
                       "give a size, or `vocab: 1k | 2k | 4k` beside `width`")
        elif value.text != OWN:
            self.wrong(value.here, "`cost.protocol.vocab`: the space has a vocabulary of its own, under `vocab`",
                       "remove one of the two", code="given-twice")


def respelled(table: Table, group: Group, problems: list[Problem]) -> Table:
    """``table``, the mapping of ``group``, in the schema's own spelling; notes keys given twice in ``problems``."""
    entries: list[tuple[Text, Node]] = []
    for name, node in unfold(table, problems):
        own = group.spellings.get(name.text, name.text)
        child = group.fields.get(own)
        inside = respelled(node, child, problems) if isinstance(child, Group) and isinstance(node, Table) else node
        entries.append((name if own == name.text else replace(name, text=own, where=()), inside))
    return replace(table, entries=tuple(_lifted(entries, group.beside, problems) if group.beside else entries))


def _lifted(entries: list[tuple[Text, Node]], beside: Beside, problems: list[Problem]) -> list[tuple[Text, Node]]:
    """``entries`` with the keys that stand inside the variant of ``beside`` beside its group."""
    lifted: list[tuple[Text, Node]] = []

    def without(node: Node, way: tuple[str, ...]) -> Node:
        """``node`` without the keys that stand below it under the keys ``way``."""
        if not isinstance(node, Table):
            return node
        inside = unfold(node, problems)
        if not way:
            lifted.extend(entry for entry in inside if entry[0].text in beside.names)
            return replace(node, entries=tuple(entry for entry in inside if entry[0].text not in beside.names))
        return replace(node, entries=tuple(
            (name, without(inner, way if name.text == ONE_OF else way[1:])) if name.text in (ONE_OF, way[0])
            else (name, inner) for name, inner in inside))

    kept = [(name, without(node, (beside.variant,)) if name.text == beside.group else node) for name, node in entries]
    return [*kept, *lifted]
