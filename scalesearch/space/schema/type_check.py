"""Checks domains and computed values against fields, and converts them to the field's type."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from scalesearch.blocks.sizes import decide, is_array
from scalesearch.space.schema.types import Field
from scalesearch.space.syntax.choices import Alternatives, Computed, PerLayer, each_option
from scalesearch.space.syntax.diagnostics import either, suggest
from scalesearch.space.syntax.domains import Between, Broken, CallOf, Fault, Indexed, Items, Literal, Spec
from scalesearch.space.syntax.evaluator import ABSENT
from scalesearch.space.syntax.expressions import Name, walk
from scalesearch.space.syntax.lexer import SyntaxProblem
from scalesearch.space.syntax.parameters import FloatRange, IntRange, say
from scalesearch.space.syntax.value_parser import parse_schedule

Complain = Callable[[SyntaxProblem], None]


def describe(field: Field) -> str:
    """The legal values of a field, in words."""
    also = f", or {either(field.also)}" if field.also else ""
    signs = ((">=", lowest(field)), ("<=", field.high))
    bounds = " and".join(f" {sign} {bound:.12g}" for sign, bound in signs if bound is not None)
    return {"size": either(map(say, field.among)) + also if field.among else f"a whole number{bounds}{also}",
            "number": f"a number{bounds}{also}",
            "word": f"{'one of ' * (len(field.words) > 1)}{either(field.words)}{also}", "flag": "`yes` or `no`",
            "schedule": f"a schedule (one of {either(field.calls)}, a list, or a layer of another)",
            "list": f"a list of {'words, each ' + either(field.words) if field.words else 'whole numbers'}{also}",
            "text": f"a text{also}", "node": field.form}[field.kind]


def lowest(field: Field) -> float | None:
    """The least value of a number, if it has one."""
    return field.low if field.low is not None else 1 if field.kind == "size" else None


def fit(spec: Spec, field: Field, paths: Iterable[str], complain: Complain) -> Spec:
    """``spec``, one alternative, with its constants settled; Broken after a complaint where it does not fit."""
    try:
        return _fit(spec, field, paths)
    except SyntaxProblem as problem:
        complain(problem)
        return Broken(span=spec.span)


def _fit(spec: Spec, field: Field, paths: Iterable[str]) -> Spec:
    match spec:
        case Literal():
            return _literal(spec, field, paths)
        case Between():
            return _range(spec, field)
        case Items(values, spans) if field.layers and values:
            whole = spans or tuple(spec.span for _ in values)
            items = tuple(Literal(value, span=span) for value, span in zip(values, whole, strict=True))
            return _per_layer(PerLayer(items, span=spec.span), field, paths)
        case CallOf("ramp", (_, _)) if field.layers and not field.among:
            return _per_layer(PerLayer(spec.arguments, True, span=spec.span), field, paths)
        case PerLayer():
            return _per_layer(spec, field, paths)
        case Items():
            return _items(spec, field)
        case CallOf():
            return _call(spec, field)
        case Computed():
            return replace(spec, settle=partial(settle, field))
        case Indexed(_, index):
            if field.kind != "schedule":
                raise SyntaxProblem(f"expected {describe(field)}, found a layer of another schedule", spec.span)
            for name in walk(index):
                if isinstance(name, Name) and name.text != "i":
                    raise SyntaxProblem(f"unknown name `{name.text}` in an index", name.span,
                                        "the layer's own number is `i`", code="unknown-name")
    return spec


def _per_layer(spec: PerLayer, field: Field, paths: Iterable[str]) -> Spec:
    """A list, or a ramp, of sizes of a stack's layers: constants, ranges, and choices of these."""

    def fitted(item: Spec) -> Spec:
        if not isinstance(item, Literal | Between) or (isinstance(item, Literal) and isinstance(item.value, str)):
            raise SyntaxProblem("the size of a layer is a number, a range, or a choice of these", item.span,
                                "for sizes that depend on others, give the key one `= …` for all layers")
        return _fit(item, field, paths)

    if field.layers is None:
        wrong = next(item for item in spec.items if not isinstance(item, Literal))
        raise SyntaxProblem("a list holds constants only", wrong.span, "a list is always a value, never a choice",
                            code="bad-syntax")
    items = tuple(each_option(item, fitted) for item in spec.items)
    return replace(spec, items=items, depth=field.layers, whole=field.kind == "size")


def _literal(spec: Literal, field: Field, paths: Iterable[str]) -> Spec:
    value = spec.value
    if field.kind == "text" or (isinstance(value, str) and value in field.also):
        return spec
    if field.kind in ("size", "number"):
        return replace(spec, value=_number(spec, field, paths))
    if field.kind == "flag" and isinstance(value, bool):
        return spec
    if field.kind == "schedule" and isinstance(value, str):
        return _call(CallOf(value, span=spec.span), field)
    if field.kind == "word" and say(value) in field.words:
        return replace(spec, value=say(value))
    if field.kind == "list" and not spec.quoted:
        raise SyntaxProblem(f"`{say(value)}` is not a list", spec.span, f"write `[{say(value)}]`")
    raise _not_legal(spec, field, paths)


def _not_legal(spec: Literal, field: Field, paths: Iterable[str]) -> SyntaxProblem:
    text = say(spec.value)
    words = {"flag": ("yes", "no"), "word": field.words, "schedule": tuple(field.calls)}.get(field.kind, field.also)
    if isinstance(spec.value, str):
        if spec.value in paths or "." in spec.value:
            return SyntaxProblem(f"`{text}` names a key, not a value", spec.span,
                                 f"for the same answer, write `= {text}`")
        return SyntaxProblem(f"`{text}` is not {describe(field)}", spec.span, suggest(text, words) if words else None)
    kind = "yes/no" if isinstance(spec.value, bool) else "a number"
    return SyntaxProblem(f"expected {describe(field)}, found {kind}", spec.span)


def _number(spec: Literal, field: Field, paths: Iterable[str]) -> int | float:
    value = spec.value
    if isinstance(value, str) and not (value in paths or "." in value):
        help = suggest(value, field.also) if field.also else None
        raise SyntaxProblem(f"expected {describe(field)}, found the word `{value}`", spec.span, help)
    if isinstance(value, str | bool):
        raise _not_legal(spec, field, paths)
    if field.kind == "size" and not isinstance(value, int):
        raise SyntaxProblem(f"{say(value)} is not a whole number", spec.span, f"expected {describe(field)}")
    reason = out_of_bounds(value, field)
    if reason:
        raise SyntaxProblem(reason, spec.span)
    return value if field.kind == "size" else float(value)


def out_of_bounds(value: Any, field: Field) -> str | None:
    """The reason why ``value``, a number or an array, is not legal in ``field``, or ``None``."""
    low = lowest(field)
    if (low is not None and decide(value < low)) or (field.high is not None and decide(value > field.high)):
        return f"{say(value)} is out of bounds: expected {describe(field)}"
    if field.among and not is_array(value) and value not in field.among:
        return f"{say(value)} is not legal: expected {describe(field)}"
    return None


def _range(spec: Between, field: Field) -> Spec:
    given = spec.range
    if field.kind not in ("size", "number"):
        raise SyntaxProblem(f"expected {describe(field)}, found a range of numbers", spec.span)
    if field.kind == "size" and isinstance(given, FloatRange):
        raise SyntaxProblem("this range is not one of whole numbers", spec.span, f"expected {describe(field)}")
    reason = out_of_bounds(given.low, field) or out_of_bounds(given.high, field)
    if reason:
        raise SyntaxProblem(reason, spec.span)
    if field.among:
        legal = [value for value in field.among if given.low <= value <= given.high]
        help = f"write `{' | '.join(map(say, legal))}`"
        raise SyntaxProblem(f"expected {describe(field)}, found a range", spec.span, help)
    if field.kind == "number" and isinstance(given, IntRange):
        step = float(given.step) if given.step != 1 else None  # 0..4 of a number is all numbers in between
        return replace(spec, range=FloatRange(float(given.low), float(given.high), step, given.log))
    return spec


def _items(spec: Items, field: Field) -> Spec:
    if field.kind not in ("list", "schedule"):
        help = f"for one of these, write `{' | '.join(map(say, spec.values))}`" if spec.values else None
        raise SyntaxProblem(f"expected {describe(field)}, found a list, which is always one value", spec.span, help)
    spans = spec.spans or tuple(spec.span for _ in spec.values)
    for value, span in zip(spec.values, spans, strict=True):
        if isinstance(value, tuple) and not (value and field.nested):
            raise SyntaxProblem("an empty list" if not value else "this list holds no lists", span)
        if field.words and field.kind == "list":
            for word in value if isinstance(value, tuple) else (value,):
                if isinstance(word, tuple) or word not in field.words:
                    raise SyntaxProblem(f"`{say(word)}` is not a word of this list", span,
                                        suggest(say(word), field.words))
        elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise SyntaxProblem(f"`{say(value)}` is not a whole number >= 0", span)
    if field.kind == "schedule" and not spec.values:
        raise SyntaxProblem("a schedule cannot be an empty list", spec.span)
    return replace(spec, schedule=field.kind == "schedule")


def _call(spec: CallOf, field: Field) -> Spec:
    if field.kind != "schedule":
        text = "a load" if spec.bare else f"a call of `{spec.name}`"
        raise SyntaxProblem(f"expected {describe(field)}, found {text}", spec.span)
    legal = field.calls.get(spec.name)
    if legal is None:
        span = (spec.span[0], spec.span[0] + len(spec.name))
        raise SyntaxProblem(f"`{spec.name}` is not a schedule", span, suggest(spec.name, field.calls),
                            code="unknown-schedule")
    count = len(spec.arguments)
    if count < legal.minimum or (legal.maximum is not None and count > legal.maximum):
        most = "" if legal.maximum == legal.minimum else " or more" if legal.maximum is None else f" to {legal.maximum}"
        many = "argument" if legal.minimum == 1 and not most else "arguments"
        raise SyntaxProblem(f"`{spec.name}` takes {legal.minimum}{most} {many}, not {count}", spec.span,
                            legal.doc or None)
    for argument in spec.arguments:
        _check_argument(argument)
    return spec


def _check_argument(argument: Spec) -> None:
    match argument:
        case Literal(int() as value) if not isinstance(value, bool) and value >= 1:
            return
        case Between(IntRange(low)) if low >= 1:
            return
        case Alternatives(options):
            for option in options:
                _check_argument(option)
            return
    raise SyntaxProblem("an argument of a schedule is a whole number >= 1, or a choice of these", argument.span)


def settle(field: Field, value: Any, source: Computed) -> Any:
    """The ``value`` of ``source`` in the type of ``field``; of a population, all members'. Raises Fault, Split."""
    if value is ABSENT:
        raise Fault(f"{source} refers to a key that does not exist here")
    if isinstance(value, str) and value in field.also:
        return value
    if field.layers and isinstance(value, list):
        each = [settle(field, one, source) for one in value]
        return each if any(map(is_array, each)) or len(set(each)) > 1 else each[0]
    if field.kind in ("size", "number") and not isinstance(value, str | bool):
        whole = field.kind == "size"
        if whole and decide(value % 1 != 0):
            raise Fault(f"{source} is {say(value)}, which is not a whole number")
        if reason := out_of_bounds(value, field):
            raise Fault(f"{source}: {reason}")
        if is_array(value):
            return value.astype("int64" if whole else "float64")
        return int(value) if whole else float(value)
    if field.kind == "schedule":
        return parse_schedule(value)
    if field.kind in ("list", "text") or (field.kind == "flag" and isinstance(value, bool)):
        return value
    if field.kind == "word" and say(value) in field.words:
        return say(value)
    raise Fault(f"{source} is {say(value)}; expected {describe(field)}")
