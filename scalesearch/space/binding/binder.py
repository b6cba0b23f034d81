"""Matches a file's nodes with the schema's keys; reports missing and unknown ones."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from scalesearch.blocks.core import join_path
from scalesearch.space.binding.calls import spelled_out
from scalesearch.space.binding.name_resolution import Resolver
from scalesearch.space.binding.unknown_keys import help_with
from scalesearch.space.schema.bound_tree import Branch, Guards, Index, Leaf, chooser_field, guards_of
from scalesearch.space.schema.type_check import describe, fit
from scalesearch.space.schema.types import Beside, Field, Group
from scalesearch.space.syntax.choices import Alternatives, each_option, options
from scalesearch.space.syntax.diagnostics import SHOWN, Place, Problem, either, suggest
from scalesearch.space.syntax.domains import Broken, Items, Literal, Spec
from scalesearch.space.syntax.lexer import SyntaxProblem
from scalesearch.space.syntax.nodes import Node, Sequence, Table, Text, unfold
from scalesearch.space.syntax.value_parser import list_of, parse_value

ONE_OF, NONE = "one of", "none"
Entries = Mapping[str, tuple[Text, Node]]
Offers = dict[str, Node | None]  # variants, with what is inside


@dataclass(frozen=True)
class Spot:
    """A key of the schema as a file reaches it; ``origin`` is shown where the file says nothing of it."""

    key: str
    path: str
    origin: Place
    guards: Guards = ()

    def below(self, name: str, origin: Place, guards: Guards) -> "Spot":
        """A field of the group that is here."""
        return Spot(join_path(self.key, name), join_path(self.path, name), origin, (*self.guards, *guards))

    def variant(self, name: str) -> "Spot":
        """A variant of the group that is here."""
        return replace(self, path=join_path(self.path, name), guards=(*self.guards, (self.key, name)))


class Binder:
    """Walks schema and file side by side and collects problems.

    Attributes:
        extra_keys: legal at the top besides the schema's.
        guesses: False where keys of other groups are too many to guess which was meant.
        whole: False where part of the file could not be read: what is missing is then unknown.
    """

    extra_keys: tuple[str, ...] = ()
    guesses = whole = True

    def __init__(self, index: Index) -> None:
        self.index = index
        self.problems: list[Problem] = []

    def wrong(self, place: Place, message: str, help: str | None = None, code: str = "bad-value") -> None:
        """Notes a problem."""
        self.problems.append(Problem(place, message, help, code=code))

    def group(self, group: Group, node: Node | None, at: Spot) -> Branch | None:
        """The branch for ``group``; ``None`` where it is optional and not given."""
        none = isinstance(node, Text) and node.text == NONE and NONE not in group.variants
        if group.optional and (node is None or none):
            return None
        chooser: Leaf | None = None
        offers, entries = dict[str, Node | None](), dict[str, tuple[Text, Node]]()
        node = spelled_out(node, group, self.wrong)
        if isinstance(node, Text) and node.text and group.variants:  # `ffn: relu | geglu`
            at = replace(at, origin=node.here)
            chooser, offers = self.chosen(group, node, at)
        else:
            entries = self.entries(group, node, at.path)
            if group.variants:
                chooser, offers = self.choice(group, entries, at)
        fields = self.fields(group, entries, at)
        variants = []
        for name, variant in group.variants.items():
            if name in offers and (inner := self.group(variant, offers[name], at.variant(name))) is not None:
                variants.append((name, inner))
        if group.beside:
            self.unused(group.beside, entries, dict(fields)[group.beside.group], at.path)
        return Branch(at.key, at.path, chooser, fields, tuple(variants))

    def unused(self, beside: Beside, entries: Entries, chosen: Branch | Leaf, path: str) -> None:
        """Complains about keys of a variant that is not offered."""
        assert isinstance(chosen, Branch)
        kinds = [name for name, _ in chosen.variants]
        for name in entries if beside.variant not in kinds else ():
            if name in beside.alone:
                self.wrong(entries[name][0].place, f"`{join_path(path, name)}` is a key of {beside.variant}, and "
                           f"`{chosen.path}` is {either(kinds)}",
                           f"leave it out, or offer {beside.variant} under `one of:`", code="unused-key")

    def entries(self, group: Group, node: Node | None, path: str) -> dict[str, tuple[Text, Node]]:
        """The keys of a mapping that the schema knows; complains about the others."""
        if node is None or (isinstance(node, Text) and (not node.text or (group.clears and node.text == NONE))):
            return {}
        if not isinstance(node, Table):
            if type(node) is not Node:
                names = [*group.fields, *group.variants, *([NONE] if group.clears else [])]
                self.wrong(node.here, f"`{path}` is a group of keys, not a value", f"its keys are {either(names)}",
                           code="group-not-value")
            return {}
        entries: dict[str, tuple[Text, Node]] = {}
        for name, value in unfold(node, self.problems):
            if name.text in group.fields or name.text in group.variants or (name.text == ONE_OF and group.variants):
                entries[name.text] = (name, value)
            else:
                self.unknown(name, group, path)
        return entries

    def unknown(self, name: Text, group: Group, path: str) -> None:
        """Complains about a key that the schema does not know here."""
        legal = [*group.fields, *group.variants, *(() if path else self.extra_keys)]
        where = f" in `{path}`" if path else ""
        help = (help_with(name.text, group, path, legal, self.index, self.guesses)
                if len(self.problems) <= SHOWN else None)  # a guess takes milliseconds, and nobody would see it
        self.wrong(name.place, f"unknown key `{name.text}`{where}", help, code="unknown-key")

    def chosen(self, group: Group, node: Node | None, at: Spot) -> tuple[Leaf, Offers]:
        """The choice that a text (or the default) makes, and the variants that it may come to."""
        leaf = self.leaf(chooser_field(group), node, at)
        return leaf, dict.fromkeys(offered(leaf.spec) or (group.variants if node is not None else ()))

    def choice(self, group: Group, entries: Entries, at: Spot) -> tuple[Leaf, Offers]:
        """The variants offered: under ``one of:``, by a single key, or by default."""
        offers: Offers = {name: node for name, (_, node) in entries.items() if name in group.variants}
        if ONE_OF in entries:
            node = entries[ONE_OF][1]
            text = isinstance(node, Text) and node.text
            leaf, chosen = self.chosen(group, node, replace(at, origin=node.here)) if text else (None, offers)
            if leaf and leaf.spec.constants is None and not isinstance(leaf.spec, Broken):  # they are no mapping's keys
                return leaf, self.with_keys(offers, entries, chosen, at.path)
            if offers:
                self.wrong(entries[next(iter(offers))][0].place, "this variant is beside `one of:`",
                           "move it under `one of:`", code="bad-variants")
            if leaf:
                return leaf, chosen
            offers = self.one_of(group, node, at.path)
        elif len(offers) > 1:
            self.wrong(entries[list(offers)[1]][0].place, f"`{at.path}` has more than one variant",
                       "list them under `one of:`", code="bad-variants")
        elif not offers:
            return self.chosen(group, None, at)
        names = tuple(map(Literal, offers))
        spec = names[0] if len(names) == 1 else Alternatives(names)
        return Leaf(at.key, at.path, chooser_field(group), spec, at.guards, at.origin), offers

    def with_keys(self, given: Offers, entries: Entries, offers: Offers, path: str) -> Offers:
        """``offers`` of a condition under ``one of:``, with the keys that are ``given`` to them beside it."""
        for name in given:
            if name not in offers:
                self.wrong(entries[name][0].place, f"`{path}` does not offer `{name}` under `one of:`",
                           "leave it out, or offer it", code="unused-key")
        return {name: given.get(name) for name in offers}

    def one_of(self, group: Group, node: Node, path: str) -> Offers:
        """The variants under ``one of:``."""
        offers: Offers = {}
        if isinstance(node, Table) and node.entries:
            for variant, value in unfold(node, self.problems):
                if variant.text in group.variants:
                    offers[variant.text] = value
                else:
                    help = group.gone.get(variant.text) or suggest(variant.text, group.variants)
                    self.wrong(variant.place, f"`{path}` has no variant `{variant.text}`", help, code="unknown-variant")
        elif type(node) is not Node:
            example = f"without keys of their own: `{path}: {' | '.join(list(group.variants)[:2])}`"
            self.wrong(node.here, "`one of:` takes a mapping of variants", example, code="bad-variants")
        return offers or dict.fromkeys(list(group.variants)[:1])

    def fields(self, group: Group, entries: Entries, at: Spot) -> tuple[tuple[str, Branch | Leaf], ...]:
        """The branches and leaves of a group, in the order of the schema."""
        children: list[tuple[str, Branch | Leaf]] = []
        for name, child in group.fields.items():
            place, node = (entries[name][0].place, entries[name][1]) if name in entries else (at.origin, None)
            inner = at.below(name, place, guards_of(group, name, at.key))
            if isinstance(child, Field):
                if node is not None or not child.optional:
                    children.append((name, self.leaf(child, node, inner)))
            elif (branch := self.group(child, node, inner)) is not None:
                children.append((name, branch))
        return tuple(children)

    def leaf(self, field: Field, node: Node | None, at: Spot) -> Leaf:
        """The leaf for ``field``, of what is given or the default, with its types checked and its names looked up."""
        leaf = Leaf(at.key, at.path, field, Broken(), at.guards, at.origin if node is None else node, node is not None)

        def complain(problem: SyntaxProblem) -> None:
            self.wrong(leaf.place(problem.span), problem.message, problem.help, code=problem.code)

        try:
            spec = self.default(leaf) if node is None else self.read(leaf, node)
        except SyntaxProblem as problem:
            complain(problem)
            return leaf
        resolver = Resolver(self.index, leaf.path.rpartition(".")[0], False, complain)

        def settled(option: Spec) -> Spec:
            return resolver.option(fit(option, field, self.index.paths, complain), leaf)

        return replace(leaf, spec=each_option(spec, settled, resolver.truth))

    def default(self, leaf: Leaf) -> Spec:
        """The domain of a key that is not given."""
        if leaf.field.default is not None:
            return Literal(leaf.field.default) if leaf.field.kind == "text" else parse_value(leaf.field.default)
        if self.whole:
            self.wrong(leaf.place((0, 0)), f"`{leaf.path}` is missing",
                       f"add `{leaf.path.rpartition('.')[2]}:` with {describe(leaf.field)}", code="missing-key")
        return Broken()

    def read(self, leaf: Leaf, node: Node) -> Spec:
        """The domain that a leaf's node describes; Broken after a complaint. Raises SyntaxProblem."""
        if isinstance(node, Table):
            found = "an anchor of a mapping" if node.alias else "keys"
            self.wrong(node.here, f"`{leaf.path}`: expected {describe(leaf.field)}, found {found}")
        elif isinstance(node, Sequence):
            return self.list(node, leaf.field)
        elif isinstance(node, Text):
            return Literal(node.text) if leaf.field.kind == "text" else parse_value(node.text)
        return Broken()

    def list(self, node: Sequence, field: Field) -> Spec:
        """A YAML list: constants only, or such lists; of sizes by layer choices too."""
        items: list[Spec] = []
        for at, item in enumerate(node.items):
            if type(item) is Node:
                return Broken()  # already complained about
            try:
                spec = parse_value(item.text) if isinstance(item, Text) else Broken()
            except SyntaxProblem:
                spec = Broken()
            if isinstance(item, Sequence):
                spec = self.list(item, field)
            elif not isinstance(spec, Literal | Items) and (field.layers is None or isinstance(spec, Broken)):
                self.wrong(item.here, "a list holds constants only", "a list is always a value, never a choice")
            if isinstance(spec, Broken) or (field.layers is None and not isinstance(spec, Literal | Items)):
                return Broken()
            items.append(each_option(spec, partial(replace, span=(at, at + 1))))
        return list_of(items)


def offered(spec: Spec) -> set[str]:
    """The words among which ``spec`` chooses; empty where that is open (a computed value)."""
    words = {str(option.value) if isinstance(option, Literal) else None for option in options(spec)}
    return {word for word in words if word is not None} if None not in words else set()
