"""The model card: metadata for the Hub and text for users."""

from dataclasses import replace

import pytest
import yaml

from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.data import DataSpec
from scalesearch.export.export import collect_provenance
from scalesearch.export.huggingface import format
from scalesearch.export.huggingface.format import model_card
from scalesearch.export.huggingface.native import NATIVE_CLASSES, NativeModel
from scalesearch.files import read_json
from scalesearch.tasks import TASKS
from scalesearch.training import read_checkpoint
from scalesearch.training.result import Result
from tests.tasks.small import model_for, spec_of


def test_card_has_costs_scores_data_and_seed_and_no_local_path(trained_folder):
    trained = read_checkpoint(trained_folder)
    result = Result.read(trained_folder)
    text = model_card(trained, None)
    head = yaml.safe_load(text.split("---\n")[1])
    (index,) = head["model-index"]
    assert head["license"] == "unknown" and head["pipeline_tag"] == "translation"
    assert {metric["type"]: metric["value"] for metric in index["results"][0]["metrics"]} == {
        name: result.metrics[name] for name in ("bleu", "chrf")}
    costs = evaluate_cost(trained.architecture.block, load_protocol(trained.architecture.protocol))
    assert f"| parameters | {costs['params.total']:,} |" in text
    assert f"| multiply-adds | {costs['macs.total']:,} |" in text
    assert result.metrics["bleu_signature"].replace(
        "|", r"\|") in text and f"- seed: {result.seed}\n" in text
    assert result.corpus_hash in text and result.architecture_id in text
    spec = DataSpec.from_mapping(read_json(trained_folder / "data.json", dict)["spec"])
    assert not any(str(place) in text
                   for place in (trained_folder, *spec.train)) and "\n\n\n" not in text


@pytest.mark.parametrize("has_class", [False, True])
def test_card_of_language_model_has_no_search_and_no_words_of_translation(
        has_class: bool, trained_folder, tmp_path) -> None:
    checkpoint = read_checkpoint(trained_folder)
    task = TASKS["language-model"]
    trained = replace(checkpoint, architecture=model_for(task), folder=None,
                      spec=spec_of(task, tmp_path, window=30),
                      recipe=checkpoint.recipe.model_copy(update={"beam": 5}))
    native = NativeModel(NATIVE_CLASSES["decoder-only"][0], {}) if has_class else None
    text = model_card(trained, native)
    assert "A model for language modeling." in text and "31 tokens" in text
    assert "AutoModelForCausalLM" in text and "pipeline_tag: \"text-generation\"" in text
    for word in ("beam", "Seq2Seq", "translat", "language-model", "source"):
        assert word not in text, word
    assert "\n\n\n" not in text


def test_scores_without_a_signature_have_none_in_the_card(trained_folder, monkeypatch) -> None:
    monkeypatch.setattr(format, "collect_provenance", lambda trained: {
        **collect_provenance(trained), "metrics": {"split": "test", "bleu": 1.0, "chrf": 2.0,
                                                   "bleu_signature": "a|b"}})
    text = model_card(read_checkpoint(trained_folder), None)
    assert "| BLEU | 1.00 | `a\\|b` |\n| chrF | 2.00 |  |" in text


def test_card_of_model_without_result(trained_folder):
    trained = read_checkpoint(trained_folder)
    lowercase = trained.spec.replace(lowercase=True)
    text = model_card(replace(trained, folder=None, spec=lowercase), None)
    assert (
        "## Costs" in text
        and "## Scores" not in text
        and "seed" not in text
        and "lower case first" in text
    )
    assert "\n\n\n" not in text
