"""Trains a model for some seconds and counts its updates: one of several on a device."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

ROWS = 64
COLUMNS = 32  # 2,048 tokens per side


@dataclass(frozen=True)
class Load:
    """Model and batch that a process trains."""

    width: int = 128
    is_captured: bool = True
    compile: str = "no"
    precision: str = "auto"
    rows: int = ROWS


def count_updates(load: Load, seconds: float, environment: Mapping[str, str], cores: set[int],
                  barrier: Any, rates: Any) -> None:
    """Put the updates per second into ``rates``; all processes begin at the same time."""
    os.environ.update(environment)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.sched_setaffinity(0, cores)
    import torch

    from gpu_kit.kit import Kit, batch, plain_transformer
    from scalesearch.training.hardware import Hardware, estimate_update_flops
    from scalesearch.training.updates.captured import build_engine

    torch.set_num_threads(1)
    kit = Kit(folder=None)
    recipe = kit.recipe(precision=load.precision, compile=load.compile,
                        max_tokens=load.rows * COLUMNS)
    vocab = 1000 if load.width == 128 else 8000
    model = plain_transformer(load.width, vocab)
    flops = estimate_update_flops(model.block, vocab, recipe)
    hardware = replace(Hardware.from_recipe(recipe, flops), has_fixed_shapes=load.is_captured)
    engine = build_engine(model.to(kit.device).train(), recipe, hardware)
    sample = batch(load.rows, COLUMNS, vocab)
    for _ in range(5):
        engine.update([sample], 1e-4)
    kit.wait()
    barrier.wait(120)
    start = time.perf_counter()
    count = 0
    while time.perf_counter() - start < seconds:
        loss = engine.update([sample], 1e-4)
        count += 1
        if count % 20 == 0:  # as the trainer does
            loss.item()
    kit.wait()
    rates.put(count / (time.perf_counter() - start))
