"""Parsing, formatting and evaluation of values and expressions."""

import math
import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.spaces.syntax.domains import (
    AlternativesDomain,
    CallDomain,
    ComputedDomain,
    ConditionalDomain,
    ConstantDomain,
    LayerReference,
    LayerReferenceDomain,
    ListDomain,
    RangeDomain,
)
from scalesearch.spaces.syntax.expressions import (
    ABSENT,
    Compare,
    EvaluationError,
    KeyRef,
    Name,
    Operation,
    Value,
    evaluate,
    format_expr,
)
from scalesearch.spaces.syntax.lexer import ValueSyntaxError
from scalesearch.spaces.syntax.parameters import FloatRange, IntRange
from scalesearch.spaces.syntax.parser import parse_expression, parse_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("512", 512), ("-3", -3), ("0.5", 0.5), ("1e-3", 0.001), ("1e3", 1000), ("10M", 10_000_000),
        ("1.5G", 1_500_000_000), ("2k", 2000), ("1_000", 1000), ("0.0015k", 1.5), ("yes", True),
        ("no", False), ("true", True), ("post", "post"), ("h-softpos", "h-softpos"),
        ("'a b'", "a b"), ('"512"', "512"),
    ],
)
def test_constants(text, value):
    spec = parse_value(text)
    assert spec == ConstantDomain(value)
    assert type(spec.value) is type(value)


@pytest.mark.parametrize(("value", "text"),
                         [(9_000, "9000"), (10_000, "10k"), (250_000, "250k"), (12_300, "12.3k"),
                          (12_345, "12345"), (999_900, "999.9k"), (4_000_000, "4M"),
                          (1_500_000_000, "1.5G"), (-250_000, "-250000")])
def test_round_sizes_are_formatted_with_units(value, text):
    assert format_expr(Value(value)) == text and parse_value(text).value == value


@pytest.mark.parametrize(
    ("text", "spec"),
    [("256..512 step 64", RangeDomain(IntRange(256, 512, 64))),
     ("-4..4", RangeDomain(IntRange(-4, 4))),
     ("0.005..0.2 log", RangeDomain(FloatRange(0.005, 0.2, None, True))),
     ("0..1 step 0.25", RangeDomain(FloatRange(0.0, 1.0, 0.25))),
     ("1M..2M log", RangeDomain(IntRange(10**6, 2 * 10**6, 1, True))),
     ("2 | 4", AlternativesDomain((ConstantDomain(2), ConstantDomain(4)))),
     ("2 | 2", ConstantDomain(2)),
     ("yes | 1", AlternativesDomain((ConstantDomain(True), ConstantDomain(1)))),
     ("[6, 6, 4]", ListDomain((6, 6, 4))),
     ("6-6", CallDomain("load", (ConstantDomain(6), ConstantDomain(6)))),
     ("4-4-4", CallDomain("load", (ConstantDomain(4), ConstantDomain(4), ConstantDomain(4)))),
     ("own | 3-3-3-3",
      AlternativesDomain((ConstantDomain("own"), CallDomain("load", (ConstantDomain(3),) * 4)))),
     ("own | cycle(1..4)",
      AlternativesDomain((ConstantDomain("own"),
                          CallDomain("cycle", (RangeDomain(IntRange(1, 4)),))))),
     ("a.b[2*i + 1]", LayerReferenceDomain(LayerReference("a.b", parse_expression("2*i + 1")))),
     ("= 4 * width", ComputedDomain(Operation("*", (Value(4), Name("width"))))),
     ("1 | 2 if a else 3",
      ConditionalDomain(parse_value("1 | 2"), Name("a"), ConstantDomain(3))),
     ("1 if a else 2 if b else 3",
      ConditionalDomain(ConstantDomain(1), Name("a"), parse_value("2 if b else 3"))),
     ("= 1 if a else 2", ComputedDomain(Operation("if", (Value(1), Name("a"), Value(2)))))])
def test_values(text, spec):
    assert parse_value(text) == spec
    assert parse_value(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("4 +", (2, 3)), ("1..", (3, 4)), ("2 | | 3", (4, 5)), ("cycle(1", (7, 8)),
        ("[1, 2", (5, 6)), ("a b", (2, 3)), ("= (1", (4, 5)), ("1 if a", (6, 7)),
        ("'abc", (0, 4)), ("3 $ 4", (2, 3)), ("else", (0, 4)), ("[a..b]", (2, 4)),
        ("1e999", (0, 5)), ("9" * 50, (0, 50)), ("1..2 step 0.0000001", (10, 19)),
    ],
)
def test_syntax_errors_have_the_span_of_the_mistake(text, span):
    with pytest.raises(ValueSyntaxError) as caught:
        parse_value(text)
    assert caught.value.span == span


NUMBERS = st.one_of(st.integers(-50, 5000),
                    st.sampled_from([0.5, 1e-7, 12.25, 10**7, 15 * 10**8, 10**6 + 1]))
LEAVES = st.one_of(NUMBERS.map(Value),
                   st.sampled_from([Name("width"), Name("encoder.ffn.hidden"), Name("h-softpos"),
                                    Value(True), Value("a b")]))


def _grow(inner):
    pair = st.tuples(inner, inner)
    ops = st.sampled_from(["+", "-", "*", "/", "//", "%", "**"])
    comparisons = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    return st.one_of(
        st.tuples(ops, pair).map(lambda t: Operation(*t)),
        inner.filter(lambda e: not isinstance(e, Value)).map(lambda e: Operation("-", (e,))),
        inner.map(lambda e: Operation("not", (e,))),
        st.tuples(inner, st.lists(st.tuples(comparisons, inner), min_size=1, max_size=2)).map(
            lambda t: Compare(t[0], tuple(t[1]))
        ),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)).map(
            lambda t: Operation(t[0], tuple(t[1]))
        ),
        st.tuples(inner, inner, inner).map(lambda t: Operation("if", t)),
        inner.map(lambda e: Operation("sqrt", (e,))),
        pair.map(lambda t: Operation("max", t)),
    )


@given(st.recursive(LEAVES, _grow, max_leaves=12))
@settings(max_examples=300)
def test_expressions_round_trip(expr):
    assert parse_expression(format_expr(expr)) == expr


SAFE = st.recursive(
    st.integers(1, 9).map(lambda n: (Value(n), n)),
    lambda inner: st.tuples(st.sampled_from([("+", operator.add), ("-", operator.sub),
                                             ("*", operator.mul), ("/", operator.truediv)]), inner,
                            inner).map(lambda t: (Operation(t[0][0], (t[1][0], t[2][0])),
                                                  _or_none(t[0][1], t[1][1], t[2][1]))),
    max_leaves=8)


def _or_none(op, left, right):
    try:
        return op(left, right)
    except (ZeroDivisionError, TypeError):
        return None


@given(SAFE)
def test_arithmetic_agrees_with_python(pair):
    expr, expected = pair
    try:
        value = evaluate(expr, {}.__getitem__)
    except EvaluationError:
        assert expected is None or abs(expected) < 1e-9 or not math.isfinite(expected)
    else:
        assert expected is None or value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", 14), ("(2 + 3) * 4", 20), ("2 ** 3 ** 2", 512), ("-2 ** 2", -4),
        ("7 // 2", 3), ("7 % 4", 3), ("512 / 4", 128), ("7 / 2", 3.5), ("min(3, 2, 5)", 2),
        ("max(4)", 4), ("floor(2.7)", 2), ("ceil(2.1)", 3), ("round(2.6)", 3), ("sqrt(16)", 4.0),
        ("log(1)", 0.0), ("1 < 2 < 3", True), ("1 < 3 < 2", False),
        ("not 1 == 2 and 2 == 2", True), ("1 if 2 > 3 else 4", 4), ("yes != no", True),
        ("10M == 10000000", True),
    ],
)
def test_values_of_expressions(text, value):
    result = evaluate(parse_expression(text), {}.__getitem__)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize("text",
                         ["1 / 0", "1 % 0", "log(0)", "sqrt(-1)", "10 ** 10 ** 10", "(-8) ** 0.5",
                          "1e300 * 1e300"])
def test_undefined_values_raise_evaluation_errors(text):
    with pytest.raises(EvaluationError):
        evaluate(parse_expression(text), {}.__getitem__)


@pytest.mark.parametrize(("text", "column"), [
    ("params.total <= 10M macs.total <= 2G", 20), ("(a >= 1 and b <= 2G c == 3) or d > 1", 20)])
def test_comparisons_without_and_get_it_at_the_second_one(text, column):
    with pytest.raises(ValueSyntaxError) as caught:
        parse_expression(text)
    name = text[column:].split()[0]
    assert caught.value.code == "bad-syntax" and caught.value.span[0] == column
    assert f"`and` before `{name}`" in str(caught.value.help)


MISSING = KeyRef("x", "x")
YES = Value(True)
NO = Value(False)


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        (Compare(MISSING, (("<", Value(3)),)), ABSENT),
        (Operation("not", (Compare(MISSING, (("==", Value(3)),)),)), ABSENT),
        (Operation("+", (MISSING, Value(1))), ABSENT),
        (Operation("and", (MISSING, NO)), False),
        (Operation("and", (MISSING, YES)), ABSENT),
        (Operation("or", (MISSING, YES)), True),
        (Operation("or", (MISSING, NO)), ABSENT),
        (Operation("if", (Value(1), MISSING, Value(2))), 2),
        (Compare(Value("off"), (("<=", Value(0.1)),)), ABSENT),
        (Compare(Value("off"), (("==", Value(0.1)),)), False),
    ],
)
def test_missing_key_is_neither_true_nor_false(expr, value):
    assert evaluate(expr, {}.__getitem__) is value or evaluate(expr, {}.__getitem__) == value
