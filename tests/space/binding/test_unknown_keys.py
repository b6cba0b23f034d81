"""Suggestions for unknown keys: similar keys, synonyms, and the keys of the group."""

import pytest

from scalesearch.space import ConfigError, Space


@pytest.mark.parametrize(("line", "names"), [
    ("haeds: 4", ["`heads`"]),  # a similar key of the group
    ("ffn: { partial: { ratio: 2 } }", ["`encoder.pg`"]),  # a synonym
    ("ffn: { relu: { heads: 2 } }", ["`encoder.heads`", "`hidden`"]),  # a key of another group
    ("ffn: { hidden: 64 }", ["`relu`"]),  # a key of a variant
    ("width: 64", ["`width`", "top level"]),
    ("ffn: { zzz: 1 }", ["`relu`", "`self_gated`"]),  # nothing similar
])
def test_help_suggests_the_intended_key(line: str, names: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse(f"width: 32\nencoder:\n  {line}\n")
    problem = next(problem for problem in caught.value.problems if problem.code == "unknown-key")
    assert all(name in (problem.help or "") for name in names), problem.help


def test_help_suggests_the_nearest_group() -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse("width: 32\nshare: { decoder: { attention: one } }\n")
    assert "`share.encoder.attention`" in (caught.value.problems[0].help or "")
