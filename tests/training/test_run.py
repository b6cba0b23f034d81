"""Training runs on a tiny corpus: results, resuming, failures."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from scalesearch.data import Split
from scalesearch.files import DiskFullError
from scalesearch.signals import SignalInterrupt
from scalesearch.tasks import TASKS
from scalesearch.training import Result, loop, read_checkpoint, run, train
from scalesearch.training import result as results
from scalesearch.training.checkpoint import (
    DESCRIPTION_FILES,
    EXPORTED_FILES,
    check_identity,
    load_state,
    run_identity,
)
from scalesearch.training.display import protocol_lines
from scalesearch.training.recipe import check_compatible
from scalesearch.training.updates import engine as engines
from scalesearch.training.updates.averaging import read_weights
from tests import conftest
from tests.errors import refuses
from tests.training.conftest import recipe, tiny


def stop_at(step: int, number: int = signal.SIGTERM):
    """Return a reporter that sends this process a signal after the update ``step``."""
    def report(event: dict) -> None:
        if event["type"] == "validation" and event["step"] == step:
            os.kill(os.getpid(), number)
    return report


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return read_weights(folder / "model.safetensors")


def learned(result: Result) -> list[tuple]:
    """Values of the curve that a resumed run must repeat exactly."""
    return [(p["step"], p["tokens"], p["lr"], p["train_loss"], p["validation_loss"], p["bleu"])
            for p in result.curve]


@pytest.mark.full
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_too_long_sentence_fails_before_the_first_update(corpus, out, split) -> None:
    long = replace(corpus, **{split: Split.from_lists([[5] * 40], [[5] * 3], ["x"], ["x"])})
    whole = tiny(embedding__positions="learned", embedding__max_length=40)
    result = train(whole, long, recipe(), out)
    assert (result.state, result.steps) == ("failed", 0)
    assert result.reason.startswith(f"{split}: a sentence has 41 tokens")
    assert train(whole, corpus, recipe(), out / "enough").state == "complete"


@pytest.mark.parametrize("model", ["encoder-decoder", "decoder-only"])
def test_positions_suffice_for_retokenized_and_padded_text(corpus, out, model) -> None:
    """BPE-dropout can lengthen a side up to the limit of the data."""
    short = replace(corpus, spec=corpus.spec.replace(max_length=60))
    whole = tiny(model=model, embedding__positions="learned", embedding__max_length=40)
    text = short.train.texts
    if model == "encoder-decoder":
        result = train(whole, short, recipe(subword_dropout=0.1), out)
        assert result.reason.startswith("train: a sentence has 61 tokens")
    else:
        long = Split.from_lists([[5] * 25], [[5] * 20], ["x"], ["x"])
        result = train(whole, replace(corpus, train=long), recipe(), out)
        assert result.reason.startswith("train: a sentence has 47 tokens") and text
    assert (result.state, result.steps) == ("failed", 0)


@pytest.mark.parametrize(("model", "positions"), [("encoder-decoder", 41), ("decoder-only", 82)])
def test_positions_of_a_model_need_not_suffice_for_fixed_shapes(corpus, out, model,
                                                                positions) -> None:
    """Padded to a multiple of 8, the longest sentence of 41 tokens has 48."""
    split = Split.from_lists([[5] * 40] * 9, [[5] * 40] * 9, ["x"] * 9, ["x"] * 9)
    long = replace(corpus, train=split, validation=split, test=split)
    whole = tiny(model=model, embedding__positions="learned", embedding__max_length=positions)
    result = train(whole, long, recipe(bucketing="yes", steps=2), out)
    assert result.state == "complete"
    assert sum("fixed shapes" in note for note in result.notes) == 1


def test_sentence_too_long_by_padding_is_a_failed_result(corpus, out, monkeypatch) -> None:
    def padded(engine, *arguments):
        engine.model.check_length(41)

    monkeypatch.setattr("scalesearch.training.updates.engine.Engine.update", padded)
    result = train(tiny(embedding__positions="learned", embedding__max_length=40), corpus, recipe(),
                   out)
    assert result.state == "failed" and result.reason.startswith("a sentence has 41 tokens")


def test_texts_of_a_run_of_one_update(corpus, out) -> None:
    result = train(tiny(), corpus, recipe(steps=1, warmup=0, average_count=1), out)
    assert result.metrics["weights"] == "the last (after update 1)"
    assert any("· 1 update, " in line for line in protocol_lines(result))
    for task, noun in (("translation", "target tokens"), ("language-model", "tokens")):
        lines = protocol_lines(replace(result, metrics={**result.metrics, "task": task}))
        assert any(f" {result.tokens:,} {noun} in " in line for line in lines)


def test_result_and_checkpoint_of_a_run(corpus, out) -> None:
    events = []
    result = train(tiny(), corpus, recipe(), out, seed=3, report=events.append)
    assert (result.state, result.reason, result.steps, result.stop_reason) == (
        "complete", "", 12, "budget")
    assert [point["step"] for point in result.curve] == [4, 8, 12]
    assert result.curve[-1]["validation_loss"] < result.curve[0]["validation_loss"]
    metrics = result.metrics
    assert metrics["perplexity"] == pytest.approx(2.718281828 ** metrics["loss"], rel=1e-6)
    assert "tok:13a" in metrics["bleu_signature"] and "nc:6" in metrics["chrf_signature"]
    assert (metrics["decoding"], metrics["split"]) == ("greedy", "validation")
    assert set(metrics["test"]) == {"bleu", "chrf", "bleu_signature", "chrf_signature",
                                    "length_ratio", "decoding", "loss", "perplexity",
                                    "loss_per_char", "reached_limit"}
    assert result.curve[-1].keys() >= {"validation_loss",
                                       "validation_loss_per_char"} <= metrics.keys()
    assert metrics["weights"] == "mean of the last 3 (after updates 8, 10, 12)"
    assert result.tokens_per_cpu_second == pytest.approx(result.tokens / result.cpu_seconds)
    assert 0 < result.cpu_seconds < result.total_cpu_seconds
    assert Result.read(out) == result and json.loads((out / "result.json").read_text())["seed"] == 3
    assert {event["type"] for event in events} >= {"validation", "decode", "done"}
    assert sorted(path.name for path in out.iterdir()) == [
        "architecture.yaml", "data.json", "model.safetensors", "recipe.json", "result.json",
        "tokenizer.model"]
    trained = read_checkpoint(out)
    assert (trained.architecture.id, trained.tokenizer, trained.recipe) == (
        tiny().id, corpus.tokenizer, recipe())
    assert all(torch.equal(weight, weights(out)[name])
               for name, weight in trained.model.state_dict().items())


@pytest.mark.parametrize("average, changes",
                         [("last", {}), ("best", {"validate_metric": True}),
                          ("none", {"subword_dropout": 0.3}), ("ema", {})])
def test_resumed_run_equals_uninterrupted_run(corpus, tmp_path, average, changes) -> None:
    how = recipe(average=average, average_count=2, accumulate=2, patience=9, **changes)
    whole = train(tiny(), corpus, how, tmp_path / "whole")
    torch.rand(7)
    with pytest.raises(SignalInterrupt):
        train(tiny(), corpus, how, tmp_path / "parts", report=stop_at(4))
    assert load_state(tmp_path / "parts")["spent"]["steps"] == 4
    with pytest.raises(SignalInterrupt):
        train(tiny(), corpus, how, tmp_path / "parts", report=stop_at(8, signal.SIGINT))
    torch.rand(5)
    parts = train(tiny(), corpus, how, tmp_path / "parts")
    assert learned(parts) == learned(whole)
    assert parts.metrics == whole.metrics
    item = weights(tmp_path / "whole")
    other = weights(tmp_path / "parts")
    assert all(torch.equal(item[name], other[name]) for name in item)


@pytest.mark.full
def test_interruption_during_scoring_is_resumed(corpus, tmp_path) -> None:
    whole = train(tiny(), corpus, recipe(), tmp_path / "whole")
    with pytest.raises(SignalInterrupt):
        train(tiny(), corpus, recipe(), tmp_path / "parts", report=stop_at(12))
    assert load_state(tmp_path / "parts")["spent"]["steps"] == 12
    assert train(tiny(), corpus, recipe(), tmp_path / "parts").metrics == whole.metrics


def test_late_interruption_reaches_the_caller(corpus, out, monkeypatch) -> None:
    """The result is kept, and a study in this process must not start its next candidate."""
    finish = run.finish

    def finish_and_be_stopped(run, *others):
        metrics = finish(run, *others)
        os.kill(os.getpid(), signal.SIGINT)
        return metrics

    monkeypatch.setattr(run, "finish", finish_and_be_stopped)
    with pytest.raises(SignalInterrupt):
        train(tiny(), corpus, recipe(), out)
    assert Result.read(out).state == "complete"


def test_failed_write_keeps_the_last_checkpoint(corpus, out, monkeypatch) -> None:
    with pytest.raises(SignalInterrupt):
        train(tiny(), corpus, recipe(), out, report=stop_at(4))
    before = (out / "checkpoint.pt").read_bytes()

    full = OSError("disk full")

    def broken(state, file):
        file.write(b"half")
        raise full

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(OSError) as caught:
        train(tiny(), corpus, recipe(checkpoint_minutes=0), out)
    assert caught.value is full
    monkeypatch.undo()
    assert (out / "checkpoint.pt").read_bytes() == before
    assert train(tiny(), corpus, recipe(), out).state == "complete"


def test_complete_result_is_reused_only_with_equal_settings(corpus, out) -> None:
    first = train(tiny(), corpus, recipe(), out)
    assert train(tiny(), corpus, recipe(threads=1), out) == first
    with refuses("other-training", "lr.base was 0.005 and is now 0.001"):
        train(tiny(), corpus, recipe(lr=1e-3), out)
    with refuses("other-training", "seed was 1 and is now 2"):
        train(tiny(), corpus, recipe(), out, seed=2)
    with refuses("other-training", "tokenized was False and is now True"):
        train(tiny(), replace(corpus, spec=corpus.spec.replace(tokenized=True)), recipe(), out)
    assert train(tiny(), corpus, recipe(lr=1e-3), out, resume=False).recipe["lr"]["base"] == 1e-3


def test_run_without_a_new_recipe_field_is_resumed(corpus, out) -> None:
    stored, expected = (run_identity(tiny(), corpus, recipe(subword_dropout=rate), 1)
                      for rate in (0.0, 0.1))
    del stored["subword_dropout"]
    check_identity(stored, {**stored, "subword_dropout": 0.0}, out)
    with refuses("other-training", "subword_dropout was 0.0 and is now 0.1"):
        check_identity(stored, expected, out)


def test_damaged_checkpoint_raises_user_error(corpus, out) -> None:
    with pytest.raises(SignalInterrupt):
        train(tiny(), corpus, recipe(), out, report=stop_at(4))
    (out / "checkpoint.pt").write_bytes(b"nonsense")
    with refuses("not-a-checkpoint"):
        train(tiny(), corpus, recipe(), out)


@pytest.mark.full
def test_versions_of_packages_that_register_blocks(monkeypatch) -> None:
    package = SimpleNamespace(name="own-blocks", version="1.2")
    points = {"scalesearch.blocks": [SimpleNamespace(dist=package), SimpleNamespace(dist=None)]}
    monkeypatch.setattr(results, "entry_points", lambda group: points.get(group, []))
    monkeypatch.setattr(results, "_plugin_versions", results._plugin_versions.__wrapped__)
    assert results.package_versions()["own-blocks"] == "1.2"


def test_results_depend_on_the_seed_only(corpus, tmp_path) -> None:
    runs = [train(tiny(), corpus, recipe(), tmp_path / name, seed=seed)
            for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    assert learned(runs[0]) == learned(runs[1]) != learned(runs[2])


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "soap"])
def test_divergence_is_a_failed_result(corpus, out, optimizer) -> None:
    how = recipe(lr=1e30, warmup=0, clip_norm=0, schedule="constant", optimizer=optimizer)
    result = train(tiny(), corpus, how, out)
    assert result.state == "failed" and result.metrics == {}
    for text in ("update", "learning rate 5e+29", "again"):
        assert text in result.reason
    assert Result.read(out) == result


@pytest.mark.full
@pytest.mark.parametrize("error",
                         [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(),
                          RuntimeError("[enforce fail] "
                                       "DefaultCPUAllocator: can't allocate memory")])
def test_out_of_memory_splits_batches(corpus, tmp_path, monkeypatch, error) -> None:
    # In bf16, products of smaller batches are rounded differently.
    how = recipe(dropout=0, attention_dropout=0, activation_dropout=0, precision="fp32")
    undisturbed = train(tiny(), corpus, how, tmp_path / "undisturbed")
    original = engines.Engine.loss_sum

    def tight(self, batch, smoothing):
        if self.model.training and len(batch) > 10:
            raise error
        return original(self, batch, smoothing)

    monkeypatch.setattr(engines.Engine, "loss_sum", tight)
    result = train(tiny(), corpus, how, tmp_path / "tight")
    assert result.state == "complete"
    assert "out of memory; from now on, batches are split into" in result.notes[0]
    assert result.tokens == undisturbed.tokens
    for item, other in zip(undisturbed.curve, result.curve):
        assert item["validation_loss"] == pytest.approx(other["validation_loss"], rel=1e-4)


def test_out_of_memory_with_one_sentence_is_a_failed_result(corpus, out, monkeypatch) -> None:
    def never(self, batch, smoothing):
        raise MemoryError

    monkeypatch.setattr(engines.Engine, "loss_sum", never)
    result = train(tiny(), corpus, recipe(), out)
    assert result.state == "failed" and "even with one sentence at a time" in result.reason


def test_other_errors_are_raised(corpus, out, monkeypatch) -> None:
    wrong = RuntimeError("shapes do not fit")

    def broken(self, batch, smoothing):
        raise wrong

    monkeypatch.setattr(engines.Engine, "loss_sum", broken)
    with pytest.raises(RuntimeError) as caught:
        train(tiny(), corpus, recipe(), out)
    assert caught.value is wrong


def test_model_that_is_not_causal_is_not_trained(corpus, out, monkeypatch) -> None:
    from scalesearch.blocks import seq2seq

    original = seq2seq.mask_bias
    monkeypatch.setattr(conftest, "checked_models", set())
    monkeypatch.setattr(seq2seq, "mask_bias",
                        lambda hidden, dtype: original(torch.zeros_like(hidden), dtype))
    result = train(tiny(), corpus, recipe(), out)
    assert (result.state, result.steps) == ("failed", 0)
    assert "depends on a later target token" in result.reason


def test_patience_stops_a_run_without_improvement(corpus, out) -> None:
    result = train(tiny(), corpus,
                   recipe(steps=100, lr=0.0, patience=2, validate_every=2, average="best"), out)
    assert (result.stop_reason, result.steps) == ("patience", 6)


@pytest.mark.full
def test_patience_decides_by_the_loss_if_the_metric_is_constant(corpus, out, monkeypatch) -> None:
    """BLEU is 0 for the first validations of most runs."""
    task = TASKS["translation"]
    zero = replace(task, score=lambda *arguments: dict.fromkeys(task.metrics, 0.0))
    monkeypatch.setitem(TASKS, "translation", zero)
    result = train(tiny(), corpus,
                   recipe(steps=16, patience=1, validate_every=2, average="best", average_count=1,
                          validate_metric=True, monitor="metric"), out)
    losses = [point["validation_loss"] for point in result.curve]
    assert losses == sorted(losses, reverse=True) and len(losses) == 8
    assert result.stop_reason == "budget" and "(after update 16)" in result.metrics["weights"]


@pytest.mark.full
@pytest.mark.parametrize(
    "budget", [{"tokens": 900}, {"epochs": 0.3}, {"cpu_minutes": 0.01}, {"minutes": 0.01}])
def test_each_budget_ends_at_the_first_update_beyond_it(corpus, out, budget) -> None:
    result = train(tiny(), corpus, recipe(steps=None, average="none", **budget), out)
    used = {"tokens": result.tokens, "cpu_minutes": result.cpu_seconds / 60,
            "minutes": result.seconds / 60, "epochs": None}
    (name, limit), = budget.items()
    assert result.curve[-1]["share"] >= 1
    assert used[name] is None or used[name] >= limit
    assert all(point["share"] < 1 for point in result.curve[:-1])


@pytest.mark.full
def test_subword_dropout_retokenizes_every_epoch(corpus, tmp_path, monkeypatch) -> None:
    cut = loop.retokenize
    cuts = []
    monkeypatch.setattr(loop, "retokenize",
                        lambda *arguments: cuts.append(arguments[1:]) or cut(*arguments))
    plain, dropped = (train(tiny(), corpus, recipe(steps=None, epochs=2, subword_dropout=rate),
                            tmp_path / str(rate)) for rate in (0.0, 0.3))
    assert cuts == [(0.3, 1, 0), (0.3, 1, 1)]
    assert dropped.tokens > 1.1 * plain.tokens and dropped.steps > plain.steps
    assert dropped.metrics["validation_loss"] != plain.metrics["validation_loss"]


@pytest.mark.parametrize("changes", [{"soft_targets": "soft"}, {"vocab_type": "unigram"}])
def test_subword_dropout_refuses_fixed_tokens(corpus, changes) -> None:
    with refuses("fixed-tokens", key="recipe.subword_dropout"):
        check_compatible(corpus.spec.replace(**changes), recipe(subword_dropout=0.1))
    check_compatible(corpus.spec.replace(**changes), recipe())


def test_unfinished_folder_is_not_a_checkpoint(corpus, out) -> None:
    with pytest.raises(SignalInterrupt):
        train(tiny(), corpus, recipe(), out, report=stop_at(4))
    with refuses("no-checkpoint", "model.safetensors", "not finished"):
        read_checkpoint(out)


@pytest.mark.parametrize(("file", "expected_text"),
                         [(None, "does not exist"), ("study.json", "a study"),
                          ("artifact.json", "(artifact)"), ("notes.txt", "recipe.json")])
def test_error_describes_folders_without_a_checkpoint(
        tmp_path, file: str | None, expected_text: str) -> None:
    if file:
        (tmp_path / "given").mkdir()
        (tmp_path / "given" / file).write_text("{}")
    with refuses("no-checkpoint", expected_text):
        read_checkpoint(tmp_path / "given")


@pytest.mark.parametrize("file", EXPORTED_FILES)
def test_exported_model_needs_its_description(tmp_path, file: str) -> None:
    for name in (*DESCRIPTION_FILES, file):
        (tmp_path / name).touch()
    with refuses("no-checkpoint", "artifact.json"):
        read_checkpoint(tmp_path)


def test_error_for_a_study_names_a_trial(tmp_path) -> None:
    (tmp_path / "trials" / "0003-ab").mkdir(parents=True)
    for file in ("study.json", "trials/0003-ab/model.safetensors"):
        (tmp_path / file).touch()
    with refuses("no-checkpoint", "trials/0003-ab"):
        read_checkpoint(tmp_path)


def diverging(monkeypatch: pytest.MonkeyPatch, *calls: int) -> None:
    """Make loss and weights NaN after these updates, counted from 1 with repeated ones."""
    original = engines.Engine.update
    count = [0]

    def update(self, batches, lr):
        loss = original(self, batches, lr)
        count[0] += 1
        if count[0] in calls:
            with torch.no_grad():
                for weight in self.parameters:
                    weight.fill_(torch.nan)
            return loss * torch.nan
        return loss

    monkeypatch.setattr(engines.Engine, "update", update)


def test_first_divergence_rolls_back_with_half_the_learning_rate(corpus, out, monkeypatch) -> None:
    original = train(tiny(), corpus, recipe(), out.with_name("original"))
    diverging(monkeypatch, 6)
    result = train(tiny(), corpus, recipe(), out)
    assert (result.state, result.steps) == ("complete", 12)
    assert any("rolled back to update 0 with 0.5 of the learning rate" in note
               for note in result.notes)
    assert [p["lr"] for p in result.curve[1:]] == [
        pytest.approx(p["lr"] / 2) for p in original.curve[1:]]
    assert all(torch.isfinite(weight).all() for weight in weights(out).values())


def test_second_divergence_is_a_failed_result(corpus, out, monkeypatch) -> None:
    diverging(monkeypatch, 6, 10)
    result = train(tiny(), corpus, recipe(), out)
    assert result.state == "failed"
    assert "it diverged" in result.reason and "again, after a rollback" in result.reason


@pytest.mark.full
def test_moving_average_is_validated_and_written(corpus, tmp_path) -> None:
    runs = {average: train(tiny(), corpus, recipe(average=average), tmp_path / average)
            for average in ("none", "ema")}
    points = {average: result.curve for average, result in runs.items()}
    assert [p["train_loss"] for p in points["ema"]] == [p["train_loss"] for p in points["none"]]
    assert all(a["validation_loss"] != b["validation_loss"]
               for a, b in zip(points["ema"], points["none"]))
    for average, result in runs.items():
        assert result.metrics["validation_loss"] == pytest.approx(
            points[average][-1]["validation_loss"], rel=1e-6)
    paused = train(tiny(), corpus, recipe(average="ema", validate_every=12), tmp_path / "paused",
                   until_share=8 / 12)
    assert paused.metrics["validation_loss"] == pytest.approx(
        points["ema"][1]["validation_loss"], rel=1e-6)
    assert any(not torch.equal(weight, weights(tmp_path / "none")[name])
               for name, weight in weights(tmp_path / "ema").items())


@pytest.mark.full
def test_moving_average_window_is_limited_to_all_updates(corpus, tmp_path) -> None:
    runs = {every: train(tiny(), corpus,
                         recipe(average="ema", average_every=every, average_count=4),
                         tmp_path / name)
            for every, name in ((0.25, "whole"), (0.9, "more"), (0.2, "less"))}
    losses = {every: result.metrics["validation_loss"] for every, result in runs.items()}
    alone = train(tiny(), corpus, recipe(average="none"),
                  tmp_path / "alone").metrics["validation_loss"]
    assert losses[0.25] == losses[0.9] and len({alone, *losses.values()}) == 3


@pytest.mark.full
def test_run_resumes_after_a_failed_write_of_the_result(corpus, out, tmp_path, monkeypatch) -> None:
    write = Result.write
    left = iter(range(1))

    def full(result, folder):
        if next(left, None) is not None:
            raise DiskFullError("no space left")
        return write(result, folder)

    monkeypatch.setattr(Result, "write", full)
    with pytest.raises(DiskFullError):
        train(tiny(), corpus, recipe(), out)
    assert (out / "checkpoint.pt").exists()
    again = train(tiny(), corpus, recipe(), out, resume=True)
    monkeypatch.undo()
    whole = train(tiny(), corpus, recipe(), tmp_path / "whole")
    losses = [[point["validation_loss"] for point in item.curve] for item in (again, whole)]
    assert again.metrics == whole.metrics and losses[0] == losses[1]
    assert not (out / "checkpoint.pt").exists()


@pytest.mark.full
@pytest.mark.parametrize("average", ["last", "best", "none", "ema"])
def test_paused_run_equals_uninterrupted_run(corpus, tmp_path, average) -> None:
    how = recipe(average=average, optimizer={"ema": "muon", "none": "soap"}.get(average, "adamw"),
                 schedule="wsd")
    whole = train(tiny(), corpus, how, tmp_path / "whole")
    for until, steps in ((0.25, 3), (0.6, 8)):
        paused = train(tiny(), corpus, how, tmp_path / "paused", until_share=until)
        assert (paused.state, paused.steps, paused.metrics["step"]) == ("paused", steps, steps)
        assert paused.metrics["validation_loss"] > 0 and Result.read(tmp_path / "paused") is None
        again = train(tiny(), corpus, how, tmp_path / "paused", until_share=until)
        assert (again.steps, again.metrics["validation_loss"]) == (
            steps, paused.metrics["validation_loss"])
    end = train(tiny(), corpus, how, tmp_path / "paused")
    assert learned(end) == learned(whole) and end.metrics["bleu"] == whole.metrics["bleu"]
    same = [torch.equal(w, weights(tmp_path / "paused")[name])
            for name, w in weights(tmp_path / "whole").items()]
    assert all(same)


def test_beam_larger_than_the_vocabulary_is_refused_before_the_first_update(corpus, out) -> None:
    vocab_size = corpus.tokenizer.vocab_size
    with refuses("beam-too-large", vocab_size, key="recipe.beam"):
        train(tiny(), corpus, recipe(beam=vocab_size + 1), out)
    assert not (out / "checkpoint.pt").exists()


def test_model_with_own_vocabulary_needs_data_of_this_size(corpus, out) -> None:
    with refuses("vocab-mismatch", 70, 80):
        train(tiny(vocab=70), corpus, recipe(), out)
    own = tiny(vocab=80)
    result = train(own, corpus, recipe(steps=2, average="none"), out)
    trained = read_checkpoint(out)
    assert (result.state, result.architecture_id) == ("complete", own.id) and own.id != tiny().id
    assert (trained.architecture.id, trained.architecture.vocab) == (
        own.id, trained.tokenizer.vocab_size)
    assert "vocab: own" in (out / "architecture.yaml").read_text()
