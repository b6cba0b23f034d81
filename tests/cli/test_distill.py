"""``scalesearch distill``: a corpus that a student can be trained on."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from scalesearch.cli.distill import command
from scalesearch.cli.main import app
from tests.errors import refuses
from tests.training.conftest import recipe, sentences, tiny


@pytest.mark.full
def test_student_trains_on_translations_of_teacher(tmp_path: Path) -> None:
    from scalesearch.training import train
    from scalesearch.training.input_files import load_data

    for split, count, seed in (("train", 60, 1), ("val", 10, 2), ("test", 10, 3)):
        for side, column in (("en", 0), ("de", 1)):
            lines = [pair[column] + "\n" for pair in sentences(count, seed)]
            (tmp_path / f"{split}.{side}").write_text("".join(lines))
    data = tmp_path / "data.yaml"
    data.write_text(yaml.safe_dump({"source": "en", "target": "de", "train": "train",
                                    "validation": "val", "test": "test", "vocab": 60}))
    train(tiny(), load_data(str(data)), recipe(beam=2, length_penalty=0.3), tmp_path / "teacher")
    arguments = [str(tmp_path / "teacher"), "--data", str(data), "--out", str(tmp_path / "kd"),
             "--json"]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    # as it was scored
    assert facts["pairs"] == 60 and facts["decoding"] == "beam 2, log-probability / length^0.3"
    assert (tmp_path / "kd.en").read_text() == (tmp_path / "train.en").read_text()
    student = load_data(str(tmp_path / "kd.yaml"))
    real = load_data(str(data))
    assert (
        student.validation.target_text == real.validation.target_text
        and student.tokenizer == real.tokenizer
    )
    assert student.content_hash != real.content_hash and student.name.endswith("(distilled)")
    assert student.train.target_text == [
        line for line in (tmp_path / "kd.de").read_text().splitlines() if line]
    same = [str(data) if word == str(data) else word for word in arguments]
    same[same.index("--out") + 1] = str(data.with_suffix(""))
    with refuses("already-exists", data.name):  # the file with the real data, which would be lost
        raise CliRunner().invoke(app, ["distill", *same]).exception
    assert yaml.safe_load(
        data.read_text())["train"] == "train" and not (tmp_path / "data.en").exists()
    data.with_name("same.yaml").write_text(
        yaml.safe_dump({"source": "x", "target": "x",
                        **{split: {"source": f"{split}.en", "target": f"{split}.de"}
                           for split in ("train", "val", "test")}}).replace("val:", "validation:"))
    with refuses("data-conflict", "x"):
        raise CliRunner().invoke(app,
                                 ["distill", arguments[0], "--data", str(tmp_path / "same.yaml"),
                                  "--out", str(tmp_path / "kd2")]).exception
    with refuses("other-settings", facts["decoding"], "length^0.5"):
        raise CliRunner().invoke(app, ["distill", *arguments, "--length-penalty", "0.5"]).exception
    train(tiny(), real, recipe(beam=2), tmp_path / "second", seed=2)
    with refuses("other-settings", facts["decoding"], facts["teacher"]):  # now of two teachers
        raise CliRunner().invoke(app, ["distill", str(tmp_path / "second"), *arguments]).exception
    other = [str(tmp_path / "both") if word == str(tmp_path / "kd") else word for word in arguments]
    two = CliRunner().invoke(command, [str(tmp_path / "second"), *other], catch_exceptions=False)
    assert json.loads(two.stdout)["teacher"].endswith(
        "+" + facts["teacher"]) and json.loads(two.stdout)["pairs"] == 60
    (tmp_path / "kd.json").write_text("[3")
    with refuses("file-damaged", "kd.json"):
        raise CliRunner().invoke(app, ["distill", *arguments]).exception
