"""Matches a file's nodes with the schema's keys; reports missing and unknown ones."""

from collections.abc import Mapping
from dataclasses import replace

from scalesearch.space.schema.bound_tree import Branch, Guards, Index, Leaf, chooser_field, guards_of, join
from scalesearch.space.schema.type_check import describe, fit
from scalesearch.space.schema.types import Beside, Field, Group
from scalesearch.space.syntax.choices import Alternatives, Computed, Conditional
from scalesearch.space.syntax.diagnostics import Place, Problem, closest, either, suggest
from scalesearch.space.syntax.domains import Broken, Items, Literal, Spec
from scalesearch.space.syntax.dotted_keys import unfold
from scalesearch.space.syntax.lexer import NO_SPAN, SyntaxProblem
from scalesearch.space.syntax.nodes import Node, Sequence, Table, Text
from scalesearch.space.syntax.value_parser import parse_value

ONE_OF, NONE = "one of", "none"


class Binder:
    """Walks schema and file side by side and collects problems."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.extra_keys: tuple[str, ...] = ()  # legal at the top besides the schema's
        self.guesses = True  # False where keys of other groups are too many to guess which was meant
        self.whole = True  # False where part of the file could not be read: what is missing is then unknown
        self.problems: list[Problem] = []

    def wrong(self, place: Place, message: str, help: str | None = None, code: str = "bad-value") -> None:
        """Notes a problem."""
        self.problems.append(Problem(place, message, help, code=code))

    def group(
        self, group: Group, node: Node | None, key: str, path: str, guards: Guards, origin: Place
    ) -> Branch | None:
        """The branch for ``group``; ``None`` where it is optional and not given."""
        if node is None and group.optional:
            return None
        if group.optional and isinstance(node, Text) and node.text == "none" and "none" not in group.variants:
            return None
        if isinstance(node, Text) and node.text and group.variants:
            return self.shorthand(group, node, key, path, guards)
        entries = self.entries(group, node, path)
        chooser, inside = self.choice(group, entries, key, path, guards, origin)
        fields = self.fields(group, entries, key, path, guards, origin)
        variants = self.variants(group, inside, key, path, guards, origin)
        if group.beside is None:
            return Branch(key, path, chooser, fields, variants)
        self.unused(group.beside, entries, dict(fields)[group.beside.group], path)
        guard = (join(key, group.beside.group), group.beside.variant)
        return Branch(key, path, chooser, fields, variants, guard, group.beside.alone)

    def unused(
        self, beside: Beside, entries: Mapping[str, tuple[Text, Node]], chosen: Branch | Leaf, path: str
    ) -> None:
        """Complains about keys of a variant that is not offered."""
        assert isinstance(chosen, Branch)
        kinds = [name for name, _ in chosen.variants]
        for name in entries if beside.variant not in kinds else ():
            if name in beside.alone:
                self.wrong(entries[name][0].place, f"`{join(path, name)}` is a key of {beside.variant}, and "
                           f"`{chosen.path}` is {either(kinds)}",
                           f"leave it out, or offer {beside.variant} under `one of:`", code="unused-key")

    def shorthand(self, group: Group, node: Text, key: str, path: str, guards: Guards) -> Branch:
        """``ffn: relu | geglu``: one of these, each with its defaults."""
        chooser = self.leaf(chooser_field(group), node, key, path, guards, node.here)
        names = offered(chooser.spec) or set(group.variants)
        inside: dict[str, Node | None] = {name: None for name in group.variants if name in names}
        fields = self.fields(group, {}, key, path, guards, node.here)
        return Branch(key, path, chooser, fields, self.variants(group, inside, key, path, guards, node.here))

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
        owners = [variant for variant, inner in group.variants.items() if name.text in inner.fields]
        where = f"in `{path}`" if path else "here"
        if owners:
            help = f"it belongs to {either(owners)}: write `{owners[0]}: {{ {name.text}: … }}`"
        elif name.text in group.gone:
            help = group.gone[name.text]
        elif (there := self.index.called(name.text, path) or self.elsewhere(name.text, exact=True)) is not None:
            help = there
        elif (meant := closest(name.text, legal)) is not None:
            help = f"did you mean `{meant}`?"
        elif any(bracket in name.text for bracket in "()[]"):
            help = "inside { } and [ ], quote a value that contains a comma"
        else:
            help = (self.elsewhere(name.text) if self.guesses else None) or f"the keys {where} are {either(legal)}"
        self.wrong(name.place, f"unknown key `{name.text}`{f' {where}' if path else ''}", help, code="unknown-key")

    def elsewhere(self, name: str, exact: bool = False) -> str | None:
        """A key of another group that the name is, or may have meant."""
        last = {path.rpartition(".")[2]: path for path in reversed((*self.index.groups, *self.index.paths)) if path}
        if exact:
            if name in last and "." not in last[name]:
                return f"`{name}` is a key of the top level"
            return f"did you mean `{last[name]}`?" if name in last else None
        meant = closest(name, last) or closest(name, self.index.paths)
        return f"did you mean `{last.get(meant, meant)}`?" if meant else None

    def choice(
        self, group: Group, entries: Mapping[str, tuple[Text, Node]], key: str, path: str, guards: Guards, origin: Place
    ) -> tuple[Leaf | None, dict[str, Node | None]]:
        """The variants offered: under ``one of:``, by a single key, or by default."""
        if not group.variants:
            return None, {}
        inside = {name: node for name, (_, node) in entries.items() if name in group.variants}
        field = chooser_field(group)
        if ONE_OF in entries:
            node = entries[ONE_OF][1]
            if inside:
                here = entries[next(iter(inside))][0].place
                self.wrong(here, "this variant is beside `one of:`", "move it under `one of:`", code="bad-variants")
            if isinstance(node, Text) and node.text:
                leaf = self.leaf(field, node, key, path, guards, node.here)
                return leaf, dict.fromkeys(offered(leaf.spec) or group.variants)
            offers = self.one_of(group, entries[ONE_OF], path)
        elif len(inside) > 1:
            self.wrong(
                entries[list(inside)[1]][0].place, f"`{path}` has more than one variant", "list them under `one of:`",
                code="bad-variants"
            )
            offers = {**inside}
        elif inside:
            offers = {**inside}
        else:
            leaf = self.leaf(field, None, key, path, guards, origin)
            default: dict[str, Node | None] = dict.fromkeys(offered(leaf.spec))
            return leaf, default
        return Leaf(key, path, field, one_of(list(offers)), guards, origin), offers

    def one_of(self, group: Group, entry: tuple[Text, Node], path: str) -> dict[str, Node | None]:
        """The variants under ``one of:``."""
        _, node = entry
        if not isinstance(node, Table) or not node.entries:
            if type(node) is not Node:
                example = " | ".join(list(group.variants)[:2])
                self.wrong(
                    node.here,
                    "`one of:` takes a mapping of variants",
                    f"without keys of their own: `{path}: {example}`",
                    code="bad-variants",
                )
            return dict.fromkeys(list(group.variants)[:1])
        offers: dict[str, Node | None] = {}
        for variant, value in unfold(node, self.problems):
            if variant.text in group.variants:
                offers[variant.text] = value
            else:
                legal = list(group.variants)
                self.wrong(variant.place, f"`{path}` has no variant `{variant.text}`", suggest(variant.text, legal),
                           code="unknown-variant")
        return offers or dict.fromkeys(list(group.variants)[:1])

    def variants(
        self, group: Group, inside: Mapping[str, Node | None], key: str, path: str, guards: Guards, origin: Place
    ) -> tuple[tuple[str, Branch], ...]:
        """The branches of the variants that are offered, in the order of the schema."""
        branches = []
        for name, variant in group.variants.items():
            if name in inside:
                within = (*guards, (key, name))
                branch = self.group(
                    replace(variant, optional=False), inside[name], key, join(path, name), within, origin
                )
                assert branch is not None
                branches.append((name, branch))
        return tuple(branches)

    def fields(
        self, group: Group, entries: Mapping[str, tuple[Text, Node]], key: str, path: str, guards: Guards, origin: Place
    ) -> tuple[tuple[str, Branch | Leaf], ...]:
        """The branches and leaves of a group, in the order of the schema."""
        children: list[tuple[str, Branch | Leaf]] = []
        for name, child in group.fields.items():
            place, node = (entries[name][0].place, entries[name][1]) if name in entries else (origin, None)
            inner_key, inner_path = join(key, name), join(path, name)
            mine = (*guards, *guards_of(group, name, key))
            if isinstance(child, Field):
                children.append((name, self.leaf(child, node, inner_key, inner_path, mine, place)))
            elif (branch := self.group(child, node, inner_key, inner_path, mine, place)) is not None:
                children.append((name, branch))
        return tuple(children)

    def leaf(self, field: Field, node: Node | None, key: str, path: str, guards: Guards, origin: Place) -> Leaf:
        """The leaf for ``field``: what is given, or the default."""
        if node is None:
            return self.default(field, key, path, guards, origin)
        leaf = Leaf(key, path, field, Broken(), guards, node)
        return replace(leaf, spec=fit(self.read(leaf, node), field, self.index.paths, lambda p: self.complain(leaf, p)))

    def default(self, field: Field, key: str, path: str, guards: Guards, origin: Place) -> Leaf:
        """The leaf of a key that is not given."""
        leaf = Leaf(key, path, field, Broken(), guards, origin, given=False)
        if field.default is None:
            if not self.whole:
                return leaf
            self.wrong(origin, f"`{path}` is missing", f"add `{path.rpartition('.')[2]}:` with {describe(field)}",
                       code="missing-key")
            return leaf
        spec = Literal(field.default) if field.kind == "text" else parse_value(field.default)
        return replace(leaf, spec=fit(spec, field, self.index.paths, lambda p: self.complain(leaf, p)))

    def complain(self, leaf: Leaf, problem: SyntaxProblem) -> None:
        """Notes a problem inside the text of ``leaf``."""
        self.wrong(leaf.place(problem.span), problem.message, problem.help, code=problem.code)

    def read(self, leaf: Leaf, node: Node) -> Spec:
        """The domain that a leaf's text describes; Broken after a complaint."""
        if isinstance(node, Table):
            kind = "an anchor of a mapping" if node.alias else "keys"
            self.wrong(node.here, f"`{leaf.path}`: expected {describe(leaf.field)}, found {kind}")
        elif isinstance(node, Sequence):
            return self.list(leaf, node)
        elif isinstance(node, Text):
            if leaf.field.kind == "text":
                return Literal(node.text)
            try:
                return parse_value(node.text)
            except SyntaxProblem as problem:
                self.complain(leaf, problem)
        return Broken()

    def list(self, leaf: Leaf, node: Sequence) -> Spec:
        """A YAML list: constants only."""
        values = []
        for item in node.items:
            if type(item) is Node:
                return Broken()  # already complained about
            try:
                spec = parse_value(item.text) if isinstance(item, Text) else Broken()
            except SyntaxProblem:
                spec = Broken()
            if not isinstance(spec, Literal):
                self.wrong(item.here, "a list holds constants only", "a list is always a value, never a choice")
                return Broken()
            values.append(spec.value)
        spec = Items(tuple(values), tuple((at, at + 1) for at in range(len(values))))

        def complain(problem: SyntaxProblem) -> None:  # its span is that of an item, or empty for the whole list
            at, end = problem.span
            self.wrong((node.items[at] if end else node).here, problem.message, problem.help, code=problem.code)

        return fit(spec, leaf.field, self.index.paths, complain)


def one_of(names: list[str]) -> Spec:
    """The choice between variants."""
    literals = tuple(Literal(name) for name in names)
    return literals[0] if len(literals) == 1 else Alternatives(literals, span=NO_SPAN)


def offered(spec: Spec) -> set[str]:
    """The words among which ``spec`` chooses; empty where that is open (a computed value)."""
    match spec:
        case Literal(value):
            return {str(value)}
        case Alternatives(options):
            words = [offered(option) for option in options]
            return set().union(*words) if all(words) else set()
        case Conditional(then, _, other):
            left, right = offered(then), offered(other)
            return left | right if left and right else set()
        case Computed():
            return set()
    return set()
