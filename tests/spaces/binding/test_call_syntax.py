"""Variants written as calls: their long form, and errors."""

import pytest

from scalesearch.spaces import Space
from scalesearch.spaces.syntax.diagnostics import ConfigError
from tests.errors import refuses


@pytest.mark.parametrize(("short", "long"), [
    ("matrices.attention: kronecker(4..16) | dense",
     "matrices.attention: { one of: { kronecker: { rank: 4..16 }, dense: {} } }"),
    ("matrices.ffn: group(2 | 4)", "matrices.ffn: { group: { groups: 2 | 4 } }"),
    ("matrices.ffn: chain(0.25, 3)", "matrices.ffn: { chain: { ratio: 0.25, length: 3 } }"),
    ("encoder.ffn: relu(= 2 * width) | swiglu()",
     "encoder.ffn: { one of: { relu: { hidden: = 2 * width }, swiglu: {} } }"),
    ("encoder.local: none | lightweight(3 | 7, yes)",
     "encoder.local: { one of: { none: {}, lightweight: { kernel: 3 | 7, glu: yes } } }"),
    ("embedding: factorised(16)", "embedding: { factorised: { rank: 16 } }"),
])
def test_call_is_short_for_a_variant_and_its_first_keys(short: str, long: str) -> None:
    spaces = [Space.parse(f"width: 64\n{text}") for text in (short, long)]
    assert spaces[0] == spaces[1] and spaces[0].hash == spaces[1].hash


@pytest.mark.parametrize(("text", "place", "message"), [
    ("matrices.ffn: group(2, 4)", "2:15", "`group(2, 4)`: group takes groups"),
    ("matrices.ffn: low_rank(3) | dense(3)", "2:29", "`dense(3)`: dense takes no arguments"),
    ("matrices.ffn: dense | low_rank(0)", "2:32", "0 is out of bounds"),
    ("matrices.ffn: dense | grop(2) | low_rank(3)", "2:23", "`matrices.ffn` has no variant `grop`"),
    ("matrices.ffn: low_rank(2) | low_rank(3)", "2:29", "`low_rank` is given twice"),
    ("matrices.ffn: low_rank(3", "2:25", "expected `)` to close the call"),
    ("matrices.embedding: phm(4) | dense", "2:21", "`matrices.embedding` has no variant `phm`"),
    ("matrices.output: group", "2:18", "`matrices.output` has no variant `group`"),
])
def test_invalid_calls_are_shown_with_their_position(text: str, place: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse(f"width: 64\n{text}")
    assert f":{place}: {message}" in str(caught.value)


def test_comma_in_an_item_of_a_list_is_to_be_quoted() -> None:
    with refuses("bad-syntax", '`"runs(1, 11)"`', place="<string>:3:28") as caught:
        Space.parse("width: 64\nencoder.depth: 2\nshare.encoder.ffn: [cycle(2, 3), one]")
    assert len(caught.value.problems) == 1


def test_help_for_a_named_argument_has_the_long_form() -> None:
    with refuses("bad-syntax", "low_rank: { rank: … }", place="<string>:2:28"):
        Space.parse("width: 64\nmatrices.ffn: low_rank(rank=4)")


@pytest.mark.parametrize(("text", "code"),
                         [("phm(4)", "unknown-variant"), ("dense | phm", "unknown-variant"),
                          ("phm", "unknown-variant"), ("{ phm: { n: 4 } }", "unknown-key")])
def test_structures_unsupported_for_tables_are_rejected_with_a_reason(text: str, code: str) -> None:
    with refuses(code, "phm", "divisible"):
        Space.parse(f"width: 64\nmatrices.embedding: {text}")


def test_calls_do_not_change_the_order_of_keys() -> None:
    """The order of keys determines the hash of a space, on which existing studies depend."""
    text = Space.parse("width: 64\nencoder.local: lightweight(3)").to_yaml()
    assert text.index("join:") < text.index("channels:") < text.index("kernel: 3")
