"""Classes of texts: batches, loss and accuracy compared with PyTorch, costs, and refusals."""

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch.nn.functional import cross_entropy

from scalesearch import load
from scalesearch.analysis.run import take_sentences
from scalesearch.cli.translate import command
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.data import (
    BOS,
    PAD,
    Corpus,
    DataSpec,
    eval_batches,
    load_corpus,
    make_batch,
    retokenize,
)
from scalesearch.data.batching import Buckets, training_batches
from scalesearch.data.prepare import describe_counts
from scalesearch.export.base import check_exportable, get_format
from scalesearch.export.translator import Translator
from scalesearch.nn import build_model
from scalesearch.nn.causality import check_causality
from scalesearch.spaces import UnbuildableError
from scalesearch.spaces.assembly.architecture import assemble
from scalesearch.studies.config.reader import read_study
from scalesearch.studies.engine.dry_run import dry_run
from scalesearch.tasks import TASKS
from scalesearch.training import Recipe, train
from scalesearch.training.display import protocol_lines
from scalesearch.training.hardware import Hardware, TrainingFailedError
from scalesearch.training.recipe import check_compatible
from scalesearch.training.scoring.distill import write_distilled_data
from scalesearch.training.scoring.evaluate import DecodingOptions, classify, score_split
from scalesearch.training.scoring.proxies import PROXY_NAMES, compute_proxies
from scalesearch.training.updates.engine import Engine
from tests.architectures import transformer_config
from tests.errors import refuses
from tests.tasks.small import corpus_of, model_for, spec_of

TASK = TASKS["classification"]
RECIPE = Recipe(steps=1, threads=1, device="cpu", precision="fp32")


def test_batches_have_one_label_per_text(tmp_path) -> None:
    corpus = corpus_of(TASK, tmp_path)
    classes = sorted(set(corpus.train.target_text))
    assert corpus.n_classes == len(classes) == 4 and corpus.mean_lengths[1] == 1
    buckets = Buckets.for_split(corpus.train, 200)
    batches = [*eval_batches(corpus.train, 100), *training_batches(corpus.train, 200),
               *training_batches(corpus.train, 200, buckets=buckets)]
    for batch in batches:
        labels = batch.target_out[batch.target_out != PAD]
        assert [corpus.train.target_text[i] for i in batch.indices] == [
            classes[label - 1] for label in labels]
        assert batch.tokens == len(batch) == len(labels)
        assert (batch.source[: len(batch), 0] == BOS).all()
    sampled = retokenize(corpus, 0.5, 1, 0)
    assert (make_batch(sampled, np.arange(9)).target_out
            == make_batch(take_sentences(corpus.train, 9), np.arange(9)).target_out).all()


def test_loss_and_accuracy_equal_pytorch(tmp_path) -> None:
    corpus = corpus_of(TASK, tmp_path)
    model = build_model(model_for(TASK).block, vocab=corpus.tokenizer.vocab_size,
                        dtype=torch.float64).eval()
    split = corpus.validation
    with torch.no_grad():
        logits = torch.cat([model(torch.from_numpy(batch.source), torch.from_numpy(batch.target_in))
                            for batch in (make_batch(split, np.array([i]))
                                          for i in range(len(split)))])
    labels = torch.from_numpy(split.target_ids.flat.astype(np.int64)) - 1
    assert logits.shape == (len(split), 1, 4)
    engine = Engine(model, RECIPE, Hardware.from_recipe(RECIPE))
    metrics = score_split(engine, corpus, "validation", DecodingOptions(1))
    assert metrics["loss"] == pytest.approx(float(cross_entropy(logits[:, 0], labels)), rel=1e-9)
    assert metrics["accuracy"] == pytest.approx(
        100 * float((logits[:, 0].argmax(-1) == labels).double().mean()))
    check_causality(model, corpus.tokenizer.vocab_size)
    assert compute_proxies(model, corpus).keys() == set(PROXY_NAMES)


@pytest.mark.parametrize("bucketing", ["no", "yes"])
def test_training_learns_a_word(bucketing, tmp_path) -> None:
    corpus = corpus_of(TASK, tmp_path)
    recipe = Recipe(steps=80, max_tokens=512, lr=1e-2, threads=1, device="cpu", dropout=0,
                    bucketing=bucketing, compile="no", validate_every=20.0)
    result = train(model_for(TASK), corpus, recipe, tmp_path / "run")
    assert result.state == "complete", result.reason
    assert result.metrics["accuracy"] > 90
    assert any(f"{result.tokens:,} labels in " in line for line in protocol_lines(result))


def test_overlap_of_splits_is_that_of_classes(tmp_path) -> None:
    spec = spec_of(TASK, tmp_path)
    split = {"cut": 0, "pairs": 9, "source_unknown": 0, "target_unknown": 0}
    overlap = {"validation_sources": 2, "validation_pairs": 1, "test_sources": 0, "test_pairs": 0}
    counts = {"train": {}, "validation": split, "test": split, "overlap": overlap}
    assert [*describe_counts(spec, counts)] == [
        "warning: 2 of 9 validation sources are also in the training text, 1 with the same class"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Corpus, Path]:
    """A corpus, and the folder of a classifier that was trained on it."""
    folder = tmp_path_factory.mktemp("classifier")
    corpus = corpus_of(TASK, folder)
    recipe = Recipe(steps=20, max_tokens=512, lr=1e-2, threads=1, device="cpu", precision="fp32",
                    score_splits="both")
    train(model_for(TASK), corpus, recipe, folder / "run")
    return corpus, folder / "run"


def test_a_trained_classifier_names_classes(trained) -> None:
    corpus, folder = trained
    model = load(folder)
    texts = corpus.test.source_text
    split = take_sentences(corpus.test, len(texts))
    module = model.module()
    with torch.no_grad():
        logits = torch.cat([module(torch.from_numpy(batch.source),
                                   torch.from_numpy(batch.target_in))[:, 0]
                            for batch in (make_batch(split, np.array([i]))
                                          for i in range(len(texts)))])
    classes = sorted(set(corpus.train.target_text))
    assert model.translate([*texts, ""]) == [classes[i] for i in logits.argmax(-1)] + [""]
    score = model.score(texts, corpus.test.target_text)["accuracy"]
    assert score["score"] == model.metrics["test"]["accuracy"]
    lines = CliRunner().invoke(command, [str(folder), "--json", "--nbest", "4"], input=texts[0])
    ranked = json.loads(lines.stdout)["nbest"]
    expected = logits[0].log_softmax(-1).sort(descending=True)
    assert [line["translation"] for line in ranked] == [classes[i] for i in expected.indices]
    assert [line["score"] for line in ranked] == pytest.approx(expected.values.tolist(), abs=1e-5)


def test_a_diverged_classifier_is_refused(tmp_path) -> None:
    corpus = corpus_of(TASK, tmp_path)
    model = build_model(model_for(TASK).block, vocab=corpus.tokenizer.vocab_size)
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    with pytest.raises(TrainingFailedError, match="diverged"):
        classify(model, corpus.test, list("abcd"), Hardware.from_recipe(RECIPE), 1)


def test_classifiers_that_cannot_name_classes_are_refused(trained, tmp_path) -> None:
    _, folder = trained
    with refuses("models-incompatible", "ensemble"):
        Translator([str(folder), str(folder)])
    with refuses("shortlist-output"):
        Translator(folder, shortlist=3)
    old = shutil.copytree(folder, tmp_path / "old")
    data = json.loads((old / "data.json").read_text())
    data["counts"]["classes"] = {"count": 4}  # of earlier versions
    (old / "data.json").write_text(json.dumps(data))
    with refuses("no-checkpoint", "names of its classes"):
        load(old).translate("one")


def test_classes_are_computed_once_per_text() -> None:
    config = transformer_config(model="encoder-only", classes=5)
    block = assemble(config).block
    d = config["width"]
    for name in ("forward", "decode", "decode-uncached"):
        costs = evaluate_cost(block, find_protocol(name, 12, 7, 100))
        assert costs["macs.output"] == d * d + d * 5
        assert costs["params.output"] == d * (d + 1) + 5 * (d + 1)
    same: dict[str, Any] = {"embedding.tie": "none", "embedding.output_transform": True,
                            "embedding.output_soft_cap": 3.0}
    assert assemble({**config, **same}).id == assemble(config).id
    assert assemble({**config, "classes": 6}).id != assemble(config).id


def test_what_does_not_fit_classes_is_refused(tmp_path) -> None:
    for model in ("encoder-decoder", "decoder-only"):
        with pytest.raises(UnbuildableError) as error:
            assemble(transformer_config(model=model, classes=4))
        assert error.value.key == "classes"
    corpus = corpus_of(TASK, tmp_path)
    masked = TASKS["masked-language-model"]
    text = corpus_of(masked, tmp_path)
    for model, data in ((model_for(TASK, classes=5), corpus), (model_for(masked), corpus),
                        (model_for(masked, classes=4), text)):
        with refuses("class-mismatch", key="classes"):
            train(model, data, RECIPE, tmp_path / "run")
    with refuses("not-exportable", "torch"):
        check_exportable(get_format("onnx"), model_for(TASK).block, "none")
    with refuses("no-pairs", key="data.task"):
        write_distilled_data([], corpus.spec, tmp_path / "out", {})
    with refuses("nothing-to-score", key="recipe.validate_metric"):
        train(model_for(TASK), corpus, RECIPE.replace(validate_metric=True), tmp_path / "run")
    with refuses("nothing-to-score", key="recipe.decode_with"):
        check_compatible(corpus.spec, RECIPE.replace(decode_with="onnx-int8"))
    with pytest.raises(Exception, match="max_ratio"):
        spec_of(TASK, tmp_path, max_ratio=2)


def test_a_table_has_texts_and_classes(tmp_path) -> None:
    rng = Random(1)
    for name, classes in (("train", "ab"), ("validation", "ab"), ("test", "abc")):
        rows = [f"word {rng.randint(1, 9)}\t{rng.choice(classes)}" for _ in range(40)]
        (tmp_path / f"{name}.tsv").write_text("source\ttarget\n" + "\n".join(rows) + "\n")
    spec = {"task": TASK.name, "vocab": 20, "train": "train.tsv", "validation": "validation.tsv"}
    assert load_corpus(DataSpec.from_mapping(spec), tmp_path / "cache", tmp_path).n_classes == 2
    with refuses("unknown-class", "'c'", "'a', 'b'", key="data.test"):
        load_corpus(DataSpec.from_mapping({**spec, "test": "test.tsv"}), tmp_path / "cache",
                    tmp_path)


STUDY = """\
space: {{ model: encoder-only, {classes}, width: 8,
          encoder: {{ depth: 1, heads: 2, ffn: {{ relu: {{ hidden: 8 | 16 }} }} }} }}
data: {{ task: classification, vocab: 20, train: {train}, validation: b.tsv }}
recipe: {{ steps: 1 }}
objectives: {{ accuracy: max, params.total: min }}
reference: {{ name: mine, set: {{ {mine}, encoder.ffn.relu.hidden: 8 }} }}
{teacher}
"""


@pytest.mark.parametrize(("change", "place", "parts"), [
    ({"classes": "classes: 2"}, "s.yaml:1", ("'a', 'b', 'c'", "set classes: 3")),
    ({"classes": "classes: 3 | 4"}, "s.yaml:1", ("4", "set classes: 3")),
    ({"mine": "classes: 4"}, "mine", ("4", "set classes: 3")),
    ({"classes": "classes: 3", "code": "no-pairs", "teacher": "teacher: { file: transformer }"},
     "teacher", ("classification",)),
    ({"train": "b.tsv"}, "mine", ("1: 'a'", "another class"))])
def test_study_that_does_not_fit_classes_is_refused_before_training(
        tmp_path, monkeypatch, change, place, parts) -> None:
    """PyTorch failed in the forecast if the text had more classes than the space."""
    monkeypatch.chdir(tmp_path)
    for name, classes in (("a", "abc"), ("b", "a")):
        rows = [f"word {i}\t{classes[i % len(classes)]}" for i in range(40)]
        (tmp_path / f"{name}.tsv").write_text("source\ttarget\n" + "\n".join(rows) + "\n")
    keys = {"classes": "classes: 3", "train": "a.tsv", "mine": "classes: 3", "teacher": "",
            "code": "class-mismatch"} | change
    Path("s.yaml").write_text(STUDY.format(**keys))
    with refuses(keys["code"], *parts, place=place):
        dry_run(read_study(Path("s.yaml")))
