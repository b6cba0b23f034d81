"""Files of an analysis."""

from dataclasses import replace

import pytest

from scalesearch.analysis import analyze_model
from scalesearch.analysis.write import TABLE_NAMES, write_analysis
from tests.analysis.models import FAMILIES, RECIPE, family, model_of, sentences


@pytest.mark.full
def test_second_analysis_replaces_the_first(tmp_path) -> None:
    architecture = family(FAMILIES[0])
    result = analyze_model(model_of(architecture), architecture.block, sentences(), RECIPE)
    assert set(result.tables()) == set(TABLE_NAMES)
    (tmp_path / "heads.csv").write_text("other content")
    (tmp_path / "ffn.csv").write_text("other content")
    first = write_analysis(replace(result, ffn=[]), {}, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {path.name for path in first} | {"ffn.csv"}
    second = write_analysis(replace(result, heads=[]), {}, tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(second)
    assert not any(path.stem == "heads" for path in second) and (tmp_path / "ffn.svg").is_file()
