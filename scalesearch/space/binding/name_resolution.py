"""Looks up the names of an expression and checks its types.

A bare name is first looked up among the legal words of what it is compared with (``norm == post``),
then among the keys, from the innermost group outwards. What is neither is a misspelt reference.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from scalesearch.space.schema.bound_tree import ParameterNode, SchemaEntry, SchemaIndex
from scalesearch.space.schema.cost_names import COST_NAMES
from scalesearch.space.schema.types import SchemaField
from scalesearch.space.syntax.composite_domains import ComputedDomain
from scalesearch.space.syntax.diagnostics import closest_match, format_alternatives
from scalesearch.space.syntax.domains import Domain, LayerReferenceDomain
from scalesearch.space.syntax.expressions import Compare, Expr, KeyRef, Name, Operation, Value
from scalesearch.space.syntax.lexer import ValueSyntaxError
from scalesearch.space.syntax.parameters import format_constant

ANY_TYPE = frozenset({"number", "flag", "word", "list", "text"})
NUMBER_TYPE = frozenset({"number"})
BOOLEAN_TYPE = frozenset({"flag"})
TYPE_NAMES = {"number": "a number", "flag": "yes or no", "word": "a word", "list": "a list",
              "text": "a text"}
LOGICAL_OPERATORS = ("and", "or", "not")
COST_FIELD = SchemaField("number")


def types_of(field: SchemaField) -> frozenset[str]:
    """The types of a field's values."""
    own = {"size": "number", "number": "number", "schedule": "word"}.get(field.type, field.type)
    return frozenset({own, *(["word"] if field.special_values else [])})


def choices_of(field: SchemaField) -> tuple[str, ...]:
    """The words that a field's answer may be."""
    own = field.words if field.type == "word" else tuple(
        field.calls) if field.type == "schedule" else ()
    return (*own, *field.special_values)


@dataclass
class NameResolver:
    """Resolves the expressions that stand inside the group ``scope``.

    Args:
        allows_costs: whether the names of costs may be used.
        report_error: takes every problem.
    """

    index: SchemaIndex
    scope: str
    allows_costs: bool
    report_error: Callable[[ValueSyntaxError], None]

    def resolve_condition(self, expr: Expr) -> Expr:
        """A condition or a constraint."""
        return self.resolve_expr(expr, BOOLEAN_TYPE, ())

    def resolve_value(self, expr: Expr, field: SchemaField) -> Expr:
        """A computed value for ``field``."""
        return self.resolve_expr(expr, types_of(field), choices_of(field))

    def resolve_option(self, option: Domain, leaf: ParameterNode) -> Domain:
        """``option``, an alternative of ``leaf``, with its names looked up."""
        match option:
            case ComputedDomain(expression):
                return replace(option, expression=self.resolve_value(expression, leaf.field))
            case LayerReferenceDomain():
                return self.resolve_layer_reference(option, leaf)
        return option

    def resolve_layer_reference(self, option: LayerReferenceDomain, leaf: ParameterNode) -> Domain:
        """``encoder.attention[i]`` in its first spelling; complains where it points to no other schedule."""
        known = self.index.find(option.path, self.scope)
        schedules = [
            path for path, other in self.index.entries.items() if other.field.type == "schedule"]
        short = [path.removeprefix(f"{leaf.path.partition('.')[0]}.")
                 for path in schedules if path != leaf.path]
        span = (option.span[0], option.span[0] + len(option.path))
        if known is None or known.field.type != "schedule":
            meant = closest_match(option.path, short)
            help = f"did you mean `{meant}`?" if meant else f"the schedules are {', '.join(short)}"
            self.report_error(ValueSyntaxError(f"`{option.path}` is not a schedule of this space",
                                               span, help, code="unknown-schedule"))
        elif known.key == leaf.key:
            self.report_error(
                ValueSyntaxError(f"`{leaf.path}` cannot use its own layers", span,
                                 "for that, write `cycle(2)` or a list", code="depends-on-itself"))
        scope = option.path.rpartition(".")[0]
        return replace(
            option, path=f"{scope}.{known.key.rpartition('.')[2]}") if known and scope else option

    def resolve_expr(self, expr: Expr, expected_types: frozenset[str],
                     words: tuple[str, ...]) -> Expr:
        """``expr`` with its names looked up, where one of the types ``expected_types`` is due."""
        match expr:
            case Value():
                return self.resolve_constant(expr, expected_types, words)
            case Name():
                return self.resolve_name(expr, expected_types, words)
            case Compare():
                self.check_type(expr, BOOLEAN_TYPE, expected_types)
                return self.resolve_comparison(expr)
            case Operation("if", (then, condition, other)):
                condition = self.resolve_expr(condition, BOOLEAN_TYPE, ())
                return replace(expr,
                               operands=(self.resolve_expr(then, expected_types, words), condition,
                                         self.resolve_expr(other, expected_types, words)))
            case Operation(op, operands):
                kind = BOOLEAN_TYPE if op in LOGICAL_OPERATORS else NUMBER_TYPE
                self.check_type(expr, kind, expected_types)
                return replace(
                    expr,
                    operands=tuple(self.resolve_expr(operand, kind, ()) for operand in operands))
        return expr

    def check_type(self, expr: Expr, kinds: frozenset[str], want: frozenset[str]) -> None:
        """Complains where none of the types kinds is wanted."""
        if not kinds & want:
            self.report_problem(
                expr, f"expected {_format_types(want)}, but this is " f"{_format_types(kinds)}")

    def report_problem(self, expr: Expr, message: str, help: str | None = None,
                       code: str = "bad-value") -> None:
        """Notes a problem with ``expr``."""
        self.report_error(ValueSyntaxError(message, expr.span, help, code=code))

    def resolve_constant(self, expr: Value, want: frozenset[str], words: tuple[str, ...]) -> Expr:
        """A number, yes or no, or a quoted word."""
        kind = "flag" if isinstance(expr.value, bool) else "word" if isinstance(
            expr.value, str) else "number"
        if kind == "flag" and format_constant(expr.value) in words:
            # a word that happens to be spelt yes or no
            return replace(expr, value=format_constant(expr.value))
        if kind not in want and not (kind == "word" and "text" in want):
            self.report_problem(expr,
                                f"expected {_format_types(want)}, but "
                                f"`{format_constant(expr.value)}` is {TYPE_NAMES[kind]}")
        return expr

    def resolve_name(self, expr: Name, want: frozenset[str], words: tuple[str, ...]) -> Expr:
        """A word or a reference."""
        if expr.text in words and "word" in want:
            return Value(expr.text, span=expr.span)
        known = self.find(expr.text)
        if known is None:
            self.report_unknown_name(expr, words)
            return Value(0, span=expr.span)
        kinds = types_of(known.field)
        if not kinds & want:
            legal = choices_of(known.field)
            values = f" ({' | '.join(legal)})" if legal and known.field.type == "word" else ""
            self.report_problem(expr,
                                f"expected {_format_types(want)}, but `{expr.text}` is "
                                f"{_format_types(kinds)}{values}")
        return KeyRef(self.canonical_name(expr.text, known), known.key, known.guards,
                      span=expr.span)

    def find(self, text: str) -> SchemaEntry | None:
        """The key or cost that a name means here."""
        known = self.index.find(text, self.scope)
        if known is None and self.allows_costs and text in COST_NAMES:
            return SchemaEntry(text, (), COST_FIELD)
        return known

    def canonical_name(self, text: str, known: SchemaEntry) -> str:
        """The canonical spelling: the full path, unless an inner group would capture it."""
        path = next((path for path, other in self.index.entries.items() if other is known), text)
        return path if self.index.find(path, self.scope) is known else text

    def report_unknown_name(self, expr: Name, words: tuple[str, ...]) -> None:
        """Complains about a name that is neither word nor key."""
        if expr.text in COST_NAMES:
            help = "costs can be used under `where:` and in budgets"
            self.report_problem(expr,
                                f"`{expr.text}` is a cost, known only once all answers are given",
                                help, code="cost-too-early")
        elif "-" in expr.text and self.find(expr.text.partition("-")[0]):
            self.report_problem(expr, f"there is no key `{expr.text}`",
                                "a minus sign needs spaces around it", code="unknown-name")
        elif expr.text in self.index.groups:
            inside = [path for path in self.index.entries if path.startswith(f"{expr.text}.")]
            help = f"name one of its keys, such as {format_alternatives(inside[:2])}"
            self.report_problem(expr, f"`{expr.text}` is a group of keys, not a value", help,
                                code="group-not-value")
        else:
            what = (f"neither a key nor one of {format_alternatives(words)}" if words
                    else "not a key of this space")
            self.report_problem(expr, f"`{expr.text}` is {what}",
                                self.suggest_name(expr.text, words), code="unknown-name")

    def suggest_name(self, text: str, words: tuple[str, ...]) -> str | None:
        """A help line for a misspelt name: a similar word, key or last part of a key."""
        legal = [*words, *self.index.entries, *(COST_NAMES if self.allows_costs else ())]
        last = {path.rpartition(".")[2]: path for path in reversed(list(self.index.entries))}
        meant = closest_match(text,
                              legal) or last.get(closest_match(text.rpartition(".")[2], last) or "")
        if meant:
            return f"did you mean `{meant}`?"
        return f"the words are {format_alternatives(words)}" if words else None

    def resolve_comparison(self, expr: Compare) -> Expr:
        """A comparison: each operand against its neighbor."""
        operands = expr.operands
        ops = [op for op, _ in expr.comparisons]
        if any(op not in ("==", "!=") for op in ops):
            resolved = [self.resolve_expr(operand, NUMBER_TYPE, ()) for operand in operands]
        else:
            resolved = [self.resolve_equality_side(operands, at) for at in range(len(operands))]
        return replace(expr, first=resolved[0],
                       comparisons=tuple(zip(ops, resolved[1:], strict=True)))

    def resolve_equality_side(self, operands: tuple[Expr, ...], at: int) -> Expr:
        """One side of an equality, which takes its legal words and types from the other."""
        other = operands[at - 1] if at else operands[1]
        known = self.find(other.text) if isinstance(other, Name) else None
        mine = operands[at]
        if isinstance(mine, Name) and isinstance(
                other, Name) and known and mine.text not in choices_of(known.field):
            own = self.find(mine.text)
            # of `tie == decoder`, the other side is a word of this one
            if own and other.text in choices_of(own.field):
                return self.resolve_expr(mine, ANY_TYPE, ())
        if known is None:
            misspelt = at and isinstance(other, Name) and isinstance(mine, Name) and self.find(
                mine.text) is None
            # one complaint is enough
            return Value(0) if misspelt else self.resolve_expr(mine, _kinds(other), ())
        return self.resolve_expr(mine, types_of(known.field), choices_of(known.field))


def _kinds(expr: Expr) -> frozenset[str]:
    """The types an operand has by its form alone."""
    match expr:
        case Value(bool()) | Compare() | Operation("and" | "or" | "not"):
            return BOOLEAN_TYPE
        case Value(str()) | Name():
            return ANY_TYPE
        case Operation("if", (then, _, other)):
            return _kinds(then) | _kinds(other)
    return NUMBER_TYPE


def _format_types(kinds: frozenset[str]) -> str:
    return " or ".join(TYPE_NAMES[kind]
                       for kind in ("number", "flag", "word", "list", "text") if kind in kinds)
