"""Shipped studies are valid, with complete references and teachers."""

import re
from pathlib import Path

import pytest

from scalesearch.cost import load_protocol
from scalesearch.feasible.limits import collect_limits
from scalesearch.library import find_file
from scalesearch.studies.config.reader import read_study
from scalesearch.studies.engine.distillation import find_teacher
from scalesearch.studies.trials.evaluator import Evaluator

STUDIES = sorted(path.stem for path in (Path(__file__).parents[3] / "studies").glob("*.yaml"))


def test_studies_are_shipped():
    assert {"quick", "multi30k", "distil", "transformer-tiny"} <= set(STUDIES)


@pytest.mark.parametrize("name", STUDIES)
def test_shipped_study_is_valid(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # as if the studies that it begins with had been run here
    for folder in re.findall(r"^warm_start: .*(runs/[\w-]+)",
                             find_file(name, "studies").read_text("utf-8"), re.M):
        Path(folder).mkdir(parents=True)
        (Path(folder) / "study.json").touch()
    spec = read_study(find_file(name, "studies"))
    if spec.teacher and not spec.teacher.folders:
        assert find_teacher(spec, None).architectures


def test_transformer_tiny_equals_the_published_model():
    spec = read_study(find_file("transformer-tiny", "studies"))
    config = spec.space.resolve(lambda path, parameter: pytest.fail(f"{path} is open"))
    keys = ("width", "norm", "encoder.depth", "decoder.depth", "encoder.heads", "embedding.tie")
    assert [config[key] for key in keys] == [128, "post", 4, 4, 4, "all"]
    assert (spec.recipe.steps, spec.recipe.max_tokens, spec.data.vocab) == (8000, 8192, 10000)


def test_references_of_the_papers_study_meet_its_budget():
    spec = read_study(find_file("papers-multi30k", "studies"))
    protocol = load_protocol({**spec.space.protocol, "vocab": 8000})
    evaluator = Evaluator(spec.space, protocol, collect_limits(spec.space, spec.budget))
    assert [reference.label for reference in spec.references] == [
        "Transformer", "PartialFormer", "Anthe", "EdgeFormer"]
    for reference in spec.references:
        assert reference.params is not None
        assert evaluator.evaluate(reference.params).is_feasible
