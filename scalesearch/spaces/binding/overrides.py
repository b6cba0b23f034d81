"""Apply ``--set key=value`` to a bound space: the same language, the same errors."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from scalesearch.blocks.core import join_path
from scalesearch.errors import option, option_prefix
from scalesearch.spaces.binding.bind import BoundSpace, check_space
from scalesearch.spaces.binding.binder import Binder, KeyContext, expand_calls, variants_domain
from scalesearch.spaces.binding.static_checks import drop_unfitting_schedules
from scalesearch.spaces.schema.bound_tree import GroupNode, ParameterNode, build_index, guards_of
from scalesearch.spaces.schema.cost_names import OWN_VOCABULARY
from scalesearch.spaces.schema.type_check import check_domain
from scalesearch.spaces.schema.types import InlinedVariant, SchemaField, SchemaGroup
from scalesearch.spaces.syntax.diagnostics import (
    ConfigError,
    SourcePosition,
    SourceText,
    format_alternatives,
)
from scalesearch.spaces.syntax.domains import (
    ConstantDomain,
    Domain,
    PerLayerDomain,
    iter_parts,
    map_options,
    part_names,
    replace_part,
)
from scalesearch.spaces.syntax.lexer import ValueSyntaxError, split_parameter_name
from scalesearch.spaces.syntax.nodes import MappingNode, Node, ScalarNode, scalar_from_text
from scalesearch.spaces.syntax.parser import parse_value
from scalesearch.spaces.syntax.yaml_reader import parse_yaml

TEXT_KEYS = ("space", "notes")
BoundT = TypeVar("BoundT", bound=BoundSpace)
BoundFields = dict[str, GroupNode | ParameterNode]


class OverrideBinder(Binder):
    """Binds the values of overrides, and keeps the rest of a bound tree.

    Attributes:
        source_name, prefix: the option of the command line, for messages.
        values: path to the node of its new value.
        used: the paths of keys that the space has.
        parts: (key, rest of the name) to the node of the new value, for parameters inside the value
            of a key, such as ``("encoder.ffn.hidden", "[2]")``.
    """

    def __init__(self, schema: SchemaGroup, option_name: str) -> None:
        super().__init__(build_index(schema))
        self.schema = schema
        self.source_name = option(option_name).removesuffix("=")
        self.prefix = option_prefix(option_name)
        self.values: dict[str, Node] = {}
        self.used: set[str] = set()
        self.parts: dict[tuple[str, str], ScalarNode] = {}

    def override_space(self, bound: BoundT, overrides: Mapping[str, str]) -> BoundT:
        """``bound`` with ``overrides``, texts by path. Raises ConfigError with every problem."""
        texts = {"space": bound.name, "notes": bound.notes}
        positions: dict[str, SourcePosition] = {}
        for name, text in sorted(overrides.items(), key=lambda item: item[0].count(".")):
            path = self.index.spellings.get(name, name)
            position = scalar_from_text(self.source_name, self.prefix,
                                        f"{path}={text}").position_of((0, len(path)))
            value = self.read_value(name, text)
            head, inner_name = split_parameter_name(name)
            head = self.index.spellings.get(head, head)
            if path in TEXT_KEYS and isinstance(value, ScalarNode):
                texts[path] = value.text
            elif path in TEXT_KEYS:
                self.report_problem(value.display_position, f"`{path}` is a text")
            elif path and (path in self.index.entries or path in self.index.groups):
                self.values[path] = value
                positions[path] = position
            elif inner_name and head in self.index.entries and isinstance(value, ScalarNode):
                self.parts[head, inner_name] = value
            else:
                match = bound.index.suggest_path(head)
                help = bound.index.describe_synonym(path) or (
                    f"did you mean `{match}`?" if match
                    else f"for example {option('set', 'encoder.depth=12')}")
                self.report_problem(position, f"unknown key `{path}`", help, code="unknown-key")
        self.is_complete = not self.problems
        top = SourcePosition(SourceText(self.source_name, "", has_lines=False), 0, 0, 1)
        root = self.override_group(self.schema, bound.root, KeyContext("", "", top))
        assert root is not None
        for path, position in positions.items():
            if path not in self.used:
                self.report_not_offered(path, position)
        old_nodes = [*bound.root.parameter_nodes()]
        unchanged = {node.path for node in root.parameter_nodes() if node in old_nodes}
        root = self.override_parts(root, bound.parameter_space.domains)
        if not self.problems:
            root = drop_unfitting_schedules(root, unchanged)
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

    def report_not_offered(self, path: str, position: SourcePosition) -> None:
        """Report a key that exists only in variants that the space does not offer."""
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
        self.report_problem(position,
                            f"no variant of `{parent}` that the space offers has `{name}`",
                            f"choose {format_alternatives(owners)} first, for example with "
                            f"`{option('set', f'{parent}={owners[0]}')}`", code="unknown-key")

    def override_parts(self, root: GroupNode, old_domains: Mapping[str, Domain]) -> GroupNode:
        """``root`` with other values of parameters inside the values of keys.

        Such a parameter is the size of a layer, ``[2]``, or part of an alternative. A key with one
        number for all layers becomes a list.

        Args:
            old_domains: path to the domain before all overrides, whose names are valid.
        """
        nodes = {node.path: node for node in root.parameter_nodes()}
        changed: dict[str, ParameterNode] = {}
        outer_first = sorted(self.parts.items(), key=lambda item: len(item[0][1]))
        for (key, inner_name), value in outer_first:
            report_error = self.error_reporter(value.position_of)
            targets = [node for node in nodes.values() if key in (node.path, node.key)]
            if not targets:
                self.report_not_offered(key, value.position)
            for node in targets:
                domain = changed[node.path].domain if node.path in changed else node.domain
                if node.path not in changed:
                    # One number for all layers of a fixed depth becomes a list. A part of the old
                    # domain keeps the names that it has there.
                    depth_key = node.field.layer_depth_key or ""
                    depths = nodes[depth_key].domain.constants if depth_key in nodes else None
                    if isinstance(domain, ConstantDomain) and depths and len(depths) == 1:
                        domain = PerLayerDomain((domain,) * depths[0], depth_key=depth_key)
                    old_domain = old_domains.get(node.path)
                    old_parts = iter_parts(old_domain) if old_domain else iter(())
                    domain = next((part for part in old_parts if part == domain),
                                  domain.with_parameter_name(node.path))
                is_list = isinstance(domain, PerLayerDomain) and not domain.is_ramp
                ends = {"[first]": "[1]", "[last]": f"[{len(domain.parts)}]"} if is_list else {}
                name = node.path + ends.get(inner_name, inner_name)
                names = [node.path, *part_names(domain)]
                try:
                    if name not in names:
                        raise ValueSyntaxError(
                            f"`{node.path}` is `{node.domain}`, without a parameter `{name}`",
                            (0, len(value.text)),
                            f"set {format_alternatives(dict.fromkeys(names))}"
                            + " first, to a value that it starts from" * (len(names) == 1),
                            code="unknown-key")
                    domain = replace_part(domain, name, parse_value(value.text))
                except ValueSyntaxError as error:
                    report_error(error)
                    continue
                domain = map_options(domain, partial(
                    check_domain, field=node.field, paths=self.index.entries,
                    report_error=report_error))
                changed[node.path] = replace(node, domain=domain, origin=value)
        return root.map_parameters(lambda node: changed.get(node.path, node))

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
        inlined = group.inlined_variant
        if inlined and (group_value := self.values.get(join_path(context.path, inlined.group))):
            # inlined keys in the override of the variant's group
            group_value, moved = self.split_inlined_keys(group_value, inlined)
            self.values[join_path(context.path, inlined.group)] = group_value
            for key, moved_value in moved:
                self.values.setdefault(join_path(context.path, key.text), moved_value)
        fields: BoundFields = {}
        for name, child in group.fields.items():
            value = self.values.get(join_path(context.path, name))
            # errors of defaults are shown at the override of the key
            origin = context.origin if value is None else value.display_position
            child_context = context.child(name, origin, guards_of(group, name, context.key))
            bound = dict(node.fields).get(name)
            if isinstance(child, SchemaGroup):
                assert not isinstance(bound, ParameterNode)
                bound = self.override_group(child, bound, child_context)
            else:
                self.used |= {child_context.path, child_context.key}
                value = value or self.values.get(child_context.key)
                bound = bound if value is None else self.bind_parameter(child, value, child_context)
            if bound is not None:
                fields[name] = bound
        variants = []
        for name, variant_node in node.variants:
            bound_variant = self.override_group(group.variants[name], variant_node,
                                                context.variant(name))
            if bound_variant is not None:
                variants.append((name, bound_variant))
        if inlined:
            self.reset_inlined_keys(group, inlined, fields, context)
        return replace(node, fields=tuple(fields.items()), variants=tuple(variants))

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
