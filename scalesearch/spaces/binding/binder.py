"""Match a file's nodes with the keys of the schema.

Missing, unknown and invalid keys are reported.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from scalesearch.blocks.core import join_path
from scalesearch.spaces.binding.name_resolution import NameResolver
from scalesearch.spaces.binding.unknown_keys import suggest_key, unknown_block_help
from scalesearch.spaces.parameters.constraints import Constraint
from scalesearch.spaces.schema.bound_tree import (
    GroupNode,
    Guards,
    ParameterNode,
    SchemaIndex,
    guards_of,
    variant_field,
)
from scalesearch.spaces.schema.cost_names import DEPRECATED_COST_NAMES
from scalesearch.spaces.schema.type_check import (
    ReportError,
    check_domain,
    describe_field,
    equivalent_of_mapping,
)
from scalesearch.spaces.schema.types import InlinedVariant, SchemaField, SchemaGroup
from scalesearch.spaces.syntax.diagnostics import (
    MAX_PROBLEMS_SHOWN,
    Problem,
    SourcePosition,
    closest_match,
    format_alternatives,
    suggest_match,
    warn_deprecated,
)
from scalesearch.spaces.syntax.domains import (
    AlternativesDomain,
    CallDomain,
    ConstantDomain,
    Domain,
    InvalidDomain,
    ListDomain,
    iter_options,
    map_options,
)
from scalesearch.spaces.syntax.lexer import Span, ValueSyntaxError
from scalesearch.spaces.syntax.nodes import (
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    unfold_dotted_keys,
)
from scalesearch.spaces.syntax.parser import list_domain, parse_expression, parse_value

ONE_OF_KEY = "one of"
NONE_TEXT = "none"
REQUIRED_KEY_SIMILARITY = 0.75  # ratio of difflib from which a key is a required one, misspelled
Entries = Mapping[str, tuple[ScalarNode, Node]]
VariantNodes = dict[str, Node | None]  # variant to the node of its keys


@dataclass(frozen=True)
class KeyContext:
    """A key of the schema and its place in a file.

    Attributes:
        key: dotted name without variants.
        path: dotted name with variants.
        origin: the position that errors show if the file does not set the key.
        guards: the variants under which the key exists.
    """

    key: str
    path: str
    origin: SourcePosition
    guards: Guards = ()

    def child(self, name: str, origin: SourcePosition, guards: Guards) -> "KeyContext":
        """The context of a field of this group."""
        return KeyContext(join_path(self.key, name), join_path(self.path, name), origin,
                          (*self.guards, *guards))

    def variant(self, name: str) -> "KeyContext":
        """The context of a variant of this group."""
        return replace(self, path=join_path(self.path, name),
                       guards=(*self.guards, (self.key, name)))


class Binder:
    """Walks schema and file in parallel and collects problems.

    Attributes:
        extra_keys: legal keys at the top level in addition to the schema's.
        is_complete: False if part of the file could not be read; missing keys are not reported.
    """

    extra_keys: tuple[str, ...] = ()
    is_complete = True

    def __init__(self, index: SchemaIndex) -> None:
        self.index = index
        self.problems: list[Problem] = []

    def report_problem(self, position: SourcePosition, message: str, help: str | None = None,
                       code: str = "bad-value") -> None:
        """Record a problem."""
        self.problems.append(Problem(position, message, help, code=code))

    def error_reporter(self, position_of: Callable[[Span], SourcePosition]) -> ReportError:
        """A function that records errors of a text as problems.

        Args:
            position_of: the position of some characters of the text.
        """
        def report_error(error: ValueSyntaxError) -> None:
            self.report_problem(position_of(error.span), error.message, error.help, code=error.code)

        return report_error

    def bind_constraint(self, node: ScalarNode,
                        budgets: Mapping[str, Constraint] | None = None) -> Constraint | None:
        """The constraint of a text; ``None`` after a reported problem.

        Args:
            budgets: constraints that the text may refer to by their names.
        """
        for old, new in DEPRECATED_COST_NAMES.items():
            if old in node.text:
                warn_deprecated(node.position, f"the cost `{old}` is now `{new}`")
                node = replace(node, text=node.text.replace(old, new))  # of the same length
        n_problems = len(self.problems)
        report_error = self.error_reporter(node.position_of)
        try:
            conditions = {name: budget.expression for name, budget in (budgets or {}).items()}
            resolver = NameResolver(self.index, "", True, report_error, budgets=conditions)
            expression = resolver.resolve_condition(parse_expression(node.text))
        except ValueSyntaxError as error:
            report_error(error)
        return (Constraint(expression, node.position_of((0, len(node.text))))
                if len(self.problems) == n_problems else None)

    def bind_group(self, group: SchemaGroup, node: Node | None,
                   context: KeyContext) -> GroupNode | None:
        """The node of ``group``; ``None`` if it is optional and not set."""
        is_none = (isinstance(node, ScalarNode) and node.text == NONE_TEXT
                   and NONE_TEXT not in group.variants)
        if group.optional and (node is None or is_none):
            return None
        variant_node: ParameterNode | None = None
        offered: VariantNodes = {}
        entries = dict[str, tuple[ScalarNode, Node]]()
        node = expand_calls(node, group, self.report_problem)
        if isinstance(node, ScalarNode) and node.text and group.variants:  # `ffn: relu | geglu`
            context = replace(context, origin=node.display_position)
            variant_node, offered = self.bind_variant_text(group, node, context)
        else:
            entries = self.known_entries(group, node, context.path)
            if group.variants:
                variant_node, offered = self.bind_variants(group, entries, context)
        fields = self.bind_fields(group, entries, context)
        variants = []
        for name, variant in group.variants.items():
            if name in offered:
                group_node = self.bind_group(variant, offered[name], context.variant(name))
                if group_node is not None:
                    variants.append((name, group_node))
        if group.inlined_variant:
            self.report_unused_keys(group.inlined_variant, entries,
                                    dict(fields)[group.inlined_variant.group], context.path)
        return GroupNode(context.key, context.path, variant_node, fields, tuple(variants))

    def report_unused_keys(self, inlined: InlinedVariant, entries: Entries,
                           group_node: GroupNode | ParameterNode, path: str) -> None:
        """Report keys of an inlined variant that ``group_node`` does not have."""
        assert isinstance(group_node, GroupNode)
        variants = [name for name, _ in group_node.variants]
        if inlined.variant in variants:
            return
        for name in entries:
            if name in inlined.exclusive_keys:
                self.report_problem(entries[name][0].position,
                                    f"`{join_path(path, name)}` is a key of {inlined.variant}, and "
                                    f"`{group_node.path}` is {format_alternatives(variants)}",
                                    f"remove it, or add {inlined.variant} under `one of:`",
                                    code="unused-key")

    def known_entries(self, group: SchemaGroup, node: Node | None, path: str) -> dict[
            str, tuple[ScalarNode, Node]]:
        """The entries of a mapping that are keys of ``group``; reports the others."""
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
                    f"its keys are {format_alternatives(names)}" if names else
                    "it has no keys of its own: write `{}`", code="group-not-value")
            return {}
        node = rename_deprecated_keys(node, group)
        if group.spellings:
            node = replace(node, entries=tuple(
                (replace(name, text=group.spellings.get(name.text, name.text)), value)
                for name, value in unfold_dotted_keys(node, self.problems)))
        if inlined := group.inlined_variant:  # write its keys at the level of the group
            own_entries: list[tuple[ScalarNode, Node]] = []
            moved: list[tuple[ScalarNode, Node]] = []
            for name, value in unfold_dotted_keys(node, self.problems):
                if name.text == inlined.group:
                    value, inner = self.split_inlined_keys(value, inlined)
                    moved += inner
                own_entries.append((name, value))
            node = replace(node, entries=(*own_entries, *moved))
        entries: dict[str, tuple[ScalarNode, Node]] = {}
        required = {key: field for key, field in group.fields.items() if isinstance(
            field, SchemaField) and field.default is None and not field.optional}
        misspelled: dict[str, tuple[ScalarNode, Node]] = {}  # not reported as missing as well
        for name, value in unfold_dotted_keys(node, self.problems):
            if name.text in group.fields or name.text in group.variants or (
                    name.text == ONE_OF_KEY and group.variants):
                entries[name.text] = (name, value)
            else:
                legal = [*group.fields, *group.variants, *(() if path else self.extra_keys)]
                where = f" in `{path}`" if path else ""
                help = (suggest_key(name.text, group, path, legal, self.index)
                        # a suggestion takes milliseconds and would not be shown
                        if len(self.problems) <= MAX_PROBLEMS_SHOWN else None)
                self.report_problem(name.position, f"unknown key `{name.text}`{where}", help,
                                    code="unknown-key")
                misspelled |= {key: (name, value) for key, field in required.items()
                               if name.text in field.synonyms
                               or closest_match(name.text, [key], REQUIRED_KEY_SIMILARITY)}
        return misspelled | entries

    def split_inlined_keys(self, node: Node, inlined: InlinedVariant) -> tuple[Node, Sequence[
            tuple[ScalarNode, Node]]]:
        """The group of the inlined variant without the inlined keys, and these keys."""
        if not isinstance(node, MappingNode):
            return node, ()
        entries = []
        moved: list[tuple[ScalarNode, Node]] = []
        for name, child in unfold_dotted_keys(node, self.problems):
            if name.text == ONE_OF_KEY:
                child, inner = self.split_inlined_keys(child, inlined)
                moved += inner
            elif name.text == inlined.variant and isinstance(child, MappingNode):
                keys = unfold_dotted_keys(child, self.problems)
                moved += [entry for entry in keys if entry[0].text in inlined.inlined_keys]
                child = replace(child, entries=tuple(
                    entry for entry in keys if entry[0].text not in inlined.inlined_keys))
            entries.append((name, child))
        return replace(node, entries=tuple(entries)), moved

    def bind_variant_text(self, group: SchemaGroup, node: Node | None,
                          context: KeyContext) -> tuple[ParameterNode, VariantNodes]:
        """The variant parameter of a text (or of the default), and its possible variants."""
        field = replace(variant_field(group), unknown_word_help=unknown_block_help(context.path))
        variant_node = self.bind_parameter(field, node, context)
        options = list(iter_options(variant_node.domain))
        names = {str(option.value) for option in options if isinstance(option, ConstantDomain)}
        if not all(isinstance(option, ConstantDomain) for option in options):
            # a computed value may be any variant
            names = set(group.variants) if node is not None else set()
        return variant_node, dict.fromkeys(names)

    def bind_variants(self, group: SchemaGroup, entries: Entries,
                      context: KeyContext) -> tuple[ParameterNode, VariantNodes]:
        """The offered variants: under ``one of:``, by a single key, or by default."""
        offers: VariantNodes = {name: node
                                for name, (_, node) in entries.items() if name in group.variants}
        if ONE_OF_KEY in entries:
            node = entries[ONE_OF_KEY][1]
            variant_node = None
            if isinstance(node, ScalarNode) and node.text:
                variant_node, chosen = self.bind_variant_text(
                    group, node, replace(context, origin=node.display_position))
                # A condition has variants, but not as keys of the mapping under `one of:`.
                is_conditional = (variant_node.domain.constants is None
                                  and not isinstance(variant_node.domain, InvalidDomain))
                if is_conditional:
                    for name in offers:
                        if name not in chosen:
                            self.report_problem(
                                entries[name][0].position,
                                f"`{context.path}` does not offer `{name}` under `one of:`",
                                "remove it, or add it there", code="unused-key")
                    return variant_node, {name: offers.get(name) for name in chosen}
            if offers:
                self.report_problem(entries[next(iter(offers))][0].position,
                                    "this variant is next to `one of:`", "move it under `one of:`",
                                    code="bad-variants")
            if variant_node:
                return variant_node, chosen
            offers = self.read_one_of(group, node, context.path)
        elif len(offers) > 1:
            self.report_problem(entries[list(offers)[1]][0].position,
                                f"`{context.path}` has more than one variant",
                                "list them under `one of:`", code="bad-variants")
        elif not offers:
            return self.bind_variant_text(group, None, context)
        variant_node = ParameterNode(context.key, context.path, variant_field(group),
                                     variants_domain(offers), context.guards, context.origin)
        return variant_node, offers

    def read_one_of(self, group: SchemaGroup, node: Node, path: str) -> VariantNodes:
        """The variants under ``one of:``."""
        offers: VariantNodes = {}
        if isinstance(node, MappingNode) and node.entries:
            for variant, value in unfold_dotted_keys(node, self.problems):
                if variant.text in group.variants:
                    offers[variant.text] = value
                else:
                    help = group.unsupported.get(variant.text) or suggest_match(
                        variant.text, group.variants, unknown_block_help(path))
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
        """The nodes of the fields of a group, in the order of the schema."""
        children: list[tuple[str, GroupNode | ParameterNode]] = []
        for name, child in group.fields.items():
            key, node = entries.get(name, (None, None))
            position = context.origin if key is None else key.position
            child_context = context.child(name, position, guards_of(group, name, context.key))
            if isinstance(child, SchemaField):
                if node is not None or not child.optional:
                    children.append((name, self.bind_parameter(child, node, child_context)))
            else:
                group_node = self.bind_group(child, node, child_context)
                if group_node is not None:
                    children.append((name, group_node))
        return tuple(children)

    def bind_parameter(self, field: SchemaField, node: Node | None,
                       context: KeyContext) -> ParameterNode:
        """The node of ``field`` from ``node`` or the default.

        Types are checked, and names are resolved.
        """
        parameter = ParameterNode(context.key, context.path, field, InvalidDomain(), context.guards,
                                  context.origin if node is None else node, node is not None)

        report_error = self.error_reporter(parameter.position_of)
        try:
            domain = self.read_domain(parameter, node)
        except ValueSyntaxError as problem:
            report_error(problem)
            return parameter
        resolver = NameResolver(self.index, parameter.path.rpartition(".")[0], False, report_error,
                                parameter.key)

        def check_option(option: Domain) -> Domain:
            checked = check_domain(option, field, self.index.entries, report_error)
            return resolver.resolve_option(checked, parameter)

        domain = map_options(domain, check_option, resolver.resolve_condition)
        return replace(parameter, domain=domain)

    def read_domain(self, parameter: ParameterNode, node: Node | None) -> Domain:
        """The domain of ``node``, or of the default; InvalidDomain after a reported problem.

        Raises:
            ValueSyntaxError: the text is not a value of the language.
        """
        field = parameter.field
        text = field.default if node is None else None
        if isinstance(node, ScalarNode):
            text = node.text
        if text is not None:
            return ConstantDomain(text) if field.type == "text" else parse_value(text)
        if isinstance(node, SequenceNode):
            return self.read_list(node, field)
        if isinstance(node, MappingNode):
            description = "an anchor of a mapping" if node.alias else "keys"
            form = equivalent_of_mapping({
                name.text: [item.text for item in value.items if isinstance(item, ScalarNode)]
                if isinstance(value, SequenceNode) else getattr(value, "text", "")
                for name, value in node})
            self.report_problem(node.display_position,
                                f"`{parameter.path}`: expected {describe_field(field)}, "
                                f"found {description}", f"write `{form}`" if form else None)
        elif node is None and self.is_complete:
            self.report_problem(parameter.position_of((0, 0)), f"`{parameter.path}` is missing",
                                f"add `{parameter.path.rpartition('.')[2]}:` with "
                                f"{describe_field(field)}", code="missing-key")
        return InvalidDomain()

    def read_list(self, node: SequenceNode, field: SchemaField) -> Domain:
        """The domain of a YAML list of constants or lists.

        Per-layer sizes may also be domains.
        """
        items: list[Domain] = []
        for index, item in enumerate(node.items):
            if type(item) is Node:
                return InvalidDomain()  # already reported
            domain: Domain = InvalidDomain()
            if isinstance(item, ScalarNode):
                try:
                    domain = parse_value(item.text)
                except ValueSyntaxError as error:
                    self.error_reporter(item.position_of)(error)
                    return domain
            if isinstance(item, SequenceNode):
                domain = self.read_list(item, field)
            is_constant = isinstance(domain, ConstantDomain | ListDomain)
            is_legal = is_constant or (
                field.layer_depth_key is not None and not isinstance(domain, InvalidDomain))
            if not is_legal and not isinstance(item, SequenceNode):
                self.report_problem(item.display_position, "a list contains only constants",
                                    "a list is a value, not alternatives")
            if not is_legal:
                return InvalidDomain()
            items.append(map_options(domain, partial(replace, span=(index, index + 1))))
        return list_domain(items)


def expand_calls(node: Node | None, group: SchemaGroup,
                 report_problem: Callable[..., None]) -> Node | None:
    """The mapping that calls are short for.

    A node without calls of the group's variants is returned unchanged.

    The arguments are the values of the variant's keys, in their order. The other keys have their
    defaults.

    Args:
        report_problem: called with position and message if there are too many arguments.
    """
    if not isinstance(node, ScalarNode) or not group.variants or not (
            group.unsupported or "(" in node.text):
        return node
    try:
        domain = parse_value(node.text)
    except ValueSyntaxError:
        return node
    options = domain.options if isinstance(domain, AlternativesDomain) else (domain,)
    if not any(option.name in (*group.variants, *group.unsupported)
               if isinstance(option, CallDomain) else str(option) in group.unsupported
               for option in options):
        return node
    entries: list[tuple[ScalarNode, Node]] = []
    for option in options:
        call = option if isinstance(option, CallDomain) else CallDomain(
            str(option), (), span=option.span)
        variant = group.variants.get(call.name)
        keys = variant.argument_order or tuple(variant.fields) if variant else ()
        if variant and len(call.arguments) > len(keys):
            parameters = " and ".join(keys) or "no arguments"
            report_problem(node.position_of(option.span),
                           f"`{option}`: {call.name} takes {parameters}", code="bad-syntax")
        inner = [(_part(node, option.span, key), _part(node, argument.span))
                 for key, argument in zip(keys, call.arguments)]
        entries.append((_part(node, option.span, call.name),
                        MappingNode(node.position_of(option.span), tuple(inner))))
    variants = MappingNode(node.position, tuple(entries))
    return MappingNode(node.position, ((ScalarNode(node.position, "one of"), variants),),
                       alias=node.alias)


def _part(node: ScalarNode, span: Span, text: str | None = None) -> ScalarNode:
    """The characters ``span`` of a text, or ``text`` at their position."""
    start, end = span
    return ScalarNode(node.position_of(span), node.text[start:end] if text is None else text,
                      node.char_positions[start:end] if text is None else ())


def variants_domain(names: Iterable[str]) -> Domain:
    """The domain of a choice between variants."""
    options = tuple(map(ConstantDomain, names))
    return options[0] if len(options) == 1 else AlternativesDomain(options)


def rename_deprecated_keys(table: MappingNode, group: SchemaGroup) -> MappingNode:
    """``table`` with the present names of its keys.

    A warning is printed for each deprecated key.
    """
    entries = []
    for key, value in table:
        head, dot, tail = key.text.partition(".")
        name = group.current_name(head)
        if name != head:
            warn_deprecated(key.position, f"the key `{head}` is now `{name}`")
            positions = (key.char_positions[:1] * len(name) + key.char_positions[len(head):]
                         if key.char_positions else key.char_positions)
            key = replace(key, text=name + dot + tail, char_positions=positions)
        entries.append((key, value))
    return replace(table, entries=tuple(entries))
