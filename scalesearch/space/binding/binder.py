"""Matches a file's nodes with the schema's keys; reports missing and unknown ones."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from scalesearch.blocks.core import join_path
from scalesearch.space.binding.call_syntax import expand_calls
from scalesearch.space.binding.name_resolution import NameResolver
from scalesearch.space.binding.unknown_keys import suggest_key
from scalesearch.space.schema.bound_tree import GroupNode, Guards, ParameterNode, SchemaIndex, guards_of, variant_field
from scalesearch.space.schema.type_check import check_domain, describe_field
from scalesearch.space.schema.types import InlinedVariant, SchemaField, SchemaGroup
from scalesearch.space.syntax.composite_domains import AlternativesDomain, iter_options, map_options
from scalesearch.space.syntax.diagnostics import (
    MAX_PROBLEMS_SHOWN,
    Problem,
    SourcePosition,
    format_alternatives,
    suggest_match,
    warn_deprecated,
)
from scalesearch.space.syntax.domains import ConstantDomain, Domain, InvalidDomain, ListDomain
from scalesearch.space.syntax.lexer import ValueSyntaxError
from scalesearch.space.syntax.nodes import MappingNode, Node, ScalarNode, SequenceNode, unfold_dotted_keys
from scalesearch.space.syntax.value_parser import list_domain, parse_value

ONE_OF_KEY = "one of"
NONE_TEXT = "none"
Entries = Mapping[str, tuple[ScalarNode, Node]]
VariantNodes = dict[str, Node | None]  # variants, with what is inside


@dataclass(frozen=True)
class KeyContext:
    """A key of the schema as a file reaches it; ``origin`` is shown where the file says nothing of it."""

    key: str
    path: str
    origin: SourcePosition
    guards: Guards = ()

    def child(self, name: str, origin: SourcePosition, guards: Guards) -> "KeyContext":
        """A field of the group that is here."""
        return KeyContext(join_path(self.key, name), join_path(self.path, name), origin,
                          (*self.guards, *guards))

    def variant(self, name: str) -> "KeyContext":
        """A variant of the group that is here."""
        return replace(self, path=join_path(self.path, name),
                       guards=(*self.guards, (self.key, name)))


class Binder:
    """Walks schema and file side by side and collects problems.

    Attributes:
        extra_keys: legal at the top besides the schema's.
        guesses: False where keys of other groups are too many to guess which was meant.
        whole: False where part of the file could not be read: what is missing is then unknown.
    """

    extra_keys: tuple[str, ...] = ()
    suggests_other_groups = is_complete = True

    def __init__(self, index: SchemaIndex) -> None:
        self.index = index
        self.problems: list[Problem] = []

    def report_problem(self, place: SourcePosition, message: str, help: str | None = None,
                       code: str = "bad-value") -> None:
        """Notes a problem."""
        self.problems.append(Problem(place, message, help, code=code))

    def bind_group(self, group: SchemaGroup, node: Node | None,
                   context: KeyContext) -> GroupNode | None:
        """The branch for ``group``; ``None`` where it is optional and not given."""
        none = isinstance(node,
                          ScalarNode) and node.text == NONE_TEXT and NONE_TEXT not in group.variants
        if group.optional and (node is None or none):
            return None
        chooser: ParameterNode | None = None
        offers = dict[str, Node | None]()
        entries = dict[str, tuple[ScalarNode, Node]]()
        node = expand_calls(node, group, self.report_problem)
        if isinstance(node, ScalarNode) and node.text and group.variants:  # `ffn: relu | geglu`
            context = replace(context, origin=node.display_position)
            chooser, offers = self.bind_variant_text(group, node, context)
        else:
            entries = self.known_entries(group, node, context.path)
            if group.variants:
                chooser, offers = self.bind_variants(group, entries, context)
        fields = self.bind_fields(group, entries, context)
        variants = []
        for name, variant in group.variants.items():
            if name in offers and (inner := self.bind_group(variant, offers[name],
                                                            context.variant(name))) is not None:
                variants.append((name, inner))
        if group.inlined_variant:
            self.report_unused_keys(group.inlined_variant, entries,
                                    dict(fields)[group.inlined_variant.group], context.path)
        return GroupNode(context.key, context.path, chooser, fields, tuple(variants))

    def report_unused_keys(self, beside: InlinedVariant, entries: Entries,
                           chosen: GroupNode | ParameterNode, path: str) -> None:
        """Complains about keys of a variant that is not offered."""
        assert isinstance(chosen, GroupNode)
        kinds = [name for name, _ in chosen.variants]
        for name in entries if beside.variant not in kinds else ():
            if name in beside.exclusive_keys:
                self.report_problem(entries[name][0].position,
                                    f"`{join_path(path, name)}` is a key of {beside.variant}, and "
                                    f"`{chosen.path}` is {format_alternatives(kinds)}",
                                    f"leave it out, or offer {beside.variant} under `one of:`",
                                    code="unused-key")

    def known_entries(self, group: SchemaGroup, node: Node | None, path: str) -> dict[
            str, tuple[ScalarNode, Node]]:
        """The keys of a mapping that the schema knows; complains about the others."""
        if node is None or (isinstance(node, ScalarNode)
                            and (not node.text
                                 or (group.none_means_defaults and node.text == NONE_TEXT))):
            return {}
        if not isinstance(node, MappingNode):
            if type(node) is not Node:
                names = [*group.fields, *group.variants,
                         *([NONE_TEXT] if group.none_means_defaults else [])]
                self.report_problem(
                    node.display_position, f"`{path}` is a group of keys, not a value",
                    f"its keys are {format_alternatives(names)}", code="group-not-value")
            return {}
        entries: dict[str, tuple[ScalarNode, Node]] = {}
        for name, value in unfold_dotted_keys(rename_deprecated_keys(node, group), self.problems):
            if name.text in group.fields or name.text in group.variants or (
                    name.text == ONE_OF_KEY and group.variants):
                entries[name.text] = (name, value)
            else:
                self.report_unknown_key(name, group, path)
        return entries

    def report_unknown_key(self, name: ScalarNode, group: SchemaGroup, path: str) -> None:
        """Complains about a key that the schema does not know here."""
        legal = [*group.fields, *group.variants, *(() if path else self.extra_keys)]
        where = f" in `{path}`" if path else ""
        help = (suggest_key(name.text, group, path, legal, self.index, self.suggests_other_groups)
                # a guess takes milliseconds, and nobody would see it
                if len(self.problems) <= MAX_PROBLEMS_SHOWN else None)
        self.report_problem(name.position, f"unknown key `{name.text}`{where}", help,
                            code="unknown-key")

    def bind_variant_text(self, group: SchemaGroup, node: Node | None,
                          context: KeyContext) -> tuple[ParameterNode, VariantNodes]:
        """The choice that a text (or the default) makes, and the variants that it may come to."""
        leaf = self.bind_parameter(variant_field(group), node, context)
        return leaf, dict.fromkeys(offered_variants(leaf.domain)
                                   or (group.variants if node is not None else ()))

    def bind_variants(self, group: SchemaGroup, entries: Entries,
                      context: KeyContext) -> tuple[ParameterNode, VariantNodes]:
        """The variants offered: under ``one of:``, by a single key, or by default."""
        offers: VariantNodes = {name: node
                                for name, (_, node) in entries.items() if name in group.variants}
        if ONE_OF_KEY in entries:
            node = entries[ONE_OF_KEY][1]
            text = isinstance(node, ScalarNode) and node.text
            leaf, chosen = (
                self.bind_variant_text(group, node, replace(context, origin=node.display_position))
                if text else (None, offers))
            # they are no mapping's keys
            if leaf and leaf.domain.constants is None and not isinstance(
                    leaf.domain, InvalidDomain):
                return leaf, self.add_variant_keys(offers, entries, chosen, context.path)
            if offers:
                self.report_problem(entries[next(iter(offers))][0].position,
                                    "this variant is beside `one of:`", "move it under `one of:`",
                                    code="bad-variants")
            if leaf:
                return leaf, chosen
            offers = self.read_one_of(group, node, context.path)
        elif len(offers) > 1:
            self.report_problem(entries[list(offers)[1]][0].position,
                                f"`{context.path}` has more than one variant",
                                "list them under `one of:`", code="bad-variants")
        elif not offers:
            return self.bind_variant_text(group, None, context)
        names = tuple(map(ConstantDomain, offers))
        spec = names[0] if len(names) == 1 else AlternativesDomain(names)
        return ParameterNode(context.key, context.path, variant_field(group), spec, context.guards,
                             context.origin), offers

    def add_variant_keys(self, given: VariantNodes, entries: Entries, offers: VariantNodes,
                         path: str) -> VariantNodes:
        """``offers`` of a condition under ``one of:``, with the keys that are ``given`` to them beside it."""
        for name in given:
            if name not in offers:
                self.report_problem(entries[name][0].position,
                                    f"`{path}` does not offer `{name}` under `one of:`",
                                    "leave it out, or offer it", code="unused-key")
        return {name: given.get(name) for name in offers}

    def read_one_of(self, group: SchemaGroup, node: Node, path: str) -> VariantNodes:
        """The variants under ``one of:``."""
        offers: VariantNodes = {}
        if isinstance(node, MappingNode) and node.entries:
            for variant, value in unfold_dotted_keys(node, self.problems):
                if variant.text in group.variants:
                    offers[variant.text] = value
                else:
                    help = group.unsupported.get(variant.text) or suggest_match(
                        variant.text, group.variants)
                    self.report_problem(variant.position,
                                        f"`{path}` has no variant `{variant.text}`", help,
                                        code="unknown-variant")
        elif type(node) is not Node:
            example = f"without keys of their own: `{path}: {' | '.join(list(group.variants)[:2])}`"
            self.report_problem(node.display_position, "`one of:` takes a mapping of variants",
                                example, code="bad-variants")
        return offers or dict.fromkeys(list(group.variants)[:1])

    def bind_fields(self, group: SchemaGroup, entries: Entries,
                    context: KeyContext) -> tuple[tuple[str, GroupNode | ParameterNode], ...]:
        """The branches and leaves of a group, in the order of the schema."""
        children: list[tuple[str, GroupNode | ParameterNode]] = []
        for name, child in group.fields.items():
            place, node = (entries[name][0].position,
                           entries[name][1]) if name in entries else (context.origin, None)
            inner = context.child(name, place, guards_of(group, name, context.key))
            if isinstance(child, SchemaField):
                if node is not None or not child.optional:
                    children.append((name, self.bind_parameter(child, node, inner)))
            elif (branch := self.bind_group(child, node, inner)) is not None:
                children.append((name, branch))
        return tuple(children)

    def bind_parameter(self, field: SchemaField, node: Node | None,
                       context: KeyContext) -> ParameterNode:
        """The leaf for ``field``, of what is given or the default, with its types checked and its names looked up."""
        leaf = ParameterNode(context.key, context.path, field, InvalidDomain(), context.guards,
                             context.origin if node is None else node, node is not None)

        def complain(problem: ValueSyntaxError) -> None:
            self.report_problem(leaf.position_of(problem.span), problem.message, problem.help,
                                code=problem.code)

        try:
            spec = self.default_domain(leaf) if node is None else self.read_domain(leaf, node)
        except ValueSyntaxError as problem:
            complain(problem)
            return leaf
        resolver = NameResolver(self.index, leaf.path.rpartition(".")[0], False, complain)

        def settled(option: Domain) -> Domain:
            return resolver.resolve_option(
                check_domain(option, field, self.index.entries, complain), leaf)

        return replace(leaf, domain=map_options(spec, settled, resolver.resolve_condition))

    def default_domain(self, leaf: ParameterNode) -> Domain:
        """The domain of a key that is not given."""
        if leaf.field.default is not None:
            return ConstantDomain(leaf.field.default) if leaf.field.type == "text" else parse_value(
                leaf.field.default)
        if self.is_complete:
            self.report_problem(leaf.position_of((0, 0)), f"`{leaf.path}` is missing",
                                f"add `{leaf.path.rpartition('.')[2]}:` with "
                                f"{describe_field(leaf.field)}", code="missing-key")
        return InvalidDomain()

    def read_domain(self, leaf: ParameterNode, node: Node) -> Domain:
        """The domain that a leaf's node describes; Broken after a complaint.

        Raises SyntaxProblem.
        """
        if isinstance(node, MappingNode):
            found = "an anchor of a mapping" if node.alias else "keys"
            self.report_problem(node.display_position,
                                f"`{leaf.path}`: expected {describe_field(leaf.field)}, found "
                                f"{found}")
        elif isinstance(node, SequenceNode):
            return self.read_list(node, leaf.field)
        elif isinstance(node, ScalarNode):
            return ConstantDomain(node.text) if leaf.field.type == "text" else parse_value(
                node.text)
        return InvalidDomain()

    def read_list(self, node: SequenceNode, field: SchemaField) -> Domain:
        """A YAML list: constants only, or such lists; of sizes by layer choices too."""
        items: list[Domain] = []
        for at, item in enumerate(node.items):
            if type(item) is Node:
                return InvalidDomain()  # already complained about
            try:
                spec = parse_value(item.text) if isinstance(item, ScalarNode) else InvalidDomain()
            except ValueSyntaxError:
                spec = InvalidDomain()
            if isinstance(item, SequenceNode):
                spec = self.read_list(item, field)
            elif not isinstance(spec, ConstantDomain | ListDomain) and (
                    field.layer_depth_key is None or isinstance(spec, InvalidDomain)):
                self.report_problem(item.display_position, "a list holds constants only",
                                    "a list is always a value, never a choice")
            if isinstance(spec,
                          InvalidDomain) or (field.layer_depth_key is None
                                             and not isinstance(spec, ConstantDomain | ListDomain)):
                return InvalidDomain()
            items.append(map_options(spec, partial(replace, span=(at, at + 1))))
        return list_domain(items)


def offered_variants(spec: Domain) -> set[str]:
    """The words among which ``spec`` chooses; empty where that is open (a computed value)."""
    words = {str(option.value) if isinstance(option, ConstantDomain) else None
             for option in iter_options(spec)}
    return {word for word in words if word is not None} if None not in words else set()


def rename_deprecated_keys(table: MappingNode, group: SchemaGroup) -> MappingNode:
    """``table`` with the present names of its keys; prints a warning for each deprecated one."""
    entries = []
    for key, value in table:
        head, dot, rest = key.text.partition(".")
        name = group.current_name(head)
        if name != head:
            warn_deprecated(key.position, f"the key `{head}` is now `{name}`")
            positions = (key.char_positions[:1] * len(name) + key.char_positions[len(head):]
                         if key.char_positions else key.char_positions)
            key = replace(key, text=name + dot + rest, char_positions=positions)
        entries.append((key, value))
    return replace(table, entries=tuple(entries))
