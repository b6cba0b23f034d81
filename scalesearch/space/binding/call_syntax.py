"""Variants written as calls: ``kronecker(4..16) | dense`` for a mapping of variants."""

from __future__ import annotations

from collections.abc import Callable

from scalesearch.space.schema.types import SchemaGroup
from scalesearch.space.syntax.composite_domains import AlternativesDomain
from scalesearch.space.syntax.domains import CallDomain
from scalesearch.space.syntax.lexer import Span, ValueSyntaxError
from scalesearch.space.syntax.nodes import MappingNode, Node, ScalarNode
from scalesearch.space.syntax.value_parser import parse_value


def expand_calls(node: Node | None, group: SchemaGroup,
                 report_problem: Callable[..., None]) -> Node | None:
    """The mapping that calls are short for; a node without calls of the group's variants unchanged.

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
