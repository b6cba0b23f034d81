"""Detection of hardware, and training in bf16 and compiled."""

import numpy as np
import pytest
import torch

from scalesearch.training import hardware as machines
from scalesearch.training import train
from scalesearch.training.hardware import Hardware, has_fast_bf16
from scalesearch.training.recipe import Recipe
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
