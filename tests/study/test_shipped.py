"""The studies that are shipped are read without a problem, and their references and teachers are whole."""

from pathlib import Path

import pytest

from scalesearch.library import find_file
from scalesearch.study.file import ReferenceSpec, read_study
from scalesearch.study.prepare import closed_space, references

STUDIES = sorted(path.stem for path in (Path(__file__).parents[2] / "studies").glob("*.yaml"))


def test_there_are_some():
    assert {"quick", "multi30k", "distil", "transformer-tiny"} <= set(STUDIES)


@pytest.mark.parametrize("name", STUDIES)
def test_a_shipped_study_is_whole(name):
    spec = read_study(find_file(name, "studies"))
    assert len(references(spec)) == len(spec.references)
    if spec.teacher and spec.teacher.folder is None:
        assert closed_space("teacher", ReferenceSpec("teacher", spec.teacher.file, spec.teacher.set), spec).size() == 1


def test_transformer_tiny_is_the_published_one():
    spec = read_study(find_file("transformer-tiny", "studies"))
    answers = spec.space.answer(lambda path, question: pytest.fail(f"{path} is open"))
    keys = ("width", "norm", "encoder.depth", "decoder.depth", "encoder.heads", "embedding.tie")
    assert [answers[key] for key in keys] == [128, "post", 4, 4, 4, "all"]
    assert (spec.recipe.steps, spec.recipe.max_tokens, spec.data.vocab) == (8000, 8192, 10000)
