"""Captured updates: equal to eager ones to the last bit, and their memory."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import replace
from typing import Any

import torch

from gpu_kit.kit import (
    FAMILIES,
    OTHER_PUBLISHED,
    VOCAB,
    Figures,
    Kit,
    Wrong,
    architecture,
    batch,
    check,
    model,
    refuse,
)
from scalesearch.data import BatchStream
from scalesearch.training import Recipe
from scalesearch.training.hardware import Hardware
from scalesearch.training.updates.captured import CapturedEngine, choose_buckets

DROPOUT_KEYS = ("dropout", "attention_dropout", "activation_dropout")
SHAPES = ((16, 8), (8, 16), (4, 24))
CASES = [(name, {"optimizer": "adamw"}) for name in (*FAMILIES, *OTHER_PUBLISHED)]
CASES += [("small/plain", changes) for changes in (
    {"optimizer": "muon"}, {"optimizer": "soap"}, {"accumulate": 3},
    {"optimizer": "soap", "accumulate": 2}, {"rdrop": 1.0, "dropout": 0.1},
    {"precision": "bf16"}, {"precision": "bf16", "optimizer": "soap"})]


@check(seconds=50)
def captured_updates(kit: Kit) -> Figures:
    """Weights after updates that were captured and replayed, against eager ones: equal bits."""
    wrong = []
    for name, changes in CASES[:2] if kit.quick else CASES:
        label = f"{name} {changes}"
        results = []
        for has_graphs in (False, True):
            engine = _train(kit, name, has_graphs, changes)
            results.append(torch.cat([weight.detach().flatten() for weight in engine.parameters]))
        difference = float((results[0] - results[1]).norm() / results[0].norm())
        kit.figures[label] = {"graphs": len(engine.runner.graphs), "relative difference": difference,
                              "notes": engine.notes}
        if difference or engine.notes:
            wrong.append(f"{label}: {difference:.3g} {engine.notes}")
    refuse(wrong)
    return kit.figures


def _train(kit: Kit, name: str, has_graphs: bool, changes: dict[str, Any]) -> CapturedEngine:
    """Train for 27 updates of several shapes; SOAP updates its bases twice."""
    recipe = kit.recipe(**changes)
    torch.manual_seed(1)
    subject = model(name, dropout=0.1).to(kit.device).train()
    engine = CapturedEngine(subject, recipe, Hardware.from_recipe(recipe))
    engine.runner.is_active = has_graphs and engine.runner.is_active
    for update in range(27):
        shapes = [SHAPES[(update + index) % len(SHAPES)] for index in range(recipe.accumulate)]
        engine.update([batch(*shape, VOCAB, update) for shape in shapes], 1e-3 / (1 + update))
    return engine


def train_alone(kit: Kit, name: str, recipe: Recipe, rows: int, vocab: int) -> tuple[int, int]:
    """Train for 12 captured updates; return the largest reserved and allocated bytes."""
    hardware = replace(Hardware.from_recipe(recipe), has_fixed_shapes=True)
    subject = model(name, vocab, dropout=0.1).to(kit.device).train()
    engine = CapturedEngine(subject, recipe, hardware)
    for update in range(12):
        engine.update([batch(rows, 32, vocab, update)], 1e-3)
    kit.wait()
    return torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()


@check(gpus=0, seconds=15)
def resident_text(kit: Kit) -> Figures:
    """Updates whose batches are gathered on the device: equal to others, and their speed."""
    rows, updates = (8, 20) if kit.quick else (64, 300)
    recipe = kit.recipe(max_tokens=32 * rows, bucketing="yes", **dict.fromkeys(DROPOUT_KEYS, 0.1))
    ends = []
    for name, max_bytes in (("host", 0), ("device", 2**40)):
        torch.manual_seed(1)
        subject = model("small/plain", dropout=0.1).to(kit.device).train()
        engine = CapturedEngine(subject, recipe, Hardware.from_recipe(recipe))
        engine.max_text_bytes = max_bytes
        stream = BatchStream(kit.corpus.train, recipe.max_tokens, 1,
                             buckets=choose_buckets(kit.corpus, recipe))
        for _ in range(updates):  # also captures all shapes
            engine.update(stream.take(1), 1e-4)
        ends.append([weight.detach().clone() for weight in engine.parameters])
        kit.wait()
        start = time.perf_counter()
        for _ in range(updates):
            engine.update(stream.take(1), 1e-4)
        issued = time.perf_counter() - start
        kit.wait()
        kit.figures |= {
            f"text on the {name}, updates per second": updates / (time.perf_counter() - start),
            f"text on the {name}, ms until an update is issued": 1e3 * issued / updates}
    if not all(map(torch.equal, *ends)):
        raise Wrong("the weights differ")
    return kit.figures


@check(seconds=35)
def predicted_memory(kit: Kit) -> Figures:
    """Predicted bytes of captured training against the bytes that a process reserved.

    Each case has its own process, so that memory of earlier cases cannot be used again.
    """
    from scalesearch.training.memory import make_full_batch, simulate_updates

    rows, vocab = (4, 100) if kit.quick else (64, 8000)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch._dynamo", "gpu_kit.captured"])
    child_kit = Kit(folder=None, quick=kit.quick, device=kit.device)
    for name in FAMILIES[:2] if kit.quick else (*FAMILIES, "transformer"):
        for optimizer in ("adamw", "soap"):
            recipe = kit.recipe(optimizer=optimizer, max_tokens=32 * rows, precision="auto",
                                average="none", **dict.fromkeys(DROPOUT_KEYS, 0.1))
            with context.Pool(1) as pool:
                reserved, allocated = pool.apply(train_alone,
                                                 (child_kit, name, recipe, rows, vocab))
            memory = simulate_updates(architecture(name).block, vocab, recipe,
                                      make_full_batch(rows, 32))
            # one shape: the graph takes the place of the eager update
            predicted = max(memory.eager.reserved, memory.persistent + memory.captured.reserved)
            kit.figures[f"{name}, {optimizer}"] = {
                "predicted without context MiB": round(predicted / 2**20),
                "reserved MiB": round(reserved / 2**20),
                "peak allocated MiB": round(allocated / 2**20),
                "ratio": round(predicted / reserved, 2) if reserved else None}
    ratios = [case["ratio"] for case in kit.figures.values() if case["ratio"]]
    if ratios:
        kit.figures["largest error"] = f"{100 * max(abs(ratio - 1) for ratio in ratios):.0f} %"
    return kit.figures
