"""Kinds written as calls: ``kronecker(4..16) | dense`` for a mapping of kinds and their first keys."""

from __future__ import annotations

from collections.abc import Callable

from scalesearch.space.schema.types import Group
from scalesearch.space.syntax.choices import Alternatives
from scalesearch.space.syntax.domains import CallOf
from scalesearch.space.syntax.lexer import Span, SyntaxProblem
from scalesearch.space.syntax.nodes import Node, Table, Text
from scalesearch.space.syntax.value_parser import parse_value


def spelled_out(node: Node | None, group: Group, wrong: Callable[..., None]) -> Node | None:
    """The mapping that calls are short for; a node without calls of the group's kinds as it is.

    Arguments are the keys of a kind in their order; what is not given has its default. ``wrong(place, message)`` notes
    that there are too many.
    """
    if not isinstance(node, Text) or not group.variants or not (group.gone or "(" in node.text):
        return node
    try:
        spec = parse_value(node.text)
    except SyntaxProblem:
        return node
    options = spec.options if isinstance(spec, Alternatives) else (spec,)
    if not any(one.name in (*group.variants, *group.gone) if isinstance(one, CallOf) else str(one) in group.gone
               for one in options):
        return node
    entries: list[tuple[Text, Node]] = []
    for option in options:
        called = option if isinstance(option, CallOf) else CallOf(str(option), (), span=option.span)
        kind = group.variants.get(called.name)
        keys = kind.called or tuple(kind.fields) if kind else ()
        if kind and len(called.arguments) > len(keys):
            takes = " and ".join(keys) or "nothing in brackets"
            wrong(node.at(option.span), f"`{option}`: {called.name} takes {takes}", code="bad-syntax")
        inner = [(_part(node, option.span, key), _part(node, argument.span))
                 for key, argument in zip(keys, called.arguments)]
        entries.append((_part(node, option.span, called.name), Table(node.at(option.span), tuple(inner))))
    kinds = Table(node.place, tuple(entries))
    return Table(node.place, ((Text(node.place, "one of"), kinds),), alias=node.alias)


def _part(node: Text, span: Span, text: str | None = None) -> Text:
    """The characters ``span`` of a text, or ``text`` in their place."""
    start, end = span
    return Text(node.at(span), node.text[start:end] if text is None else text,
                node.where[start:end] if text is None else ())
