"""Forms of other tools are read; other forms get an error with the form of this language."""

import re

import pytest

from scalesearch.spaces import ConfigError, Space
from scalesearch.spaces.syntax.diagnostics import closest_match
from scalesearch.spaces.syntax.lexer import UNIT_SCALES
from scalesearch.terminal import format_bytes
from tests.errors import refuses


@pytest.mark.parametrize(("text", "same"), [
    ("64.0", "64"), ("64 | 128.0", "64 | 128"), ("16.0..64.0", "16..64"),
    ("16.0..64.0 step 16", "16..64 step 16"), ("1.5 k", "1500"), ("2 k | 64", "2000 | 64"),
    ("2 MB", "2M"), ("2 KiB", "2048"), ("1MiB", "1048576"), ("0.5 GiB", "536870912")])
def test_equivalent_numbers_are_read(text: str, same: str) -> None:
    assert Space.parse(f"width: {text}") == Space.parse(f"width: {same}")


@pytest.mark.parametrize(("text", "form"), [
    ("16...64", "16..64"), ("16 to 64", "16..64"), ("16-64", "16..64"),
    ("1,500,000", "1_500_000"), ("64,128", "64 | 128"), ("0,5", "0.5"), ("1.000.000", "1M"),
    ("{min: 16, max: 64}", "16..64"),
    ("{low: 16, high: 64, step: 16}", "16..64 step 16"),
    ("{lower: 16, upper: 64, log: true}", "16..64 log"),
    ("{_type: choice, _value: [64, 128]}", "64 | 128"), ("{values: [64, 128]}", "64 | 128"),
    ("{_type: randint, _value: [16, 64]}", "16..63"),  # without the upper end, as in NNI
    ("{type: loguniform, low: 16, high: 64}", "16..64 log"), ("choice(64, 128)", "64 | 128"),
    ("uniform(16, 64)", "16..64"), ("loguniform(16, 64)", "16..64 log"),
    ("range(16, 64, 16)", "16..48 step 16"), ("[64, 128]", "64 | 128")])
def test_other_forms_get_the_right_one(text: str, form: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse(f"width: {text}")
    (problem,) = caught.value.problems
    assert f"`{form}`" in str(problem.help) and problem.position.line == 0


@pytest.mark.parametrize(("line", "shown", "form"), [
    ("width: 64 - 128", "`64-128`", "`64..128`"), ("width: 8 - 2", "`8-2`", None),
    ("width: 6-6-6", "`6-6-6`", None), ("norm: 3-4", "`3-4`", None)])
def test_number_with_a_hyphen_is_a_range_only_of_numbers(
        line: str, shown: str, form: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse(f"{line}\n")
    problem = next(problem for problem in caught.value.problems if problem.code == "bad-value")
    assert shown in problem.message and "load" not in problem.message
    assert (form is None) == (problem.help is None) and str(form or "") in str(problem.help)


@pytest.mark.parametrize(("number", "forms", "column"), [
    ("1,000,000", "`1M` or `1_000_000`", 8), ("1.234.000", "`1_234k` or `1_234_000`", 12),
    ("100,000,000,000,000,000,001", "`100_000_000_000_000_000_001`", 10),
    ("100,000,000,000,000,000,000", "`100_000P` or", 10), ("1,000, width > 2", "`1k` or", 8),
    ("1000, width > 2", "`and`", 11), ("1,0000", "`1.0000`", 8), ("0,6M", "`0.6M`", 8),
    ("0,600 M", "`0.600 M`", 8)])
def test_grouped_digits_of_a_limit_get_the_right_form(
        number: str, forms: str, column: int) -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse(f"width: 8\nwhere:\n  - 4 < {number}")
    problem = caught.value.problems[0]
    assert (problem.code, problem.position.column) == ("bad-syntax", column + 1)
    assert forms in str(problem.help)


@pytest.mark.parametrize(("text", "form"), [
    ("5%", "0.05"), ("0 | 12.5 %", "0.125"), ("5%..10%", "0.05"), ("= 7% * width", "0.07"),
    ("= width * 7%", "0.07"), ("5 % 3", "= 5 % 3"), ("5 % (3)", "= 5 % (3)")])
def test_percentages_get_the_number(text: str, form: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse(f"width: 8\ntensor_chain.ffn: {text}")
    problem = caught.value.problems[0]
    assert (problem.code, problem.position.line) == ("bad-syntax", 1)
    assert f"`{form}`" in str(problem.help)


@pytest.mark.parametrize("text", ["64.5", "16.5..64", "{min: 16}", "choice()", "f(16, 64)",
                                  "1,50", "64 million"])
def test_other_texts_are_refused_at_their_position(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse(f"width: {text}")
    assert all(problem.position.column >= 7 for problem in caught.value.problems)


@pytest.mark.parametrize("text", [
    "width:\t64", "width:\xa064", "width: 64\nencoder:\n\xa0\u202fdepth:\t\xa0= 2\xa0* 3",
    "width: 64\nwhere:\n  -\twidth ≥\xa064\xa0and params.total ≤ 10\xa0M and norm ≠ post"])
def test_signs_and_spaces_of_other_texts_are_read(text: str) -> None:
    plain = re.sub("[\xa0\u202f\t]", " ", text)
    for sign, operator in (("≥", ">="), ("≤", "<="), ("≠", "!=")):
        plain = plain.replace(sign, operator)
    assert Space.parse(text) == Space.parse(plain)


@pytest.mark.parametrize(("text", "column", "name", "replacement"), [
    ("−64", 7, "minus sign", "`-`"), ("64 – 128", 10, "en dash", "`..`"),
    ("= 2 × 3", 11, "multiplication sign", "`*`"), ("64\xa0…8", 10, "horizontal ellipsis", "`..`"),
    ("“64”", 7, "left double quotation mark", '`"`')])
def test_other_characters_are_named_at_their_column(
        text: str, column: int, name: str, replacement: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse(f"width: {text}")
    (problem,) = caught.value.problems
    assert (problem.code, problem.position.line, problem.position.column) == (
        "bad-syntax", 0, column)
    assert name in problem.message and replacement in str(problem.help)


@pytest.mark.parametrize(("text", "column"), [
    ("width: 1e30", 7), ("width: 64 | 9007199254740993", 12), ("width: 64..1P log", None),
    ("width: 64..100P", 7)])
def test_sizes_whose_costs_are_not_exact_are_refused(text: str, column: int | None) -> None:
    if column is None:
        Space.parse(text)
        return
    with pytest.raises(ConfigError) as caught:
        Space.parse(text)
    (problem,) = caught.value.problems
    assert (problem.code, problem.position.column) == ("bad-value", column)
    assert "9,007,199,254,740,992" in problem.message


def test_computed_size_whose_costs_are_not_exact_cannot_be_built() -> None:
    space = Space.parse("width: 1P\nencoder: { depth: 1, ffn.relu.hidden: = 16 * width }\n"
                        "decoder.depth: 1")
    with refuses("unbuildable", "9,007,199,254,740,992"):
        space.single_architecture()


def test_help_for_numbers_lists_every_decimal_suffix() -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse("width: 64 million")
    examples = re.findall(r"\b\d+([kMGTP])\b", str(caught.value.problems[0].help))
    assert examples == [unit for unit in UNIT_SCALES if not unit.endswith("i")]
    assert "P" in examples


def test_a_common_group_makes_no_names_similar() -> None:
    assert closest_match("encoder.sliding_window", ["encoder.middle_width"]) is None
    assert closest_match("encoder.dpeth", ["encoder.middle_width", "encoder.depth"]) == (
        "encoder.depth")
    assert closest_match("encodr.depth", ["encoder.depth"]) == "encoder.depth"


def test_bytes_have_a_unit_of_their_size() -> None:
    sizes = (0, 102, 12_595, 2**20 - 1, 2**20, 9 * 2**20)
    assert list(map(format_bytes, sizes)) == ["0.0 KiB", "0.1 KiB", "12.3 KiB", "1,024.0 KiB",
                                              "1.0 MiB", "9.0 MiB"]
