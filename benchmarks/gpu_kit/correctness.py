"""Whether a GPU computes what the CPU does, within stated tolerances, and resumes as exactly."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from operator import eq
from typing import Any

import torch

from gpu_kit.kit import (
    FAMILIES,
    OTHER_PUBLISHED,
    Figures,
    Kit,
    Skipped,
    Wrong,
    architecture,
    batch,
    check,
    excess,
    far,
    hold,
    model,
    refuse,
)
from scalesearch.data import PAD, Batch
from scalesearch.data.soft_targets import SoftTargetBatch
from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.decode import greedy_search
from scalesearch.nn.ensemble import Ensemble
from scalesearch.nn.graphs import GraphRunner
from scalesearch.nn.static_search import StaticSearch
from scalesearch.training import train
from scalesearch.training.scoring.soft_targets import top_k_records
from scalesearch.training.updates.averaging import read_weights
from scalesearch.training.updates.engine import Engine

CPU = torch.device("cpu")
FP32 = 2e-4
TF32 = 5e-3
BF16 = 5e-2  # of the greatest entry
HALF = 2e-3  # of probabilities that are kept as halves


def gradients(kit: Kit, subject: Any, device: torch.device, bf16: bool = False,
              sample: Batch | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss of a batch, and all gradients in one vector."""
    engine = Engine(copy.deepcopy(subject).to(device).train(), kit.recipe(dropout=0),
                    kit.hardware(device, bf16))
    loss = engine.loss_sum(sample or batch(), 0.1)
    loss.backward()
    return loss, torch.cat([p.grad.flatten() for p in engine.parameters if p.grad is not None])


def _compared(kit: Kit, names: tuple[str, ...], limit: float, bf16: bool = False) -> dict[str, Any]:
    figures = kit.figures
    wrong = []
    for name in names:
        subject = model(name)
        (loss, grads), (expected, true) = gradients(
            kit, subject, kit.device, bf16), gradients(kit, subject, CPU)
        figures[name] = {"loss": far(loss, expected), "gradients": far(grads, true)}
        wrong += excess(f"{name}, loss", figures[name]["loss"], limit)
        wrong += excess(f"{name}, gradients", figures[name]["gradients"], 10 * limit)
    refuse(wrong)
    return figures


@check()
def forward_and_backward(kit: Kit) -> Figures:
    """Losses and gradients of all families and other published blocks, against the CPU in fp32."""
    with kit.exact():
        return _compared(kit, FAMILIES + (OTHER_PUBLISHED[2:4] if kit.quick else OTHER_PUBLISHED), FP32)


@check()
def tf32(kit: Kit) -> Figures:
    """The same with products in TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        return _compared(kit, FAMILIES, TF32)
    finally:
        torch.set_float32_matmul_precision(before)


@check()
def bf16(kit: Kit) -> Figures:
    """The same under autocast."""
    return _compared(kit, FAMILIES, BF16, bf16=True)


@check()
def attention_kernels(kit: Kit) -> Figures:
    """Compare fused attention with attention as products."""
    figures = kit.figures
    for name in ("small/plain", "small/edgeformer"):
        subject = model(name).to(kit.device).eval()
        tensor = kit.hardware().to_device
        sample = batch()
        outputs = []
        for kernel in ("fused", "products"):
            subject.set_attention(kernel)
            with torch.no_grad(), kit.exact():
                outputs.append(subject(tensor(sample.source), tensor(sample.target_in)))
        figures[name] = far(*outputs)
        hold(name, figures[name], FP32)
    return figures


@check()
def soft_targets(kit: Kit) -> Figures:
    """Compare an ensemble's probabilities, and a student's update, with the CPU."""
    members = [model("small/plain", seed=seed).eval() for seed in (1, 2)]
    sample = batch()
    with kit.exact():
        on_device, on_cpu = (top_k_records(Ensemble(copy.deepcopy(members)).to(device), sample, 8,
                                     kit.hardware(device)) for device in (kit.device, CPU))
        student = model("small/plain", seed=3)
        soft = replace(sample, soft_targets=SoftTargetBatch.from_records(on_cpu, sample.target_out != PAD))
        (loss, grads), (expected, true) = (
            gradients(kit, student, device, sample=soft) for device in (kit.device, CPU))
    shares = (torch.from_numpy(figures["probabilities"].copy()) for figures in (on_device, on_cpu))
    figures = {"probabilities": far(*shares), "loss": far(loss, expected),
             "gradients": far(grads, true)}
    hold("probabilities", figures["probabilities"], HALF)
    hold("loss", figures["loss"], FP32)
    hold("gradients", figures["gradients"], 10 * FP32)
    return figures


# Distance of two ends over the way. On the CPU the same batches in another order gave at most
# 0.0016, and 0.56 with SOAP, whose first eigenvectors come from few gradients. So the length is
# limited, too.
WAY = {"adamw": 0.02, "muon": 0.02, "soap": 0.9}
LENGTH = 0.05


@check()
def updates(kit: Kit) -> Figures:
    """Compare weights after three updates of each optimizer with the CPU."""
    figures = {}
    for optimizer in WAY:
        start = weights_of(model("small/partialformer"))
        on_device, on_cpu = (_end(kit, optimizer, device) - start for device in (kit.device, CPU))
        figures[optimizer] = {"relative distance": float((on_device - on_cpu).norm() / on_cpu.norm()),
                            "length": float(abs(on_device.norm() / on_cpu.norm() - 1))}
        hold(f"{optimizer}, distance", figures[optimizer]["relative distance"], WAY[optimizer])
        hold(f"{optimizer}, length of the way", figures[optimizer]["length"], LENGTH)
    return figures


def _end(kit: Kit, optimizer: str, device: torch.device) -> torch.Tensor:
    subject = model("small/partialformer").to(device).train()
    engine = Engine(subject, kit.recipe(optimizer=optimizer, dropout=0), kit.hardware(device))
    with kit.exact():
        for step in range(3):
            engine.update([batch(seed=step)], 1e-3)
    return weights_of(subject)


def weights_of(subject: Any) -> torch.Tensor:
    """All weights in one vector, on the CPU."""
    return torch.cat([weight.detach().double().cpu().flatten() for weight in subject.parameters()])


@check()
def decoding(kit: Kit) -> Figures:
    """Greedy and beam translations, also with captured steps, equal to those of the CPU."""
    figures = {}
    for name in FAMILIES[:1] if kit.quick else FAMILIES:
        subject = model(name).eval()
        source = torch.from_numpy(batch(rows=32).source)
        on_device = copy.deepcopy(subject).to(kit.device)
        notes: list[str] = []
        searches = {"greedy": (greedy_search, greedy_search), "beam": (beam_search, beam_search)}
        if StaticSearch.supports(subject):
            searches["captured greedy"] = captured_search(1, notes), greedy_search
            searches["captured beam"] = captured_search(5, notes), beam_search
        equal_shares = {}
        for search_name, (search, expected_search) in searches.items():
            with kit.exact():
                translations = search(on_device, source.to(kit.device)).best_ids()
            expected = expected_search(subject, source).best_ids()
            equal_shares[search_name] = sum(map(eq, translations, expected)) / len(expected)
        figures[name] = {**equal_shares, "notes": notes}
        hold(f"{name}, share of translations that differ", 1 - min(equal_shares.values()), 0.07)
        hold(f"{name}, captures that failed", len(notes), 0)
    return figures


def captured_search(beam: int, notes: list[str]) -> Callable[[Any, torch.Tensor], Any]:
    """A search with captured steps, whose second batch replays the graphs of the first."""
    def search(subject: Any, source: torch.Tensor) -> Any:
        with subject.cached_weights():
            runner = GraphRunner(source.device, "decoding steps", notes)
            static_search = StaticSearch(subject, runner, beam)
            static_search.search(source.flip(0))
            return static_search.search(source)

    return search


@check(gpus=0)
def causality(kit: Kit) -> Figures:
    """No logit changes with a later target token, on the device."""
    figures = {}
    for name in FAMILIES:
        subject = model(name).to(kit.device).eval()
        tensor = kit.hardware().to_device
        sample = batch(rows=2)
        source = tensor(sample.source)
        target = tensor(sample.target_in)
        changed = target.clone()
        changed[:, 6:] = 5
        with torch.no_grad(), kit.exact():
            figures[name] = far(subject(source, target)[:, :6], subject(source, changed)[:, :6])
        hold(name, figures[name], 1e-5)
    return figures


@check(gpus=0)
def resuming(kit: Kit) -> Figures:
    """A training that paused has the weights of one that did not, to the bit; their mean too."""
    wrong = []
    mean = {"average": "last", "average_count": 3, "average_every": 0.1}
    for precision, how in (("fp32", mean), ("auto", {"average": "ema", "optimizer": "soap"})):
        whole = kit.folder / f"whole-{precision}"
        parts = kit.folder / f"parts-{precision}"
        recipe = kit.recipe(dropout=0.1, precision=precision, **how)
        train(architecture("small/plain"), kit.corpus, recipe, whole)
        train(architecture("small/plain"), kit.corpus, recipe, parts, until_share=0.5)
        kit.figures[precision] = train(architecture("small/plain"), kit.corpus, recipe, parts).dtype
        whole_weights, part_weights = (read_weights(folder / "model.safetensors") for folder in (whole, parts))
        if differing := [name for name in whole_weights if not torch.equal(whole_weights[name], part_weights[name])]:
            wrong.append(
                f"{precision}: {len(differing)} of {len(whole_weights)} weights differ, {differing[0]} first")
    refuse(wrong)
    return {"weights": len(whole_weights), "differ": 0}


@check()
def out_of_memory(kit: Kit) -> Figures:
    """Memory that runs out for real: batches are cut, and the loss is the same."""
    if kit.device.type != "cuda":
        raise Skipped("limits the memory of a GPU")
    large = batch(rows=512, length=120, vocab=VOCAB_OF_MUCH)
    subject = model("small/plain", VOCAB_OF_MUCH)
    losses = []
    parts = []
    for share in (1.0, 0.0):
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(kit.device).total_memory
        torch.cuda.set_per_process_memory_fraction(share or min(1.0, LITTLE / total))
        try:
            engine = Engine(copy.deepcopy(subject).to(kit.device).train(), kit.recipe(dropout=0),
                            kit.hardware())
            losses.append(float(engine.update([large], 1e-3)))
            parts.append(engine.batch_splits)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
    if parts[1] <= parts[0]:
        raise Wrong(f"{parts[1]} pieces with {LITTLE / 2**30:g} GiB, {parts[0]} with all: memory "
                    "did not run out")
    hold("loss", abs(losses[0] - losses[1]) / losses[0], 1e-4)
    return {"pieces": parts, "losses": losses}


LITTLE = 1.5 * 2**30
VOCAB_OF_MUCH = 8000


@check(gpus=0)
def divergence(kit: Kit) -> Figures:
    """A loss that is not finite ends a run with the reason, after one rollback."""
    recipe = kit.recipe(lr=1e9, clip_norm=0, steps=30)
    result = train(architecture("small/plain"), kit.corpus, recipe, kit.folder / "diverged")
    if result.state != "failed" or "diverged" not in result.reason:
        raise Wrong(f"{result.state}: {result.reason}")
    return {"reason": result.reason}
