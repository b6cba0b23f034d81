"""Apply ``--set key=value`` to a bound space: the same language, the same errors."""

from collections.abc import Mapping
from dataclasses import replace

from scalesearch.blocks.core import join_path
from scalesearch.errors import option, option_prefix
from scalesearch.spaces.binding.bind import BoundSpace, check_space
from scalesearch.spaces.binding.binder import Binder, KeyContext, expand_calls, variants_domain
from scalesearch.spaces.schema.bound_tree import GroupNode, ParameterNode, build_index, guards_of
from scalesearch.spaces.schema.cost_names import OWN_VOCABULARY
from scalesearch.spaces.schema.types import InlinedVariant, SchemaField, SchemaGroup
from scalesearch.spaces.syntax.diagnostics import (
    ConfigError,
    Problem,
    SourcePosition,
    SourceText,
    closest_match,
    format_alternatives,
)
from scalesearch.spaces.syntax.nodes import MappingNode, Node, ScalarNode, scalar_from_text
from scalesearch.spaces.syntax.yaml_reader import parse_yaml

TEXT_KEYS = ("space", "notes")
BoundFields = dict[str, GroupNode | ParameterNode]


def override_space(bound: BoundSpace, schema: SchemaGroup, overrides: Mapping[str, str],
                   option_name: str = "set") -> BoundSpace:
    """``bound`` with some keys replaced.

    Args:
        overrides: path to value, as texts.
        option_name: option of the command line, for messages.

    Raises:
        ConfigError: with every problem of the overrides.
    """
    return _OverrideBinder(schema, option_name).override_space(bound, overrides)


class _OverrideBinder(Binder):
    """Binds the values of overrides, and keeps the rest of a bound tree.

    Attributes:
        values: path to the node of its new value.
        used: the paths of keys that the space has.
    """

    def __init__(self, schema: SchemaGroup, option_name: str) -> None:
        super().__init__(build_index(schema))
        self.schema = schema
        self.source_name = option(option_name).removesuffix("=")
        self.prefix = option_prefix(option_name)
        self.values: dict[str, Node] = {}
        self.used: set[str] = set()

    def override_space(self, bound: BoundSpace, overrides: Mapping[str, str]) -> BoundSpace:
        """``bound`` with ``overrides``. Raises ConfigError with every problem."""
        texts = {"space": bound.name, "notes": bound.notes}
        positions: dict[str, SourcePosition] = {}
        for name, text in sorted(overrides.items(), key=lambda item: item[0].count(".")):
            path = self.index.spellings.get(name, name)
            position = scalar_from_text(self.source_name, self.prefix,
                                        f"{path}={text}").position_of((0, len(path)))
            value = self.read_value(name, text)
            if path in TEXT_KEYS and isinstance(value, ScalarNode):
                texts[path] = value.text
            elif path in TEXT_KEYS:
                self.report_problem(value.display_position, f"`{path}` is a text")
            elif path and (path in self.index.entries or path in self.index.groups):
                self.values[path] = value
                positions[path] = position
            else:
                self.problems.append(self.unknown_key(path, position))
        self.is_complete = not self.problems
        top = SourcePosition(SourceText(self.source_name, "", has_lines=False), 0, 0, 1)
        root = self.override_group(self.schema, bound.root, KeyContext("", "", top))
        assert root is not None
        for path, position in positions.items():
            if path not in self.used:
                self.problems.append(self.key_not_offered(path, position))
        protocol = dict(bound.protocol)
        if "vocab" in overrides:
            protocol = {"name": protocol["name"], "vocab": OWN_VOCABULARY} | {
                key: value for key, value in protocol.items() if key != "vocab"}
        parameter_space = check_space(root, bound.constraints, self.problems)
        return replace(bound, name=texts["space"], notes=texts["notes"], root=root,
                       parameter_space=parameter_space, protocol=protocol)

    def read_value(self, path: str, text: str) -> Node:
        """The node of a value: a YAML mapping in braces, otherwise a text."""
        node = scalar_from_text(self.source_name, f"{self.prefix}{path}=", text)
        if not text.lstrip().startswith("{"):
            return node
        try:
            table, problems = parse_yaml(SourceText(self.source_name, text, has_lines=False))
        except ConfigError as error:
            self.problems.extend(error.problems)
            return Node(node.position)
        self.problems.extend(problems)
        return table

    def unknown_key(self, path: str, position: SourcePosition) -> Problem:
        """The problem of a path that does not exist in the schema."""
        paths = [*self.index.entries, *(name for name in self.index.groups if name)]
        path_of_last_name = {name.rpartition(".")[2]: name for name in reversed(paths)}
        match = closest_match(path, paths)
        if match is None:
            last_name = closest_match(path.rpartition(".")[2], path_of_last_name)
            match = path_of_last_name.get(last_name or "")
        help = self.index.describe_synonym(path) or (f"did you mean `{match}`?" if match else None)
        return Problem(position, f"unknown key `{path}`", help, code="unknown-key")

    def key_not_offered(self, path: str, position: SourcePosition) -> Problem:
        """The problem of a key that exists only in variants that the space does not offer."""
        names = path.split(".")
        group = self.schema
        level = 0
        while isinstance(child := group.fields.get(names[level]), SchemaGroup):
            group = child
            level += 1
        name = names[level]
        owners = [variant_name for variant_name, variant in group.variants.items()
                  if name == variant_name or name in variant.fields]
        parent = ".".join(names[:level])
        help = (f"choose {format_alternatives(owners)} first, for example with "
                f"`{option('set', f'{parent}={owners[0]}')}`")
        return Problem(position, f"no variant of `{parent}` that the space offers has `{name}`",
                       help, code="unknown-key")

    def override_group(self, group: SchemaGroup, node: GroupNode | None,
                       context: KeyContext) -> GroupNode | None:
        """The bound group ``node`` with its overrides.

        None if the group is optional and not set.
        """
        prefixes = tuple(f"{path}." if path else "" for path in (context.path, context.key))
        has_inner_overrides = any(path.startswith(prefixes) for path in self.values)
        if context.path in self.values:
            self.used.add(context.path)
            node = self.bind_override(group, node, self.values[context.path], context)
        if not has_inner_overrides:
            return node
        if node is None:
            node = self.bind_group(group, MappingNode(context.origin, ()), context)
            assert node is not None
        if group.inlined_variant:
            self.move_inlined_overrides(group.inlined_variant, context.path)
        fields: BoundFields = {}
        for name, child in group.fields.items():
            bound = self.override_field(child, dict(node.fields).get(name),
                                        self.child_context(group, name, context))
            if bound is not None:
                fields[name] = bound
        variants = []
        for name, variant_node in node.variants:
            bound_variant = self.override_group(group.variants[name], variant_node,
                                                context.variant(name))
            if bound_variant is not None:
                variants.append((name, bound_variant))
        if group.inlined_variant:
            self.reset_inlined_keys(group, group.inlined_variant, fields, context)
        return replace(node, fields=tuple(fields.items()), variants=tuple(variants))

    def child_context(self, group: SchemaGroup, name: str, context: KeyContext) -> KeyContext:
        """The context of a field.

        Errors of its defaults are shown at its override, if there is one.
        """
        value = self.values.get(join_path(context.path, name))
        origin = context.origin if value is None else value.display_position
        return context.child(name, origin, guards_of(group, name, context.key))

    def override_field(self, child: SchemaField | SchemaGroup,
                       node: GroupNode | ParameterNode | None,
                       context: KeyContext) -> GroupNode | ParameterNode | None:
        """``node``, a bound field, with its overrides."""
        if isinstance(child, SchemaGroup):
            assert not isinstance(node, ParameterNode)
            return self.override_group(child, node, context)
        self.used |= {context.path, context.key}
        value = self.values.get(context.path) or self.values.get(context.key)
        return node if value is None else self.bind_parameter(child, value, context)

    def bind_override(self, group: SchemaGroup, node: GroupNode | None, value: Node,
                      context: KeyContext) -> GroupNode | None:
        """The group with its new value.

        A text selects variants, and keeps the keys that fit.
        """
        context = replace(context, origin=value.display_position)
        expanded = expand_calls(value, group, self.report_problem)
        if node is None or not (isinstance(value, ScalarNode) and value.text and group.variants):
            return self.bind_group(group, expanded, context)
        if expanded is not value:
            bound = self.bind_group(group, expanded, context)
            return bound and replace(bound, fields=node.fields)
        variant_node, offered = self.bind_variant_text(group, value, context)
        kept: dict[str, tuple[ScalarNode, Node]] = {}
        for _, variant in node.variants:
            for name, parameter in variant.fields:
                if isinstance(parameter, ParameterNode) and isinstance(parameter.origin, Node):
                    kept.setdefault(name, (ScalarNode(parameter.origin.position, name),
                                           parameter.origin))
        variants = dict(node.variants)
        for name in offered:
            if name not in variants:
                inner = group.variants[name]
                table = MappingNode(value.position, tuple(
                    entry for key, entry in kept.items() if key in inner.fields))
                bound_variant = self.bind_group(inner, table, context.variant(name))
                assert bound_variant is not None
                variants[name] = bound_variant
        names = [name for name in group.variants if name in offered]
        if variant_node.domain.constants is not None:
            variant_node = replace(variant_node, domain=variants_domain(names),
                                   origin=context.origin)
        return replace(node, variant_node=variant_node,
                       variants=tuple((name, variants[name]) for name in names))

    def move_inlined_overrides(self, inlined: InlinedVariant, path: str) -> None:
        """Move inlined keys from an override of the variant's group to ``path``."""
        group_path = join_path(path, inlined.group)
        if group_path in self.values:
            node, moved = self.split_inlined_keys(self.values[group_path], inlined)
            self.values[group_path] = node
            for key, value in moved:
                self.values.setdefault(join_path(path, key.text), value)

    def reset_inlined_keys(self, group: SchemaGroup, inlined: InlinedVariant, fields: BoundFields,
                           context: KeyContext) -> None:
        """Reset the keys of an inlined variant that is not offered to their defaults."""
        group_node = fields[inlined.group]
        assert isinstance(group_node, GroupNode)
        if inlined.variant in dict(group_node.variants):
            return
        overridden = {}
        for name in inlined.exclusive_keys:
            value = self.values.get(join_path(context.path, name))
            if value is not None and isinstance(group.fields[name], SchemaField):
                overridden[name] = (ScalarNode(value.position, name), value)
        self.report_unused_keys(inlined, overridden, group_node, context.path)
        unused = {name: child for name, child in group.fields.items()
                  if name in inlined.exclusive_keys and name not in overridden}
        fields.update(self.bind_fields(replace(group, fields=unused), {}, context))
