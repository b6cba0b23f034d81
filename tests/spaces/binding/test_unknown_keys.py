"""Suggestions for unknown keys, and the error for a file of another type."""

from pathlib import Path
from typing import Any

import pytest

from scalesearch.spaces import ConfigError, Space, read_space
from scalesearch.studies.config.reader import read_study
from tests.errors import refuses


@pytest.mark.parametrize(("line", "names"), [
    ("haeds: 4", ["`heads`"]),  # a similar key of the group
    ("ffn: { partial: { ratio: 2 } }", ["`encoder.pg`"]),  # a synonym
    ("ffn: { relu: { heads: 2 } }", ["`encoder.heads`", "`hidden`"]),  # a key of another group
    ("ffn: { hidden: 64 }", ["`relu`"]),  # a key of a variant
    ("width: 64", ["`width`", "top level"]),
    ("ffn: { zzz: 1 }", ["`relu`", "`self_gated`"]),  # nothing similar
    ("ffn: { moe: { experts: 2 } }", ["`mixture`"]),  # a synonym of a variant
    ("swiglu: { hidden: 64 }", ["`encoder.ffn.swiglu`"]),  # not that of `pg`
    ("ffn: { mixture: { d_ff: 64 } }", ["`encoder.ffn.mixture.expert_hidden`"]),
    ("ffn: { relu: { d_ff: 64 } }", ["`encoder.ffn.relu.hidden`"]),
    ("d_ff: 64", ["`encoder.ffn.hidden` here"]),  # not that of a mixture
    ("hidden: 64", ["`encoder.ffn.relu.hidden` here"]),  # a key of the default variant
    ("dropout: 0.1", ["recipe"]),
    ("mixer: { attention: { zzz: 1 } }", ["`encoder.mixer.attention` has no keys"]),
])
def test_help_suggests_the_intended_key(line: str, names: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse(f"width: 32\nencoder:\n  {line}\n")
    problem = next(problem for problem in caught.value.problems if problem.code == "unknown-key")
    assert all(name in (problem.help or "") for name in names), problem.help


@pytest.mark.parametrize("key", ["widht", "Width", "d_model", "hidden_size"])
def test_misspelled_required_key_is_one_error(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse(f"{key}: 32 | 64\nencoder.ffn.relu.hidden: = 2 * width\n")
    assert [problem.code for problem in caught.value.problems] == ["unknown-key"]
    assert "`width`" in (caught.value.problems[0].help or "")
    with pytest.raises(ConfigError) as caught:
        Space.parse("depth: 4\n")
    assert {problem.code for problem in caught.value.problems} == {"unknown-key", "missing-key"}


@pytest.mark.parametrize(("line", "name"), [
    ("encoder.ffn: moe", "`mixture`"), ("encoder.ffn: relu | moe", "`mixture`"),
    ("encoder.ffn: { one of: { moe: { experts: 4 }, relu: {} } }", "`mixture`"),
    ("encoder.ffn: silu", "`swish`"), ("encoder.ffn: mlp", "`swiglu`"),
    ("encoder.mixer: mha", "`attention`"), ("encoder.mixer: gqa", "`key_value_heads`"),
    ("embedding.positions: rope", "`rotary: yes`"), ("norm_kind: RMS_norm", "`rms`"),
    ("norm_kind: layernorm", "`layer`")])
def test_help_names_the_value_of_another_tool(line: str, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse(f"width: 32\n{line}\n")
    assert name in (caught.value.problems[0].help or "")


@pytest.mark.parametrize("ffn", ["{ twice: {} }", "twice", "relu | twice", "twice(3)",
                                 "{ one of: { relu: {}, twice: {} } }"])
def test_help_for_an_unknown_block_suggests_no_key_of_another_group(ffn: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse(f"width: 32\nencoder:\n  ffn: {ffn}\n")
    help = caught.value.problems[0].help or ""
    assert "package" in help and "`embedding.tie`" not in help


def test_value_of_a_block_without_keys_is_reported() -> None:
    with refuses("group-not-value", "encoder.mixer.attention", "no keys"):
        Space.parse("width: 32\nencoder: { mixer: { attention: 3 } }\n")


def test_block_does_not_have_the_keys_of_the_model() -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse("width: 32\nencoder: { mixer: { lightweight: { dim: 3 } } }\n")
    help = caught.value.problems[0].help or ""
    assert "`width`" not in help and "`kernel`" in help
    with pytest.raises(ConfigError) as caught:
        Space.parse("width: 32\n").with_overrides({"encoder.mixer.lightweight.dim": "3"})
    assert "`width`" not in (caught.value.problems[0].help or "")


def test_help_for_a_size_of_both_stacks_names_both_unless_the_name_has_one() -> None:
    for key, names in (("num_layers", "`encoder.depth` or `decoder.depth`"),
                       ("encoder_layers", "name is `encoder.depth`"),
                       ("num_decoder_layers", "name is `decoder.depth`"),
                       ("decoder_ffn_embed_dim", "name is `decoder.ffn.hidden`"),
                       ("hidden", "`encoder.ffn.relu.hidden` or `decoder.ffn.relu.hidden`")):
        with pytest.raises(ConfigError) as caught:
            Space.parse(f"width: 32\n{key}: 4\n")
        assert f"{names} here" in (caught.value.problems[0].help or "")


def test_help_suggests_the_nearest_group() -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse("width: 32\nshare: { decoder: { attention: one } }\n")
    assert "`share.encoder.attention`" in (caught.value.problems[0].help or "")


@pytest.mark.parametrize("file", sorted(Path("studies").glob("*.yaml")), ids=lambda file: file.stem)
def test_study_read_as_space_is_one_error(file: Path) -> None:
    with refuses("wrong-type", place=f"{file}:"):
        read_space(file)


@pytest.mark.parametrize("file", sorted(Path("spaces").rglob("*.yaml")), ids=lambda file: file.stem)
def test_space_read_as_study_is_one_error(file: Path) -> None:
    with refuses("wrong-type", place=f"{file}:"):
        read_study(file)


@pytest.mark.parametrize("text", ["train: data/train\nvalidation: data/val\nvocab: 2000\n",
                                  "builtin: grammar\npairs: 300\n", "steps: 500\nlr: 0.003\n"])
@pytest.mark.parametrize("read", [read_space, read_study])
def test_data_file_or_recipe_is_one_error(read: Any, text: str, tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(text)
    with refuses("wrong-type", place=f"{file}:1:1:") as caught:
        read(file)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(("read", "line", "named"), [
    (read_space, "budget: params.total <= 1M", "--budget"),
    (read_space, "objectives: { bleu: max }", "study file"),
    (read_study, "encoder: { depth: 3 }", "`space`"),
    (read_study, "width: 64", "`space`"),
])
def test_help_names_the_file_of_a_key(tmp_path: Path, read, line: str, named: str) -> None:
    file = tmp_path / "file.yaml"
    text = "width: 16\n" if read is read_space else Path("studies/quick.yaml").read_text()
    file.write_text(f"{text}{line}\n")
    with pytest.raises(ConfigError) as caught:
        read(file)
    problem = next(problem for problem in caught.value.problems if problem.code == "unknown-key")
    assert named in (problem.help or "")


def test_misplaced_key_is_reported_as_unknown(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text("width: 64\ndata: builtin\ntrials: 3\n")
    with refuses("unknown-key", place=f"{file}:2:1"):
        read_space(file)
