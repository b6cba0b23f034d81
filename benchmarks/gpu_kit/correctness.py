"""Whether a GPU computes what the CPU does, within stated tolerances, and goes on as exactly."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch

from gpu_kit.kit import (
    FAMILIES,
    OTHER_PUBLISHED,
    Figures,
    Kit,
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
from scalesearch.train import train
from scalesearch.train.scoring.soft_targets import top_k_records
from scalesearch.train.updates.averaging import read_weights
from scalesearch.train.updates.engine import Engine

CPU = torch.device("cpu")
FP32 = 2e-4
TF32 = 5e-3
BF16 = 5e-2  # of the greatest entry
HALF = 2e-3  # of probabilities that are kept as halves


def gradients(kit: Kit, subject: Any, device: torch.device, bf16: bool = False,
              given: Batch | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss of a batch, and all gradients in one vector."""
    engine = Engine(copy.deepcopy(subject).to(device).train(), kit.recipe(dropout=0),
                    kit.hardware(device, bf16))
    loss = engine.loss_sum(given or batch(), 0.1)
    loss.backward()
    return loss, torch.cat([p.grad.flatten() for p in engine.parameters if p.grad is not None])


def _compared(kit: Kit, names: tuple[str, ...], limit: float, bf16: bool = False) -> dict[str, Any]:
    found = kit.figures
    wrong = []
    for name in names:
        subject = model(name)
        (loss, grads), (expected, true) = gradients(
            kit, subject, kit.device, bf16), gradients(kit, subject, CPU)
        found[name] = {"loss": far(loss, expected), "gradients": far(grads, true)}
        wrong += excess(f"{name}, loss", found[name]["loss"], limit)
        wrong += excess(f"{name}, gradients", found[name]["gradients"], 10 * limit)
    refuse(wrong)
    return found


@check()
def forward_and_backward(kit: Kit) -> Figures:
    """Losses and gradients of every family and second-tier block, fp32 beside the CPU's."""
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
    """Fused attention beside attention as products."""
    found = kit.figures
    for name in ("small/plain", "small/edgeformer"):
        subject = model(name).to(kit.device).eval()
        tensor = kit.hardware().to_device
        given = batch()
        seen = []
        for kernel in ("fused", "products"):
            subject.set_attention(kernel)
            with torch.no_grad(), kit.exact():
                seen.append(subject(tensor(given.source), tensor(given.target_in)))
        found[name] = far(*seen)
        hold(name, found[name], FP32)
    return found


@check()
def soft_targets(kit: Kit) -> Figures:
    """Probabilities of an ensemble, and what a student's update makes of them, beside the CPU's."""
    members = [model("small/plain", seed=seed).eval() for seed in (1, 2)]
    given = batch()
    with kit.exact():
        there, here = (top_k_records(Ensemble(copy.deepcopy(members)).to(device), given, 8,
                                     kit.hardware(device)) for device in (kit.device, CPU))
        student = model("small/plain", seed=3)
        soft = replace(given, soft_targets=SoftTargetBatch.from_records(here, given.target_out != PAD))
        (loss, grads), (expected, true) = (
            gradients(kit, student, device, given=soft) for device in (kit.device, CPU))
    shares = (torch.from_numpy(found["probabilities"].copy()) for found in (there, here))
    found = {"probabilities": far(*shares), "loss": far(loss, expected),
             "gradients": far(grads, true)}
    hold("probabilities", found["probabilities"], HALF)
    hold("loss", found["loss"], FP32)
    hold("gradients", found["gradients"], 10 * FP32)
    return found


# Distance of two ends over the way. On the CPU the same batches in another order came to at most
# .0016; with SOAP
# to .56: its eigenvectors are at first those of few gradients. So the length of the way is held
# too.
WAY = {"adamw": 0.02, "muon": 0.02, "soap": 0.9}
LENGTH = 0.05


@check()
def updates(kit: Kit) -> Figures:
    """Weights after three updates of each optimizer, beside the CPU's."""
    found = {}
    for optimizer in WAY:
        start = weights_of(model("small/partialformer"))
        here, there = (_end(kit, optimizer, device) - start for device in (kit.device, CPU))
        found[optimizer] = {"apart": float((here - there).norm() / there.norm()),
                            "length": float(abs(here.norm() / there.norm() - 1))}
        hold(f"{optimizer}, distance", found[optimizer]["apart"], WAY[optimizer])
        hold(f"{optimizer}, length of the way", found[optimizer]["length"], LENGTH)
    return found


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
    """Greedy and beam translations, those of the CPU."""
    found = {}
    for name in FAMILIES:
        subject = model(name).eval()
        source = torch.from_numpy(batch(rows=32).source)
        same = []
        for search in (greedy_search, beam_search):
            with kit.exact():
                here = search(copy.deepcopy(subject).to(kit.device),
                              source.to(kit.device)).best_ids()
            there = search(subject, source).best_ids()
            same.append(sum(a == b for a, b in zip(here, there)) / len(there))
        found[name] = {"greedy": same[0], "beam": same[1]}
        hold(f"{name}, share of translations that differ", 1 - min(same), 0.07)
    return found


@check(gpus=0)
def causality(kit: Kit) -> Figures:
    """No logit changes with a later target token, on the device."""
    found = {}
    for name in FAMILIES:
        subject = model(name).to(kit.device).eval()
        tensor = kit.hardware().to_device
        given = batch(rows=2)
        source = tensor(given.source)
        target = tensor(given.target_in)
        changed = target.clone()
        changed[:, 6:] = 5
        with torch.no_grad(), kit.exact():
            found[name] = far(subject(source, target)[:, :6], subject(source, changed)[:, :6])
        hold(name, found[name], 1e-5)
    return found


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
        one, other = (read_weights(folder / "model.safetensors") for folder in (whole, parts))
        if apart := [name for name in one if not torch.equal(one[name], other[name])]:
            wrong.append(
                f"{precision}: {len(apart)} of {len(one)} weights differ, {apart[0]} first")
    refuse(wrong)
    return {"weights": len(one), "differ": 0}


@check()
def out_of_memory(kit: Kit) -> Figures:
    """Memory that runs out for real: batches are cut, and the loss is the same."""
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
    """A loss that is no number ends a training with the reason, after one rollback."""
    recipe = kit.recipe(lr=1e9, clip_norm=0, steps=30)
    result = train(architecture("small/plain"), kit.corpus, recipe, kit.folder / "diverged")
    if result.state != "failed" or "diverged" not in result.reason:
        raise Wrong(f"{result.state}: {result.reason}")
    return {"reason": result.reason}
