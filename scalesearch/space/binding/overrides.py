"""Applies ``--set key=value`` to a file's nodes: the same language, the same errors."""

from collections.abc import Mapping
from dataclasses import replace

from scalesearch.space.binding.binder import ONE_OF, Binder, Spot, offered
from scalesearch.space.binding.calls import spelled_out
from scalesearch.space.schema.bound_tree import Index, chooser_field, index_of
from scalesearch.space.schema.types import Field, Group
from scalesearch.space.syntax.choices import expressions
from scalesearch.space.syntax.diagnostics import Place, Problem, Source, SpaceErrors, closest, either
from scalesearch.space.syntax.domains import Spec
from scalesearch.space.syntax.nodes import Node, Table, Text, from_text, unfold
from scalesearch.space.syntax.yaml_reader import compose

TOP = ("space", "notes")


def override(document: Table, schema: Group, overrides: Mapping[str, str], problems: list[Problem],
             option: str = "--set") -> Table:
    """``document`` with every override in place; notes what is wrong with them, as of ``option``, in ``problems``."""
    index = index_of(schema)
    kinds_first = sorted(overrides.items(), key=lambda item: (item[0].count("."), item[0] not in index.groups))
    for path, value in kinds_first:
        node = _value(option, path, value, problems)
        path = index.spellings.get(path, path)
        if path in TOP:
            document = _put(document, path, node)
        elif not path or (path not in index.paths and path not in index.groups):
            problems.append(_unknown(index, _place(option, path, value), path))
        elif (problem := _not_offered(document, schema, path, _place(option, path, value))) is not None:
            problems.append(problem)
        else:
            document = _apply(document, schema, path.split("."), node)
    return _without(document, ("cost", "protocol", "vocab")) if "vocab" in overrides else document


def _place(option: str, path: str, value: str) -> Place:
    """Where the key ``path`` stands in what was given."""
    return from_text(option, f"{option} ", f"{path}={value}").at((0, len(path)))


def _value(option: str, path: str, value: str, problems: list[Problem]) -> Node:
    """The node of a value: YAML for a mapping in braces, else a text."""
    text = from_text(option, f"{option} {path}=", value)
    if not value.lstrip().startswith("{"):
        return text
    try:
        table, wrong = compose(Source(option, value, numbered=False))
    except SpaceErrors as errors:
        problems.extend(errors.problems)
        return Node(text.place)
    problems.extend(wrong)
    return table


def _not_offered(document: Table, schema: Group, path: str, place: Place) -> Problem | None:
    """The complaint about a key of variants of which the space offers none."""
    table, group, names = document, schema, path.split(".")
    for at, name in enumerate(names):
        child = group.fields.get(name)
        if isinstance(child, Group):
            table, group = _as_table(_unfolded(table).get(name), child, table), child
        elif child is None:
            owners = [own for own, inside in group.variants.items() if name == own or name in inside.fields]
            if set(owners) & set(_present(table, group)):
                return None  # a variant's own groups are not looked into: the binder does that
            parent = ".".join(names[:at])
            help = f"choose {either(owners)} first, for example with `--set {parent}={owners[0]}`"
            return Problem(place, f"no variant of `{parent}` that the space offers has `{name}`", help,
                           code="unknown-key")
    return None


def _unknown(index: Index, place: Place, path: str) -> Problem:
    """The complaint about a path that no schema knows."""
    known = [*index.paths, *(name for name in index.groups if name)]
    last = {name.rpartition(".")[2]: name for name in reversed(known)}
    meant = closest(path, known) or last.get(closest(path.rpartition(".")[2], last) or "")
    help = index.called(path) or (f"did you mean `{meant}`?" if meant else None)
    return Problem(place, f"unknown key `{path}`", help, code="unknown-key")


def _apply(table: Table, group: Group, rest: list[str], value: Node) -> Table:
    """``table``, the mapping of ``group``, with the key ``rest`` below it given anew."""
    table = _unfolded(table)
    name, below, child = rest[0], rest[1:], group.fields.get(rest[0])
    if child is None:
        return _in_variants(table, group, rest, value)
    if isinstance(child, Field):
        return _put(table, name, value)
    old = spelled_out(table.get(name), child, _unsaid)
    if isinstance(old, Text) and old.text and child.variants and not _names(child, old):
        return table  # not legal as it is: the binder will say so
    if below:
        return _put(table, name, _apply(_as_table(old, child, value), child, below, value))
    return _without_unused(_put(table, name, _variant(old, child, value)), group)


def _in_variants(table: Table, group: Group, rest: list[str], value: Node) -> Table:
    """``table`` with ``rest``, a variant or a key of variants, given anew wherever it is offered."""
    offers = _present(table, group)
    for name in offers:
        below = rest[1:] if rest[0] in group.variants else rest
        if name == rest[0] or (below is rest and rest[0] in group.variants[name].fields):
            inside = _as_table(offers[name], Group(), value)
            offers[name] = _apply(inside, group.variants[name], below, value) if below else value
    return _offer(table, group, offers, value)


def _without_unused(table: Table, group: Group) -> Table:
    """``table`` without the keys of a variant that is no longer offered beside them: they go as its others do."""
    if group.beside is None:
        return table
    node, kinds = table.get(group.beside.group), group.fields[group.beside.group]
    assert isinstance(kinds, Group)
    if isinstance(node, Table | Text) and group.beside.variant not in _present(_as_table(node, kinds, node), kinds):
        return replace(table, entries=tuple(entry for entry in table if entry[0].text not in group.beside.alone))
    return table


def _variant(old: Node | None, group: Group, value: Node) -> Node:
    """``ffn=geglu``: another variant; keys beside the variants stay, and so do same-named keys inside."""
    if not isinstance(value, Text) or not group.variants:
        return value
    names = _names(group, value)
    table = _as_table(old, group, value)
    present = _present(table, group)
    inside = [entry for node in present.values() if isinstance(node, Table) for entry in unfold(node, [])]
    kept = {key.text: (key, node) for key, node in reversed(inside)}  # of several variants, what the first says
    offers: dict[str, Node | None] = {}
    for name, inner in group.variants.items():
        if name in names:
            same = tuple(entry for key, entry in reversed(kept.items()) if key in inner.fields)
            offers[name] = present[name] if name in present else Table(value.place, same)
    if offers and not _depends(group, value):
        return _offer(replace(table, entries=tuple(_beside(table, group))), group, offers, value)
    said = {name: node for name, node in offers.items() if isinstance(node, Table) and node.entries}
    kinds = tuple((_key(name, value), node) for name, node in said.items())
    beside = (*kinds, *_beside(table, group))
    return replace(table, entries=((_key(ONE_OF, value), value), *beside)) if beside else value


def _names(group: Group, value: Text) -> set[str]:
    """The variants that the text ``value`` chooses among; all of them where it computes one."""
    spec = _chooser(group, value)
    return (offered(spec) or set(group.variants if _depends(group, value) else ())) & set(group.variants)


def _depends(group: Group, value: Text) -> bool:
    """True if the text ``value`` chooses by a condition, or computes a variant."""
    return any(True for _ in expressions(_chooser(group, value)))


def _chooser(group: Group, value: Text) -> Spec:
    return Binder(Index({}, {})).leaf(chooser_field(group), value, Spot("", "", value.place)).spec


def _beside(table: Table, group: Group) -> list[tuple[Text, Node]]:
    return [entry for entry in table if entry[0].text not in group.variants and entry[0].text != ONE_OF]


def _present(table: Table, group: Group) -> dict[str, Node | None]:
    """The variants that ``table`` offers, with what is inside; the default where it says nothing."""
    inner = table.get(ONE_OF)
    entries = unfold(inner if isinstance(inner, Table) else table, [])
    variants: dict[str, Node | None] = {key.text: node for key, node in entries if key.text in group.variants}
    if isinstance(inner, Text):
        names = _names(group, inner)
        return {name: variants.get(name) for name in group.variants if name in names}
    default = group.default_variant
    return variants or ({default: None} if default else {})


def _offer(table: Table, group: Group, offers: Mapping[str, Node | None], value: Node) -> Table:
    """``table`` with ``offers`` as its variants."""
    empty, chooser = Table(value.place, ()), table.get(ONE_OF)
    entries = tuple((_key(name, value), node if node is not None else empty) for name, node in offers.items())
    kept = tuple(_beside(table, group))
    if isinstance(chooser, Text) and _depends(group, chooser):  # its condition stays, and keys stand beside it
        return replace(table, entries=((_key(ONE_OF, value), chooser), *entries, *kept))
    return replace(table, entries=((_key(ONE_OF, value), Table(value.place, entries)), *kept))


def _without(table: Table, path: tuple[str, ...]) -> Table:
    """``table`` without the key ``path``: what is given anew stands elsewhere."""
    table, (name, *below) = _unfolded(table), path
    inner = table.get(name)
    if not below:
        return replace(table, entries=tuple(entry for entry in table if entry[0].text != name))
    return _put(table, name, _without(inner, tuple(below))) if isinstance(inner, Table) else table


def _as_table(node: Node | None, group: Group, value: Node) -> Table:
    """The mapping that ``node`` is or stands for."""
    node = spelled_out(node, group, _unsaid)
    if isinstance(node, Table):
        return node
    if isinstance(node, Text) and node.text and group.variants:
        if _depends(group, node):
            return Table(node.place, ((_key(ONE_OF, node), node),))
        names = _names(group, node)
        empty = Table(node.place, ())
        inside = tuple((_key(name, node), empty) for name in group.variants if name in names)
        return Table(node.place, ((_key(ONE_OF, node), Table(node.place, inside)),) if inside else ())
    return Table(value.place, ())


def _unsaid(*_: object, **__: object) -> None:
    """Nothing: what is wrong in the file the binder says."""


def _unfolded(table: Table) -> Table:
    """``table`` with dotted keys nested; duplicates stay and are reported when the file is bound."""
    problems: list[Problem] = []
    entries = tuple(unfold(table, problems))
    return table if problems else replace(table, entries=entries)


def _key(name: str, value: Node) -> Text:
    return Text(value.place, name)


def _put(table: Table, name: str, value: Node) -> Table:
    """``table`` with ``name`` given anew, in its old place."""
    if table.get(name) is None:
        return replace(table, entries=(*table.entries, (_key(name, value), value)))
    return replace(table, entries=tuple((key, value if key.text == name else old) for key, old in table))
