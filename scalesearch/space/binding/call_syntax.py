"""Kinds written as calls: ``kronecker(4..16) | dense`` for a mapping of kinds and their first keys."""

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
    """The mapping that calls are short for; a node without calls of the group's kinds as it is.

    Arguments are the keys of a kind in their order; what is not given has its default.
    ``wrong(place, message)`` notes that there are too many.
    """
    if not isinstance(node, ScalarNode) or not group.variants or not (
            group.unsupported or "(" in node.text):
        return node
    try:
        spec = parse_value(node.text)
    except ValueSyntaxError:
        return node
    options = spec.options if isinstance(spec, AlternativesDomain) else (spec,)
    if not any(one.name in (*group.variants, *group.unsupported) if isinstance(one, CallDomain)
               else str(one) in group.unsupported for one in options):
        return node
    entries: list[tuple[ScalarNode, Node]] = []
    for option in options:
        called = option if isinstance(option, CallDomain) else CallDomain(
            str(option), (), span=option.span)
        kind = group.variants.get(called.name)
        keys = kind.argument_order or tuple(kind.fields) if kind else ()
        if kind and len(called.arguments) > len(keys):
            takes = " and ".join(keys) or "nothing in brackets"
            report_problem(node.position_of(option.span),
                           f"`{option}`: {called.name} takes {takes}", code="bad-syntax")
        inner = [(_part(node, option.span, key), _part(node, argument.span))
                 for key, argument in zip(keys, called.arguments)]
        entries.append((_part(node, option.span, called.name),
                        MappingNode(node.position_of(option.span), tuple(inner))))
    kinds = MappingNode(node.position, tuple(entries))
    return MappingNode(node.position, ((ScalarNode(node.position, "one of"), kinds),),
                       alias=node.alias)


def _part(node: ScalarNode, span: Span, text: str | None = None) -> ScalarNode:
    """The characters ``span`` of a text, or ``text`` in their place."""
    start, end = span
    return ScalarNode(node.position_of(span), node.text[start:end] if text is None else text,
                node.char_positions[start:end] if text is None else ())
