"""Updates on fixed shapes: equal to other updates, and free of what a CUDA graph cannot hold."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from scalesearch.data import BatchStream, Split
from scalesearch.data.batching import Buckets
from scalesearch.library import find_file
from scalesearch.nn import DropoutRates, build_model
from scalesearch.spaces import read_space
from scalesearch.training import train
from scalesearch.training.hardware import Hardware
from scalesearch.training.recipe import Recipe
from scalesearch.training.updates.captured import CapturedEngine, build_engine, choose_buckets
from scalesearch.training.updates.engine import Engine
from scalesearch.training.updates.optimizers import BASIS_UPDATE_INTERVAL
from tests.devices import CountSynchronizations, RecordingRunner
from tests.training import conftest
from tests.training.conftest import tiny
from tests.training.updates.test_engine import with_soft


def recipe(**changes: Any) -> Recipe:
    """A recipe in fp32: bf16 depends on the machine, and its dropout on a CPU reads a number."""
    return conftest.recipe(**{"precision": "fp32", **changes})


ARCHITECTURES = ("small/plain", "small/partialformer", "small/anthe", "small/edgeformer")
class RecordingEngine(CapturedEngine):
    """Engine whose graphs are recordings of operations on the CPU."""

    runner_class = RecordingRunner

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.runner = self.runner_class("updates", self.notes)


def bucketed(split: Split, max_tokens: int, seed: int = 1) -> BatchStream:
    """Batches of fixed shapes."""
    return BatchStream(split, max_tokens, seed, buckets=Buckets.for_split(split, max_tokens))


def trained(engine_class: type[Engine], corpus: Any, how: Recipe, block: Any, updates: int = 13,
            dtype: torch.dtype = torch.float64, split: Any = None) -> tuple[Engine, list[float]]:
    """Engine after some updates, and the losses."""
    torch.manual_seed(0)
    rates = DropoutRates(how.dropout, how.attention_dropout, how.activation_dropout)
    model = build_model(block, vocab=corpus.tokenizer.vocab_size, seed=1, dtype=dtype,
                        dropout=rates)
    engine = engine_class(model.train(), how, Hardware.from_recipe(how))
    stream = bucketed(split or corpus.train, how.max_tokens)
    losses = [engine.update(stream.take(how.accumulate), 1e-2 / (step + 1)).item()
              for step in range(updates)]
    return engine, losses


def weights(engine: Engine) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in engine.parameters])


NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
CHANGES = [
    {"optimizer": "adamw"}, {"optimizer": "muon"}, {"optimizer": "soap"},
    {"optimizer": "adamw", "accumulate": 3}, {"optimizer": "soap", "accumulate": 2},
    {"rdrop": 1.0, "dropout": 1e-9}, {"clip_norm": 0.0, "label_smoothing": 0.0},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_fixed_shapes_give_the_updates_of_selected_rows(corpus, changes: dict[str, Any]) -> None:
    """Row weights of 0 remove padding as selecting rows does, in fp64."""
    how = recipe(max_tokens=200, weight_decay=0.1, **{**NO_DROPOUT, **changes})
    selected, selected_losses = trained(Engine, corpus, how, tiny(width=8).block)
    static, static_losses = trained(CapturedEngine, corpus, how, tiny(width=8).block)
    if how.optimizer == "soap":  # its eigenbases depend on the rounding of fp32 products
        assert static_losses[:2] == pytest.approx(selected_losses[:2], rel=1e-6)
        assert static_losses == pytest.approx(selected_losses, rel=5e-3)
    else:
        assert static_losses == pytest.approx(selected_losses, rel=1e-6)
        assert torch.allclose(weights(static), weights(selected), atol=1e-5)


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_replayed_updates_equal_eager_updates(corpus, changes: dict[str, Any]) -> None:
    """Nothing that changes between updates is a number of Python."""
    how = recipe(max_tokens=300, weight_decay=0.1, **{"dropout": 0.2, **changes})
    eager, eager_losses = trained(CapturedEngine, corpus, how, tiny(width=8).block, 15)
    replayed, losses = trained(RecordingEngine, corpus, how, tiny(width=8).block, 15)
    assert losses == eager_losses
    assert torch.equal(weights(replayed), weights(eager))
    assert replayed.runner.graphs


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_updates_of_fixed_shapes_do_not_wait_for_the_device(corpus,
                                                            changes: dict[str, Any]) -> None:
    """Also in new shapes, and when SOAP updates its bases."""
    how = recipe(max_tokens=300, **changes)
    engine, _ = trained(CapturedEngine, corpus, how, tiny(width=8).block, 1)
    stream = bucketed(corpus.train, how.max_tokens, 2)
    with CountSynchronizations() as synchronizations:
        for _ in range(BASIS_UPDATE_INTERVAL):
            engine.update(stream.take(how.accumulate), 1e-2)
    assert not synchronizations.counts
    assert engine.n_updates == 1 + BASIS_UPDATE_INTERVAL


@pytest.mark.parametrize("waiting", [lambda x: x[x > x.mean()].sum(), lambda x: x.sum().item() + x,
                                     lambda x: x.nonzero().sum() + x.sum()])
def test_recorder_finds_data_dependent_operations(waiting: Any) -> None:
    """Nothing in a captured update may depend on values of the device."""
    runner = RecordingRunner("updates", [])
    numbers = torch.arange(4.0)
    runner.run("sum", waiting, numbers)
    with pytest.raises(AssertionError):
        runner.run("sum", waiting, numbers)


@pytest.mark.full
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_replayed_updates_of_an_architecture_equal_eager_updates(corpus, name: str) -> None:
    how = recipe(max_tokens=64, optimizer="muon", dropout=0.1)
    block = read_space(find_file(name, "spaces")).single_architecture().block
    eager, losses = trained(CapturedEngine, corpus, how, block, 8, torch.float32)
    replayed, replayed_losses = trained(RecordingEngine, corpus, how, block, 8, torch.float32)
    assert replayed_losses == losses
    assert torch.equal(weights(replayed), weights(eager))


def test_soft_targets_of_fixed_shapes(corpus) -> None:
    how = recipe(max_tokens=200, distillation_weight=0.3, **NO_DROPOUT)
    split = with_soft(corpus)
    selected, _ = trained(Engine, corpus, how, tiny(width=8).block, split=split)
    replayed, _ = trained(RecordingEngine, corpus, how, tiny(width=8).block, split=split)
    assert torch.allclose(weights(replayed), weights(selected), atol=1e-5)


def test_memory_that_runs_out_leads_to_eager_updates(corpus, monkeypatch) -> None:
    how = recipe(max_tokens=200)
    expected, _ = trained(Engine, corpus, how, tiny(width=8).block)
    monkeypatch.setattr(CapturedEngine, "_static_loss_sum", raise_out_of_memory)
    engine, _ = trained(CapturedEngine, corpus, how, tiny(width=8).block)
    assert torch.allclose(weights(engine), weights(expected), atol=1e-6)
    assert len(engine.notes) == 1


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("out of memory"),
                                   RuntimeError("operation not permitted when stream is "
                                                "capturing")])
def test_failed_capture_leads_to_eager_updates(corpus, monkeypatch, error: RuntimeError) -> None:
    how = recipe(max_tokens=200, dropout=0.2)
    expected, losses = trained(CapturedEngine, corpus, how, tiny(width=8).block)
    captured: list[object] = []

    def record(runner: RecordingRunner, function: Any, *arguments: Any) -> Any:
        captured.append(function)
        if len(captured) > 1:
            raise error
        return RecordingRunner._record(runner, function, *arguments)

    monkeypatch.setattr(RecordingEngine, "runner_class",
                        type("FailingRunner", (RecordingRunner,), {"_record": record}))
    engine, eager_losses = trained(RecordingEngine, corpus, how, tiny(width=8).block)
    assert eager_losses == losses
    assert torch.equal(weights(engine), weights(expected))
    assert len(captured) == 2
    assert len(engine.notes) == 1


@pytest.mark.full
def test_engine_with_exact_shapes_compiles_one_variant_for_all(corpus) -> None:
    engine, _ = trained(CapturedEngine, corpus, recipe(compile="yes"), tiny(width=8).block, 0)
    layers = [node for node in engine.model.modules() if getattr(node, "compiled_forward", None)]
    by_shape = {node.compiled_forward for node in layers}
    engine.use_exact_shapes("a test")
    assert by_shape.isdisjoint(node.compiled_forward for node in layers)
    assert len(layers) == 2


def raise_out_of_memory(*arguments: Any) -> None:
    raise torch.OutOfMemoryError("out of memory")


@pytest.mark.full
def test_restored_engine_continues_with_the_same_updates(corpus) -> None:
    """Optimizers load their state as new tensors, which old graphs do not know."""
    how = recipe(max_tokens=300, optimizer="soap", dropout=0.2)
    block = tiny(width=8).block
    whole, _ = trained(RecordingEngine, corpus, how, block, 40)
    engine, _ = trained(RecordingEngine, corpus, how, block, 17)
    state = engine.state()
    stored = {**state, "model": {name: value.clone() for name, value in state["model"].items()}}
    stored["optimizer"] = [clone_tensors(item) for item in state["optimizer"]]
    stream = bucketed(corpus.train, 300)
    stream.take(17)
    for step in range(17, 19):
        engine.update(stream.take(1), 1e-2 / (step + 1))
    engine.restore(stored)
    stream = bucketed(corpus.train, 300)
    stream.take(17)
    for step in range(17, 40):
        engine.update(stream.take(1), 1e-2 / (step + 1))
    assert torch.equal(weights(engine), weights(whole))


def clone_tensors(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: clone_tensors(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone_tensors(item) for item in value]
    return value.clone() if isinstance(value, torch.Tensor) else value


def test_adaptive_softmax_is_eager(corpus) -> None:
    how = recipe(bucketing="yes")
    block = tiny(width=8, embedding="adaptive", embedding__cutoffs=(20,), embedding__factor=2).block
    model = build_model(block, vocab=corpus.tokenizer.vocab_size, seed=1)
    engine = build_engine(model.train(), how, Hardware.from_recipe(how))
    engine.update(bucketed(corpus.train, 200).take(1), 1e-2)
    assert len(engine.notes) == 1


@pytest.mark.parametrize(("dropout", "longest"), [(0.0, 128), (0.3, 257)])
def test_shapes_allow_for_sides_that_bpe_dropout_lengthens(corpus, dropout: float,
                                                           longest: int) -> None:
    long = Split.from_lists([[5] * 127], [[5] * 100])
    long_corpus = replace(corpus, train=long, spec=corpus.spec.replace(max_length=256))
    buckets = choose_buckets(long_corpus, recipe(subword_dropout=dropout))
    assert (buckets.step, buckets.longest) == (8, longest)


@pytest.mark.full
@pytest.mark.parametrize("has_buckets", [False, True])
def test_run_continues_with_the_batches_it_began_with(corpus, tmp_path, monkeypatch,
                                                      has_buckets: bool) -> None:
    """A run can move between machines with and without a GPU, whose batches differ."""
    how = recipe(steps=8, max_tokens=200, average="none")

    def run(folder: str, begins: bool, **options: Any) -> Any:
        hardware = replace(Hardware.from_recipe(how), has_fixed_shapes=begins)
        monkeypatch.setattr(Hardware, "from_recipe", lambda *arguments: hardware)
        return train(tiny(), corpus, how, tmp_path / folder, **options)

    whole = run("whole", has_buckets)
    run("moved", has_buckets, until_share=0.5)
    moved = run("moved", not has_buckets)
    assert moved.tokens == whole.tokens
    assert moved.metrics["loss"] == pytest.approx(whole.metrics["loss"], rel=1e-4)
    assert len(moved.notes) - len(whole.notes) == (not has_buckets)


def test_rows_of_padding_have_no_gradient(corpus) -> None:
    batches = bucketed(corpus.train, 300).take(30)
    partial = next(batch for batch in batches if len(batch) < len(batch.source))
    assert np.count_nonzero(partial.target_out[len(partial):]) == 0
    engine, _ = trained(CapturedEngine, corpus, recipe(**NO_DROPOUT), tiny(width=8).block, 0)
    selected, _ = trained(Engine, corpus, recipe(**NO_DROPOUT), tiny(width=8).block, 0)
    assert engine.update([partial], 1e-2).item() == pytest.approx(
        selected.update([partial], 1e-2).item())


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "n_losses"), [
    ({}, 2), ({"label_smoothing": 0.0, "rdrop": 1.0, "dropout": 1e-9}, 3)], ids=str)
def test_compiled_updates_equal_eager_updates(corpus, changes: dict[str, Any],
                                              n_losses: int) -> None:
    """Equal layers are compiled once per shape, and the loss once per number of rows."""
    how = recipe(max_tokens=200, **{**NO_DROPOUT, **changes})
    block = tiny(width=8, encoder__depth=3, decoder__depth=2).block
    _, losses = trained(CapturedEngine, corpus, how, block, 8, torch.float32)
    counters.clear()
    compiled, compiled_losses = trained(CapturedEngine, corpus, how.replace(compile="yes"), block,
                                        8, torch.float32)
    assert compiled_losses == pytest.approx(losses, rel=1e-5)
    assert counters["stats"]["unique_graphs"] == 2 * len(compiled.inputs) + n_losses
    assert not counters["graph_break"]


@pytest.mark.slow
def test_candidates_with_equal_layers_share_compiled_code(corpus) -> None:
    how = recipe(max_tokens=200, compile="yes", **NO_DROPOUT)
    trained(CapturedEngine, corpus, how, tiny(width=8).block, 2, torch.float32)
    counters.clear()
    deeper = tiny(width=8, encoder__depth=4, decoder__depth=3).block
    trained(CapturedEngine, corpus, how, deeper, 2, torch.float32)
    assert not counters["aot_autograd"]["autograd_cache_miss"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_compiled_layers_of_an_architecture_equal_eager_layers(corpus, name: str) -> None:
    how = recipe(max_tokens=64, **NO_DROPOUT)
    block = read_space(find_file(name, "spaces")).single_architecture().block
    eager, losses = trained(CapturedEngine, corpus, how, block, 1)
    compiled, compiled_losses = trained(CapturedEngine, corpus, how.replace(compile="yes"), block,
                                        1)
    assert compiled_losses == pytest.approx(losses, rel=1e-6)
    gradients, expected = (torch.cat([weight.grad.flatten() for weight in engine.parameters])
                           for engine in (compiled, eager))
    assert (gradients - expected).norm() < 1e-6 * expected.norm()
