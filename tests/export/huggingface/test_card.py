"""The model card: metadata for the Hub and text for users."""

from dataclasses import replace

import yaml

from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.data import DataSpec
from scalesearch.export.huggingface.format import model_card
from scalesearch.files import read_json
from scalesearch.training import read_checkpoint
from scalesearch.training.result import Result


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
