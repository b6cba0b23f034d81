"""Detection of hardware, and training in bf16 and compiled."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from scalesearch.data import BatchStream
from scalesearch.nn import build_model
from scalesearch.training import hardware as machines
from scalesearch.training import run, train
from scalesearch.training.hardware import Hardware, estimate_run_seconds, has_fast_bf16
from scalesearch.training.recipe import Recipe
from scalesearch.training.updates.captured import measure_precision
from tests.errors import refuses
from tests.training.conftest import recipe, tiny

CPU = torch.device("cpu")


@pytest.mark.parametrize(("flags", "fast"),
                         [("fpu avx2 avx512f", False), ("avx512_bf16", True), ("amx_bf16", True)])
def test_bf16_needs_a_processor_that_supports_it(monkeypatch, flags: str, fast: bool) -> None:
    monkeypatch.setattr(machines, "read_cpuinfo",
                        lambda: {"flags": flags, "model name": "A processor"})
    assert has_fast_bf16(CPU) is fast
    output = Hardware.from_recipe(Recipe(steps=1, device="cpu"))
    assert (output.uses_bf16, output.dtype) == (fast, "bf16" if fast else "fp32")
    assert output.attention_kernel == ("products" if fast else "fused")
    assert Hardware.from_recipe(Recipe(steps=1, device="cpu", precision="fp32")).dtype == "fp32"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_is_refused() -> None:
    with refuses("no-gpu", key="recipe.device"):
        Hardware.from_recipe(Recipe(steps=1, device="cuda"))


def test_compile_on_a_cpu_needs_yes() -> None:
    assert not Hardware.from_recipe(Recipe(steps=10**6, device="cpu")).is_compiled
    assert Hardware.from_recipe(Recipe(steps=1, device="cpu", compile="yes")).is_compiled


def test_recipe_sets_threads() -> None:
    before = torch.get_num_threads()
    Hardware.from_recipe(Recipe(steps=1, device="cpu", threads=2))
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


def test_to_device_copies_arrays() -> None:
    array = np.arange(12).reshape(3, 4)[:, ::2]
    assert Hardware.from_recipe(Recipe(steps=1,
                                       device="cpu")).to_device(array).tolist() == array.tolist()


def test_training_in_bf16(corpus, out) -> None:
    result = train(tiny(), corpus, recipe(precision="bf16", device="cpu"), out)
    assert (result.state, result.dtype) == ("complete", "bf16")
    assert result.curve[-1]["validation_loss"] < result.curve[0]["validation_loss"]


@pytest.mark.parametrize(("budget", "seconds"), [
    ({"steps": 100}, 0.7), ({"tokens": 30_000}, 0.105), ({"epochs": 10}, 0.035),
    ({"minutes": 2}, 120), ({"cpu_minutes": 3}, 180), ({"steps": 100, "tokens": 30_000}, 0.105)])
def test_run_is_as_long_as_its_first_exhausted_budget(budget, seconds: float) -> None:
    """An update of two batches of 1,000 tokens takes 7 ms: 2.5 ms, and 137 GFLOP, per batch."""
    how = Recipe(max_tokens=1000, accumulate=2, **budget)
    assert estimate_run_seconds(how, 137e9, 1000) == pytest.approx(seconds)


@pytest.mark.parametrize(("seconds", "precision", "is_long", "is_measured"), [
    (599, "auto", False, False), (601, "auto", True, True), (601, "fp32", True, False)])
def test_long_runs_on_a_gpu_are_compiled_and_measured(
        monkeypatch, seconds: float, precision: str, is_long: bool, is_measured: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(machines, "has_fast_bf16", lambda device: True)
    before = torch.get_float32_matmul_precision()
    hardware = Hardware.from_recipe(Recipe(steps=1, precision=precision), run_seconds=seconds)
    torch.set_float32_matmul_precision(before)
    assert hardware.is_compiled is is_long
    assert hardware.measures_precision is is_measured


@pytest.mark.parametrize("is_bf16_faster", [False, True])
@pytest.mark.full
def test_resumed_run_keeps_the_measured_precision(corpus, tmp_path, monkeypatch,
                                                  is_bf16_faster: bool) -> None:
    how = recipe(steps=6, device="cpu", bucketing="yes")
    hardware = replace(Hardware.from_recipe(how), measures_precision=True)
    monkeypatch.setattr(Hardware, "from_recipe", lambda *arguments: hardware)
    monkeypatch.setattr(run, "measure_precision", lambda *arguments: is_bf16_faster)
    whole = train(tiny(), corpus, how, tmp_path / "whole")
    train(tiny(), corpus, how, tmp_path / "parts", until_share=0.5)
    monkeypatch.setattr(run, "measure_precision", lambda *arguments: not is_bf16_faster)
    parts = train(tiny(), corpus, how, tmp_path / "parts")
    assert whole.dtype == parts.dtype == ("bf16" if is_bf16_faster else "fp32")
    assert whole.metrics["loss"] == parts.metrics["loss"]


def test_measuring_the_precision_changes_nothing(corpus, tmp_path) -> None:
    how = recipe(device="cpu")
    model = build_model(tiny().block, vocab=corpus.tokenizer.vocab_size, seed=1).train()
    weights = [weight.clone() for weight in model.parameters()]
    before = torch.get_rng_state()
    batches = BatchStream(corpus.train, how.max_tokens, 1).take(1)
    measure_precision(model, how, Hardware.from_recipe(how), batches)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(map(torch.equal, model.parameters(), weights))


@pytest.mark.parametrize(("threads", "busy", "warns"), [
    (None, 1.9, True), (4, 0.6, True), (4, 0.4, False), (2, 1.9, False), (1, 4.0, False),
    (None, None, False)])
def test_threads_without_a_free_core_are_warned_of(monkeypatch, threads, busy, warns) -> None:
    monkeypatch.setattr(machines.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(machines, "measure_busy_cores", lambda: busy)
    how = Recipe(steps=1, threads=threads, device="cpu")
    warning = machines.describe_busy_cores(how)
    assert bool(warning) == warns and (not warns or f"{busy} of 4 cores" in warning)


def test_busy_cores_are_a_share_of_all() -> None:
    busy = machines.measure_busy_cores()
    assert busy is None or 0 <= busy <= (machines.os.cpu_count() or 1)


@pytest.mark.slow
def test_compiled_model_has_the_same_losses(corpus, tmp_path) -> None:
    still = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "device": "cpu"}
    plain, compiled = (train(tiny(), corpus, recipe(compile=how, **still), tmp_path / how)
                       for how in ("no", "yes"))
    for first, other in zip(plain.curve, compiled.curve):
        assert first["validation_loss"] == pytest.approx(other["validation_loss"], rel=1e-3)


@pytest.mark.gpu
def test_training_on_a_gpu(corpus, out) -> None:
    result = train(tiny(), corpus, recipe(device="cuda"), out)
    assert result.state == "complete" and result.curve[
        -1]["validation_loss"] < result.curve[0]["validation_loss"]
