"""Deprecated keys and values, which are read as the present ones with a warning."""

from typing import Annotated, Any

import pytest

from scalesearch.config.model import Config, Size, schema_of, setting, words
from scalesearch.config.reader import apply_override, read_config
from scalesearch.spaces import ConfigError, Space
from scalesearch.spaces.syntax.diagnostics import SourceText
from scalesearch.spaces.syntax.yaml_reader import parse_yaml


class Stopping(Config):
    """When a run stops."""

    horizon: Size = setting(5, "epochs", deprecated=("within",))


class Settings(Config):
    """Settings with a renamed key, a renamed group and a renamed value."""

    sampler: Annotated[str, words("tpe", "random", deprecated={"chance": "random"})] = setting(
        "tpe", "the sampler", deprecated=("strategy",))
    stopping: Stopping = setting(Stopping(), "early stopping", deprecated=("stop",))


def read(text: str, *overrides: str) -> Any:
    document, problems = parse_yaml(SourceText("s.yaml", text))
    assert not problems
    for override in overrides:
        document = apply_override(document, schema_of(Settings), override)
    return read_config(Settings, document)


@pytest.mark.parametrize(("text", "expected", "warnings"), [
    ("sampler: random", Settings(sampler="random"), []),
    ("strategy: random", Settings(sampler="random"),
     ["s.yaml:1:1: warning: the key `strategy` is now `sampler`"]),
    ("sampler: chance", Settings(sampler="random"),
     ["s.yaml:1:10: warning: sampler: `chance` is now `random`"]),
    ("sampler: tpe\nstop: {within: 3}", Settings(stopping=Stopping(horizon=3)),
     ["s.yaml:2:1: warning: the key `stop` is now `stopping`",
      "s.yaml:2:8: warning: the key `within` is now `horizon`"]),
    ("stop.within: 4", Settings(stopping=Stopping(horizon=4)),
     ["s.yaml:1:1: warning: the key `stop` is now `stopping`",
      "s.yaml:1:6: warning: the key `within` is now `horizon`"]),
])
def test_deprecated_keys_and_values_are_read_as_the_present_ones(
        text: str, expected: Settings, warnings: list[str],
        capsys: pytest.CaptureFixture[str]) -> None:
    assert read(text) == expected
    assert capsys.readouterr().err.splitlines() == warnings


def test_override_by_deprecated_key_replaces_the_present_one(
        capsys: pytest.CaptureFixture[str]) -> None:
    assert read("sampler: tpe", "strategy=random") == Settings(sampler="random")
    warning = "--set strategy=random: warning: the key `strategy` is now `sampler`"
    assert capsys.readouterr().err.splitlines() == [warning]
    assert read("stopping: {horizon: 2}", "stop.within=9") == Settings(stopping=Stopping(horizon=9))


@pytest.mark.parametrize(("text", "position"), [
    ("sampler: tpe\nstrategy: tpe", "s.yaml:2:1: "),
    ("strategy: tpe\nsampler: tpe", "s.yaml:2:1: "),
    ("stop: {within: 3}\nstopping: {horizon: 3}", "s.yaml:2:1: "),
])
def test_deprecated_key_next_to_the_present_one_is_an_error(text: str, position: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(text)
    assert error.value.code == "given-twice"
    assert str(error.value).startswith(position)


def test_errors_below_a_deprecated_key_are_shown_at_their_position() -> None:
    with pytest.raises(ConfigError) as error:
        read("sampler: tpe\nstop: {within: 0}\n")
    assert str(error.value).startswith("s.yaml:2:16: stopping.horizon: ")


SPACE = """width: 64
where:
  - BYTES <= 1M
cost:
  protocol: {name: decode, KEY: ctranslate2-int8}
  budgets: {small: BYTES <= 900k and params.total <= 1M}
"""


def test_space_with_the_old_names_of_the_artifact_is_the_same_space(
        capsys: pytest.CaptureFixture[str]) -> None:
    present = Space.parse(SPACE.replace("BYTES", "artifact.bytes").replace("KEY", "artifact"))
    assert not capsys.readouterr().err
    deprecated = Space.parse(SPACE.replace("BYTES", "artefact.bytes").replace("KEY", "artefact"),
                             "old.yaml")
    assert present == deprecated
    assert set(capsys.readouterr().err.splitlines()) == {
        "old.yaml:3:5: warning: the cost `artefact.bytes` is now `artifact.bytes`",
        "old.yaml:5:28: warning: the key `artefact` is now `artifact`",
        "old.yaml:6:20: warning: the cost `artefact.bytes` is now `artifact.bytes`"}
    assert present.hash == "aeff9fef5ab88e3e"  # digests the old words, so it never changes
