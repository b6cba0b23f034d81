"""Check and convert domains and computed values by the type of a field."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from scalesearch.blocks.sizes import decide, is_array
from scalesearch.spaces.schema.types import MAX_SIZE, SchemaField
from scalesearch.spaces.syntax.diagnostics import format_alternatives, suggest_match
from scalesearch.spaces.syntax.domains import (
    AbsentValueError,
    AlternativesDomain,
    CallDomain,
    ComputedDomain,
    ConstantDomain,
    Domain,
    InfeasibleValueError,
    InvalidDomain,
    LayerReferenceDomain,
    ListDomain,
    PerLayerDomain,
    RangeDomain,
    map_options,
)
from scalesearch.spaces.syntax.expressions import ABSENT, Name, iter_subexpressions
from scalesearch.spaces.syntax.lexer import ValueSyntaxError
from scalesearch.spaces.syntax.parameters import FloatRange, IntRange, format_constant
from scalesearch.spaces.syntax.parser import parse_schedule

ReportError = Callable[[ValueSyntaxError], None]


def describe_field(field: SchemaField) -> str:
    """The legal values of a field, in words."""
    also = f", or {format_alternatives(field.special_values)}" if field.special_values else ""
    low_sign = ">" if field.excludes_low else ">="
    signs = ((low_sign, lower_bound(field)), ("<=", field.high))
    bounds = " and".join(f" {sign} {bound:.12g}" for sign, bound in signs if bound is not None)
    if field.type == "size":
        sizes = format_alternatives(map(format_constant, field.allowed_sizes))
        return f"{sizes if field.allowed_sizes else f'a whole number{bounds}'}{also}"
    if field.type == "word":
        return f"{'one of ' * (len(field.words) > 1)}{format_alternatives(field.words)}{also}"
    if field.type == "list":
        items = "whole numbers"
        if field.words:
            items = f"words, each {format_alternatives(field.words)}"
        return f"a list of {items}{also}"
    if field.type == "schedule":
        calls = format_alternatives(field.calls)
        return f"a schedule (one of {calls}, a list, or a layer of another)"
    return {"number": f"a number{bounds}{also}", "flag": "`yes` or `no`", "text": f"a text{also}",
            "node": field.expected}[field.type]


CHOICE_WORDS = ("choice", "choose", "one_of", "oneof", "categorical", "select", "grid_search",
                "values", "options", "choices", "randchoice")
RANGE_WORDS = ("range", "load", "int", "float", "suggest_int", "suggest_float", "uniform",
               "loguniform", "randint", "lograndint", "quniform", "qloguniform", "log_uniform",
               "integer", "discrete")
EXCLUSIVE_WORDS = ("randint", "lograndint", "range")  # without the upper end, as in Python
LOW_WORDS = ("low", "lower", "min", "minimum", "start", "from", "min_value")
HIGH_WORDS = ("high", "upper", "max", "maximum", "stop", "end", "to", "max_value")
STEP_WORDS = ("step", "q", "step_size")


def equivalent_form(name: str, arguments: Sequence[str]) -> str | None:
    """The text in this language for a call of another tool, such as ``choice(64, 128)``."""
    if name in CHOICE_WORDS and arguments:
        return " | ".join(arguments)
    if name not in RANGE_WORDS or len(arguments) not in (2, 3):
        return None
    low, high, *step = arguments
    if name in EXCLUSIVE_WORDS and all(map(str.isdecimal, arguments)):
        numbers = [int(low), int(high), *(max(int(size), 1) for size in step)]
        high = str((range(*numbers) or [int(high)])[-1])
    return f"{low}..{high}" + "".join(f" step {size}" for size in step) + " log" * ("log" in name)


def equivalent_of_mapping(values: Mapping[str, str | list[str]]) -> str | None:
    """The text in this language for a mapping of another tool, such as ``{min: 1, max: 8}``.

    Args:
        values: key to a text or a list of texts.
    """
    def first(names: Iterable[str]) -> str:
        return next((value for name in names if isinstance(value := values.get(name), str)), "")

    arguments = next((value for name in ("_value", *CHOICE_WORDS)
                      if isinstance(value := values.get(name), list)), None)
    if arguments:
        return equivalent_form(first(("_type", "type", "distribution")) or "choice", arguments)
    low, high, step = map(first, (LOW_WORDS, HIGH_WORDS, STEP_WORDS))
    if not low or not high:
        return None
    is_log = first(("log", "log_scale")) in ("true", "yes") or "log" in first(
        ("_type", "type", "distribution", "scale", "sampling"))
    return f"{low}..{high}" + (f" step {step}" if step and not is_log else "") + " log" * is_log


def lower_bound(field: SchemaField) -> float | None:
    """The lower bound of a number, if it has one."""
    return field.low if field.low is not None else 1 if field.type == "size" else None


def check_domain(spec: Domain, field: SchemaField, paths: Iterable[str],
                 report_error: ReportError) -> Domain:
    """The alternative ``spec`` converted to ``field``.

    The result is an InvalidDomain after a reported problem.
    """
    try:
        return _checked_domain(spec, field, paths)
    except ValueSyntaxError as problem:
        report_error(problem)
        return InvalidDomain(span=spec.span)


def _checked_domain(spec: Domain, field: SchemaField, paths: Iterable[str]) -> Domain:
    match spec:
        case ConstantDomain():
            return _literal(spec, field, paths)
        case RangeDomain():
            return _range(spec, field)
        case ListDomain(values, spans) if field.layer_depth_key and values:
            whole = spans or tuple(spec.span for _ in values)
            items = tuple(ConstantDomain(value, span=span)
                          for value, span in zip(values, whole, strict=True))
            return _per_layer(PerLayerDomain(items, span=spec.span), field, paths)
        case CallDomain("ramp", (_, _)) if field.layer_depth_key and not field.allowed_sizes:
            return _per_layer(PerLayerDomain(spec.arguments, True, span=spec.span), field, paths)
        case PerLayerDomain():
            return _per_layer(spec, field, paths)
        case ListDomain():
            return _items(spec, field)
        case CallDomain():
            return _call(spec, field)
        case ComputedDomain():
            return replace(spec, coerce=partial(coerce_value, field))
        case LayerReferenceDomain(reference):
            if field.type != "schedule":
                raise ValueSyntaxError(f"expected {describe_field(field)}, found a layer of "
                                       "another schedule", spec.span)
            for name in iter_subexpressions(reference.index):
                if isinstance(name, Name) and name.text != "i":
                    raise ValueSyntaxError(f"unknown name `{name.text}` in an index", name.span,
                                        "the layer's own number is `i`", code="unknown-name")
    return spec


def _per_layer(spec: PerLayerDomain, field: SchemaField, paths: Iterable[str]) -> Domain:
    """A list or a ramp of the sizes of a stack's layers.

    Sizes are constants, ranges, and choices of these.
    """

    def fitted(item: Domain) -> Domain:
        if not isinstance(item, ConstantDomain | RangeDomain) or (
                isinstance(item, ConstantDomain) and isinstance(item.value, str)):
            raise ValueSyntaxError(
                "the size of a layer is a number, a range, or a choice of these", item.span,
                "for sizes that depend on others, give the key one `= …` for all layers")
        return _checked_domain(item, field, paths)

    if field.layer_depth_key is None:
        wrong = next(item for item in spec.items if not isinstance(item, ConstantDomain))
        raise ValueSyntaxError("a list holds constants only", wrong.span,
                               "a list is always a value, never a choice", code="bad-syntax")
    items = tuple(map_options(item, fitted) for item in spec.items)
    return replace(spec, items=items, depth_key=field.layer_depth_key,
                   is_integer=field.type == "size")


def _literal(spec: ConstantDomain, field: SchemaField, paths: Iterable[str]) -> Domain:
    value = spec.value
    if field.type == "text" or (isinstance(value, str) and value in field.special_values):
        return spec
    if field.type in ("size", "number"):
        return replace(spec, value=_number(spec, field, paths))
    if field.type == "flag" and isinstance(value, bool):
        return spec
    if field.type == "schedule" and isinstance(value, str):
        return _call(CallDomain(value, span=spec.span), field)
    if field.type == "word" and format_constant(value) in field.words:
        return replace(spec, value=format_constant(value))
    if field.type == "list" and not spec.quoted:
        raise ValueSyntaxError(f"`{format_constant(value)}` is not a list", spec.span,
                               f"write `[{format_constant(value)}]`")
    raise _not_legal(spec, field, paths)


def _not_legal(spec: ConstantDomain, field: SchemaField, paths: Iterable[str]) -> ValueSyntaxError:
    text = format_constant(spec.value)
    words = {"flag": ("yes", "no"), "word": field.words,
             "schedule": tuple(field.calls)}.get(field.type, field.special_values)
    if isinstance(spec.value, str):
        if spec.value in paths or "." in spec.value:
            return ValueSyntaxError(f"`{text}` names a key, not a value", spec.span,
                                 f"for the same value, write `= {text}`")
        return ValueSyntaxError(f"`{text}` is not {describe_field(field)}", spec.span,
                                field.foreign_words.get(text.lower())
                                or suggest_match(text, words, field.unknown_word_help)
                                if words else None)
    kind = "yes/no" if isinstance(spec.value, bool) else "a number"
    return ValueSyntaxError(f"expected {describe_field(field)}, found {kind}", spec.span)


def _number(spec: ConstantDomain, field: SchemaField, paths: Iterable[str]) -> int | float:
    value = spec.value
    if isinstance(value, str) and not (value in paths or "." in value):
        help = suggest_match(value, field.special_values) if field.special_values else None
        raise ValueSyntaxError(f"expected {describe_field(field)}, found the word `{value}`",
                               spec.span, help)
    if isinstance(value, str | bool):
        raise _not_legal(spec, field, paths)
    if field.type == "size" and value == int(value):  # 64.0
        value = int(value)
    if field.type == "size" and not isinstance(value, int):
        raise ValueSyntaxError(f"{format_constant(value)} is not a whole number", spec.span,
                               f"expected {describe_field(field)}")
    reason = bounds_error(value, field)
    if reason:
        raise ValueSyntaxError(reason, spec.span)
    return value if field.type == "size" else float(value)


def bounds_error(value: Any, field: SchemaField) -> str | None:
    """The reason why ``value`` is not legal in ``field``, or None.

    The value is a number or an array.
    """
    low = lower_bound(field)
    if field.type == "size" and decide(value > MAX_SIZE):
        return f"{format_constant(value)} is too large: sizes are at most {MAX_SIZE:,}"
    is_low = low is not None and decide(value <= low if field.excludes_low else value < low)
    if is_low or (field.high is not None and decide(value > field.high)):
        return f"{format_constant(value)} is out of bounds: expected {describe_field(field)}"
    if field.allowed_sizes and not is_array(value) and value not in field.allowed_sizes:
        return f"{format_constant(value)} is not legal: expected {describe_field(field)}"
    return None


def _range(spec: RangeDomain, field: SchemaField) -> Domain:
    parameter = spec.parameter
    if field.type not in ("size", "number"):
        raise ValueSyntaxError(f"expected {describe_field(field)}, found a range of numbers",
                               spec.span)
    if field.type == "size" and isinstance(parameter, FloatRange):
        numbers = (parameter.low, parameter.high, parameter.step or 1.0)
        if all(map(float.is_integer, numbers)):  # 16.0..64.0
            low, high, size = map(int, numbers)
            parameter = IntRange(low, high, size, parameter.log)
            spec = replace(spec, parameter=parameter)
    if field.type == "size" and isinstance(parameter, FloatRange):
        raise ValueSyntaxError("this range has ends or steps that are not whole numbers", spec.span,
                               f"expected {describe_field(field)}")
    reason = bounds_error(parameter.low, field) or bounds_error(parameter.high, field)
    if reason:
        raise ValueSyntaxError(reason, spec.span)
    if field.allowed_sizes:
        legal = [value for value in field.allowed_sizes if parameter.low <= value <= parameter.high]
        help = f"write `{' | '.join(map(format_constant, legal))}`"
        raise ValueSyntaxError(f"expected {describe_field(field)}, found a range", spec.span, help)
    if field.type == "number" and isinstance(parameter, IntRange):
        # 0..4 of a number is all numbers in between
        step = float(parameter.step) if parameter.step != 1 else None
        return replace(spec, parameter=FloatRange(float(parameter.low), float(parameter.high),
                                                  step, parameter.log))
    return spec


def _items(spec: ListDomain, field: SchemaField) -> Domain:
    if field.type not in ("list", "schedule"):
        help = (f"for one of these, write `{' | '.join(map(format_constant, spec.values))}`"
                if spec.values else None)
        raise ValueSyntaxError(f"expected {describe_field(field)}, found a list, which is always "
                               "one value", spec.span, help)
    spans = spec.spans or tuple(spec.span for _ in spec.values)
    for value, span in zip(spec.values, spans, strict=True):
        if isinstance(value, tuple) and not (value and field.allows_nested):
            raise ValueSyntaxError("an empty list" if not value else "this list holds no lists",
                                   span)
        if field.words and field.type == "list":
            for word in value if isinstance(value, tuple) else (value,):
                if isinstance(word, tuple) or word not in field.words:
                    raise ValueSyntaxError(f"`{format_constant(word)}` is not a word of this list",
                                           span, suggest_match(format_constant(word), field.words))
        elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueSyntaxError(f"`{format_constant(value)}` is not a whole number >= 0", span)
    if field.type == "schedule" and not spec.values:
        raise ValueSyntaxError("a schedule cannot be an empty list", spec.span)
    return replace(spec, is_schedule=field.type == "schedule")


def _call(spec: CallDomain, field: SchemaField) -> Domain:
    if field.type != "schedule":
        arguments = list(map(str, spec.arguments))
        text = f"a call of `{spec.name}`"
        form = equivalent_form(spec.name, arguments)
        if spec.is_load:  # 64-128
            text = f"`{'-'.join(arguments)}`"
            is_range = field.type in ("size", "number") and len(arguments) == 2 and (
                float(arguments[0]) < float(arguments[1]))
            form = form if is_range else None
        raise ValueSyntaxError(f"expected {describe_field(field)}, found {text}", spec.span,
                               f"write `{form}`" if form else field.unknown_word_help or None)
    legal = field.calls.get(spec.name)
    if legal is None:
        span = (spec.span[0], spec.span[0] + len(spec.name))
        raise ValueSyntaxError(f"`{spec.name}` is not a schedule", span,
                               suggest_match(spec.name, field.calls), code="unknown-schedule")
    count = len(spec.arguments)
    if count < legal.min_arguments or (legal.max_arguments is not None
                                       and count > legal.max_arguments):
        most = ("" if legal.max_arguments == legal.min_arguments else " or more"
                if legal.max_arguments is None else f" to {legal.max_arguments}")
        many = "argument" if legal.min_arguments == 1 and not most else "arguments"
        raise ValueSyntaxError(f"`{spec.name}` takes {legal.min_arguments}{most} {many}, not "
                               f"{count}", spec.span, legal.doc or None)
    for argument in spec.arguments:
        _check_argument(argument)
    return spec


def _check_argument(argument: Domain) -> None:
    match argument:
        case ConstantDomain(int() as value) if not isinstance(value, bool) and value >= 1:
            return
        case RangeDomain(IntRange(low)) if low >= 1:
            return
        case AlternativesDomain(options):
            for option in options:
                _check_argument(option)
            return
    raise ValueSyntaxError("an argument of a schedule is a whole number >= 1, or a choice of these",
                           argument.span)


def coerce_value(field: SchemaField, value: Any, computed: ComputedDomain) -> Any:
    """Convert the ``value`` of ``computed`` to the type of ``field``.

    The value may be an array of values.

    Raises:
        InfeasibleValueError: the value is not legal.
        PopulationSplitError: it is legal for a part of a population only.
    """
    if value is ABSENT:
        raise AbsentValueError(f"{computed} has no value")
    if isinstance(value, str) and value in field.special_values:
        return value
    if field.layer_depth_key and isinstance(value, list):
        sizes = [coerce_value(field, size, computed) for size in value]
        return sizes if any(map(is_array, sizes)) or len(set(sizes)) > 1 else sizes[0]
    if field.type in ("size", "number") and not isinstance(value, str | bool):
        whole = field.type == "size"
        if whole and decide(value % 1 != 0):
            raise InfeasibleValueError(f"{computed} is {format_constant(value)}, which is not a "
                                       "whole number")
        if reason := bounds_error(value, field):
            raise InfeasibleValueError(f"{computed}: {reason}")
        if is_array(value):
            return value.astype("int64" if whole else "float64")
        return int(value) if whole else float(value)
    if field.type == "schedule":
        return parse_schedule(value)
    if field.type in ("list", "text") or (field.type == "flag" and isinstance(value, bool)):
        return value
    if field.type == "word" and format_constant(value) in field.words:
        return format_constant(value)
    raise InfeasibleValueError(f"{computed} is {format_constant(value)}; expected "
                               f"{describe_field(field)}")
