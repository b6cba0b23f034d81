"""How fast a GPU updates and decodes small models, in turns with a baseline."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from gpu_kit.headline import in_turns
from gpu_kit.kit import Figures, Kit, Skipped, batch, check, model
from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.decode import greedy_search
from scalesearch.nn.graphs import GraphRunner
from scalesearch.nn.static_search import StaticSearch
from scalesearch.training.hardware import Hardware
from scalesearch.training.updates.captured import build_engine

LENGTH = 32


def build_update(kit: Kit, bucketing: str = "auto", **changes: str) -> Callable[[], Any]:
    """Build a function that updates ``small/plain`` on 4,096 tokens."""
    recipe = kit.recipe(bucketing=bucketing, **changes)
    subject = model("small/plain", dropout=0.1).to(kit.device).train()
    engine = build_engine(subject, recipe, Hardware.from_recipe(recipe))
    sample = batch((256 if kit.quick else 4096) // LENGTH, LENGTH)
    return partial(engine.update, [sample], 1e-4)


@check(gpus=0, seconds=20)
def optimizers(kit: Kit) -> Figures:
    """Milliseconds of an update by each optimizer, eager and captured; on a GPU also in bf16."""
    precisions = ("fp32", "bf16") if kit.device.type == "cuda" else ("fp32",)
    runs = {f"{optimizer}, {precision}, {name}": build_update(
                kit, bucketing, optimizer=optimizer, precision=precision)
            for optimizer in ("adamw", "muon", "soap") for precision in precisions
            for name, bucketing in (("eager", "no"), ("captured", "auto"))}
    figures = in_turns(kit, runs, 1 if kit.quick else 3, 2 if kit.quick else 20)
    return {name: round(1e3 * seconds, 2) for name, seconds in figures.items()}


@check()
def idle_share(kit: Kit) -> Figures:
    """Share of an update in which the GPU is idle: wall time against kernel time."""
    from torch.profiler import ProfilerActivity, profile

    if kit.device.type != "cuda":
        raise Skipped("reads the kernel times of a GPU")
    runs = {name: build_update(kit, bucketing)
            for name, bucketing in (("eager", "no"), ("captured", "yes"))}
    figures = {}
    for name, seconds in in_turns(kit, runs, 3, 5).items():
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            runs[name]()
            kit.wait()
        busy = sum(event.self_device_time_total for event in profiled.key_averages()) / 1e6
        figures[name] = {"idle share": round(max(0.0, 1 - busy / seconds), 3),
                         "ms per update": round(1e3 * seconds, 2)}
    return figures


@check(gpus=0, seconds=20)
def decoding_speed(kit: Kit) -> Figures:
    """Target tokens per second of greedy and beam decoding, eager and with captured steps."""
    hardware = Hardware.from_recipe(kit.recipe(precision="auto"))
    subject = model("small/plain").to(kit.device).eval()
    subject.set_attention(hardware.attention_kernel)
    source = torch.from_numpy(batch(rows=16 if kit.quick else 256, length=20).source).to(kit.device)
    runs = {"greedy, eager": partial(greedy_search, subject, source),
            "beam 5, eager": partial(beam_search, subject, source)}
    with hardware.autocast(), subject.cached_weights():
        for beam, name in ((1, "greedy"), (5, "beam 5")):
            search = StaticSearch(subject, GraphRunner(kit.device, "decoding steps", []), beam)
            runs[f"{name}, captured"] = partial(search.search, source)
        tokens = int(greedy_search(subject, source).lengths.sum())
        seconds = in_turns(kit, runs, 1 if kit.quick else 3)
    return {name: round(tokens / value) for name, value in seconds.items()}


@check(gpus=0, seconds=90)
def compilation(kit: Kit) -> Figures:
    """Seconds until all shapes are compiled, and the speed-up; decides when a run compiles."""
    figures = {}
    runs = {}
    widths = (8,) if kit.quick else range(8, 72, 8)
    for name in ("no", "yes"):
        recipe = kit.recipe(bucketing="yes", compile="no" if kit.quick else name)
        subject = model("small/plain", dropout=0.1).to(kit.device).train()
        engine = build_engine(subject, recipe, Hardware.from_recipe(recipe))
        samples = [batch(2048 // width, width) for width in widths]
        start = time.perf_counter()
        for _ in range(3):
            for sample in samples:
                engine.update([sample], 1e-4)
        kit.wait()
        figures[f"seconds of 3 updates per shape, compile: {name}"] = time.perf_counter() - start
        runs[name] = partial(_update_all, engine, samples)
    seconds = in_turns(kit, runs, 1 if kit.quick else 5, 1 if kit.quick else 5)
    return {**figures, "shapes": len(samples), "speed-up": seconds["no"] / seconds["yes"]}


def _update_all(engine: Any, samples: list[Any]) -> None:
    for sample in samples:
        engine.update([sample], 1e-4)
