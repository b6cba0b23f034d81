"""Help with a key that is not there: the nearest place that has it, other tools' names, and the keys that are there."""

import pytest

from scalesearch.space import ConfigError, Space


@pytest.mark.parametrize(("line", "names"), [
    ("haeds: 4", ["`heads`"]),  # spelled alike, here
    ("ffn: { partial: { ratio: 2 } }", ["`encoder.pg`"]),  # another's name for it
    ("ffn: { relu: { heads: 2 } }", ["`encoder.heads`", "`hidden`"]),  # elsewhere, and what is here
    ("ffn: { hidden: 64 }", ["`relu`"]),  # a variant's
    ("width: 64", ["`width`", "top level"]),
    ("ffn: { zzz: 1 }", ["`relu`", "`self_gated`"]),  # nothing like it
])
def test_the_help_names_what_was_meant(line: str, names: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse(f"width: 32\nencoder:\n  {line}\n")
    problem = next(one for one in caught.value.problems if one.code == "unknown-key")
    assert all(name in (problem.help or "") for name in names), problem.help


def test_of_several_places_the_nearest_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse("width: 32\nshare: { decoder: { attention: one } }\n")
    assert "`share.encoder.attention`" in (caught.value.problems[0].help or "")
