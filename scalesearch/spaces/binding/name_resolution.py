"""Resolve the names of an expression and check its types.

A bare name is first looked up among the legal words of the other side of a comparison
(``norm == post``), then among the keys, from the innermost group outwards. Other names are errors.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from scalesearch.spaces.schema.bound_tree import ParameterNode, SchemaEntry, SchemaIndex
from scalesearch.spaces.schema.cost_names import BYTE_COSTS, COST_NAMES, DEPRECATED_COST_NAMES
from scalesearch.spaces.schema.types import SchemaField
from scalesearch.spaces.syntax.diagnostics import closest_match, format_alternatives
from scalesearch.spaces.syntax.domains import ComputedDomain, Domain, LayerReferenceDomain
from scalesearch.spaces.syntax.expressions import Compare, Expr, KeyRef, Name, Operation, Value
from scalesearch.spaces.syntax.lexer import ValueSyntaxError, split_layer
from scalesearch.spaces.syntax.parameters import format_constant

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
    """The words that are legal values of a field."""
    own = field.words if field.type == "word" else tuple(
        field.calls) if field.type == "schedule" else ()
    return (*own, *field.special_values)


@dataclass
class NameResolver:
    """Resolves the expressions of keys in the group ``scope``.

    Args:
        allows_costs: whether names of costs are legal.
        report_error: called with every problem.
        own_key: the key whose value is read, which the same name does not refer to if an outer
            group has it, too: ``decoder.width: = width``.
        budgets: name to condition; a name that is not a key stands for its condition.
    """

    index: SchemaIndex
    scope: str
    allows_costs: bool
    report_error: Callable[[ValueSyntaxError], None]
    own_key: str = ""
    budgets: Mapping[str, Expr] = field(default_factory=dict)

    def resolve_condition(self, expr: Expr) -> Expr:
        """Resolve a condition or a constraint."""
        return self.resolve_expr(expr, BOOLEAN_TYPE, ())

    def resolve_option(self, option: Domain, node: ParameterNode) -> Domain:
        """Resolve ``option``, an alternative of ``node``."""
        match option:
            case ComputedDomain(expression):
                resolved = self.resolve_expr(expression, types_of(node.field),
                                             choices_of(node.field))
                return replace(option, expression=resolved)
            case LayerReferenceDomain():
                return self.resolve_layer_reference(option, node)
        return option

    def resolve_layer_reference(self, option: LayerReferenceDomain, node: ParameterNode) -> Domain:
        """``encoder.attention[i]`` in canonical names.

        A path that is not a schedule is reported.
        """
        referenced_path = option.reference.path
        entry = self.index.find(referenced_path, self.scope)
        schedules = [
            path for path, other in self.index.entries.items() if other.field.type == "schedule"]
        short = [path.removeprefix(f"{node.path.partition('.')[0]}.")
                 for path in schedules if path != node.path]
        span = (option.span[0], option.span[0] + len(referenced_path))
        if entry is None or entry.field.type != "schedule":
            match = closest_match(referenced_path, short)
            help = f"did you mean `{match}`?" if match else f"the schedules are {', '.join(short)}"
            self.report_error(ValueSyntaxError(
                f"`{referenced_path}` is not a schedule of this space", span, help,
                code="unknown-schedule"))
        elif entry.key == node.key:
            self.report_error(
                ValueSyntaxError(f"`{node.path}` cannot use its own layers", span,
                                 "for that, write `cycle(2)` or a list", code="depends-on-itself"))
        scope = referenced_path.rpartition(".")[0]
        if not entry or not scope:
            return option
        path = f"{scope}.{entry.key.rpartition('.')[2]}"
        return replace(option, reference=replace(option.reference, path=path))

    def resolve_expr(self, expr: Expr, expected_types: frozenset[str],
                     words: tuple[str, ...]) -> Expr:
        """``expr`` with its names resolved; its type must be one of ``expected_types``."""
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
                type_ = BOOLEAN_TYPE if op in LOGICAL_OPERATORS else NUMBER_TYPE
                self.check_type(expr, type_, expected_types)
                return replace(
                    expr,
                    operands=tuple(self.resolve_expr(operand, type_, ()) for operand in operands))
        return expr

    def check_type(self, expr: Expr, types: frozenset[str], expected_types: frozenset[str]) -> None:
        """Report an error if ``types`` and ``expected_types`` have no type in common."""
        if not types & expected_types:
            self.report_problem(expr, f"expected {_format_types(expected_types)}, but this is "
                                f"{_format_types(types)}")

    def report_problem(self, expr: Expr, message: str, help: str | None = None,
                       code: str = "bad-value") -> None:
        """Report a problem with ``expr``."""
        self.report_error(ValueSyntaxError(message, expr.span, help, code=code))

    def resolve_constant(self, expr: Value, expected_types: frozenset[str],
                         words: tuple[str, ...]) -> Expr:
        """Resolve a number, a flag or a quoted word."""
        if isinstance(expr.value, bool):
            type_ = "flag"
        else:
            type_ = "word" if isinstance(expr.value, str) else "number"
        if type_ == "flag" and format_constant(expr.value) in words:
            # a word with the spelling of a flag
            return replace(expr, value=format_constant(expr.value))
        if type_ not in expected_types and not (type_ == "word" and "text" in expected_types):
            self.report_problem(expr,
                                f"expected {_format_types(expected_types)}, but "
                                f"`{format_constant(expr.value)}` is {TYPE_NAMES[type_]}")
        return expr

    def resolve_name(self, expr: Name, expected_types: frozenset[str],
                     words: tuple[str, ...]) -> Expr:
        """Resolve a word or a reference."""
        if expr.text in words and "word" in expected_types:
            return Value(expr.text, span=expr.span)
        entry = self.find(expr.text)
        if entry is None and expr.text in self.budgets:
            self.check_type(expr, BOOLEAN_TYPE, expected_types)
            return self.budgets[expr.text]
        if entry is None:
            self.report_unknown_name(expr, words)
            return Value(0, span=expr.span)
        types = types_of(entry.field)
        if not types & expected_types:
            legal = choices_of(entry.field)
            values = f" ({' | '.join(legal)})" if legal and entry.field.type == "word" else ""
            self.report_problem(expr,
                                f"expected {_format_types(expected_types)}, but `{expr.text}` is "
                                f"{_format_types(types)}{values}")
        path, layer = split_layer(expr.text)
        if layer is not None and not entry.field.layer_depth_key:
            self.report_problem(expr, f"`{path}` has one value for all layers",
                                f"write `{path}` without a layer")
        return KeyRef(self.canonical_name(path, entry) + expr.text[len(path):], entry.key,
                      entry.guards, layer, (layer and entry.field.layer_depth_key) or "",
                      span=expr.span)

    def find(self, text: str) -> SchemaEntry | None:
        """The entry of the key or cost that a name refers to."""
        path = split_layer(text)[0]
        entry = self.index.find(path, self.scope)
        if entry is not None and entry.key == self.own_key and self.scope:
            entry = self.index.find(path, self.scope.rpartition(".")[0]) or entry
        if entry is None and self.allows_costs and text in COST_NAMES:
            return SchemaEntry(text, (), COST_FIELD)
        return entry

    def canonical_name(self, text: str, entry: SchemaEntry) -> str:
        """The canonical name: the full path, unless it is another key in this scope.

        A name that an outer group has, too, stays as it is: ``width`` in the decoder.
        """
        if self.index.find(text, "") not in (None, entry):
            return text
        path = next((path for path, other in self.index.entries.items() if other is entry), text)
        return path if self.index.find(path, self.scope) is entry else text

    def report_unknown_name(self, expr: Name, words: tuple[str, ...]) -> None:
        """Report a name that is neither a word nor a key."""
        from scalesearch.tasks import EFFICIENCY_METRICS, METRICS

        scores = METRICS.keys() - EFFICIENCY_METRICS.keys()
        if expr.text in COST_NAMES:
            help = "use costs under `where:` and in budgets"
            self.report_problem(expr,
                                f"`{expr.text}` is a cost, which is known only after all values",
                                help, code="cost-too-early")
        elif "-" in expr.text and self.find(expr.text.partition("-")[0]):
            self.report_problem(expr, f"the key `{expr.text}` does not exist",
                                "a minus sign needs spaces around it", code="unknown-name")
        elif expr.text in self.index.groups:
            children = [path for path in self.index.entries if path.startswith(f"{expr.text}.")]
            help = f"name one of its keys, such as {format_alternatives(children[:2])}"
            self.report_problem(expr, f"`{expr.text}` is a group of keys, not a value", help,
                                code="group-not-value")
        elif self.allows_costs and expr.text.rpartition(".")[2] in scores:
            self.report_problem(expr, f"`{expr.text}` is a score, and budgets limit costs",
                                "measure scores with the `objectives:` of a study",
                                code="unknown-name")
        else:
            what = (f"neither a key nor one of {format_alternatives(words)}" if words
                    else "not a key of this space")
            costs = COST_NAMES if self.allows_costs else ()
            totals = {name.removesuffix(".total"): name
                      for name in costs if name.endswith(".total")}
            match = (totals.get(closest_match(expr.text, totals, 0.75) or "")
                     or self.index.suggest_path(expr.text, (*words, *costs, *self.budgets)))
            suggestion = f"did you mean `{match}`?" if match else None
            if words and not match:
                suggestion = f"the words are {format_alternatives(words)}"
            elif costs and not match:
                group = expr.text.partition(".")[0]
                names = [name for name in costs if name.startswith(f"{group}.")]
                suggestion = f"the costs are {format_alternatives(names or costs)}"
            self.report_problem(expr, f"`{expr.text}` is {what}", suggestion, code="unknown-name")

    def resolve_comparison(self, expr: Compare) -> Expr:
        """Resolve a comparison: each operand with its neighbor."""
        operands = expr.operands
        ops = [op for op, _ in expr.comparisons]
        if any(op not in ("==", "!=") for op in ops):
            resolved = [self.resolve_expr(operand, NUMBER_TYPE, ()) for operand in operands]
        else:
            resolved = [self.resolve_equality_side(operands, index)
                        for index in range(len(operands))]
        comparison = replace(expr, first=resolved[0],
                             comparisons=tuple(zip(ops, resolved[1:], strict=True)))
        for error in byte_unit_errors(comparison):
            self.report_error(error)
        return comparison

    def resolve_equality_side(self, operands: tuple[Expr, ...], index: int) -> Expr:
        """Resolve one side of an equality: a word of the key on the other side, or a key."""
        operand = operands[index]
        other = operands[index - 1] if index else operands[1]
        entry = self.find_key(operand)
        other_entry = self.find_key(other)
        if other_entry and not (_is_word(other, entry) and not _is_word(operand, other_entry)):
            field = other_entry.field
            return self.resolve_expr(operand, types_of(field), choices_of(field))
        if index and entry is other_entry is None and isinstance(operand, Name) and isinstance(
                other, Name):
            return Value(0)  # both are unknown: one message is enough
        return self.resolve_expr(operand, _types_by_form(other), ())

    def find_key(self, expr: Expr) -> SchemaEntry | None:
        """The entry of a name, if it is one of a key or cost."""
        return self.find(expr.text) if isinstance(expr, Name) else None


def byte_unit_errors(comparison: Compare) -> Iterator[ValueSyntaxError]:
    """Yield an error for each number in bytes that is compared with a name in another unit."""
    for pair in pairwise(comparison.operands):
        for number, other in (pair, pair[::-1]):
            if not isinstance(number, Value) or not isinstance(other, Name | KeyRef):
                continue
            if number.has_byte_unit and (DEPRECATED_COST_NAMES.get(other.text, other.text)
                                         not in BYTE_COSTS):
                costs = ", ".join(f"`{name}`" for name in BYTE_COSTS)
                yield ValueSyntaxError(f"`{other.text}` is not a number of bytes", number.span,
                                       f"remove the `B`; costs in bytes are {costs}",
                                       code="not-bytes")


def _is_word(expr: Expr, entry: SchemaEntry | None) -> bool:
    """Whether ``expr`` is a name that is also a legal word of a key."""
    return entry is not None and isinstance(expr, Name) and expr.text in choices_of(entry.field)


def _types_by_form(expr: Expr) -> frozenset[str]:
    """The possible types of an operand, from its form."""
    match expr:
        case Value(bool()) | Compare() | Operation("and" | "or" | "not"):
            return BOOLEAN_TYPE
        case Value(str()) | Name():
            return ANY_TYPE
        case Operation("if", (then, _, other)):
            return _types_by_form(then) | _types_by_form(other)
    return NUMBER_TYPE


def _format_types(types: frozenset[str]) -> str:
    return " or ".join(TYPE_NAMES[type_]
                       for type_ in ("number", "flag", "word", "list", "text") if type_ in types)
