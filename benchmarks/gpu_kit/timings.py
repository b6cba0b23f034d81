"""How fast a GPU trains and decodes, and what small models leave of it."""

from __future__ import annotations

import multiprocessing
import queue
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from gpu_kit.candidate import Load, count_updates
from gpu_kit.kit import VOCAB, Figures, Kit, Wrong, batch, check, model
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.decode import greedy_search
from scalesearch.nn.graphs import GraphRunner
from scalesearch.nn.static_search import StaticSearch
from scalesearch.studies.executors.local import split_cores
from scalesearch.training.gpus import multi_process_service
from scalesearch.training.hardware import Hardware
from scalesearch.training.updates.engine import Engine

SIZES = {"small": "small/plain", "base": "transformer"}
TOKENS = {"small": 4096, "base": 16384}
LENGTH = 32


def timed(kit: Kit, run: Callable[[], Any], times: int) -> float:
    """Median of wall seconds, after two to warm up."""
    figures = []
    for turn in range(times + 2):
        kit.wait()
        start = time.perf_counter()
        run()
        kit.wait()
        if turn > 1:
            figures.append(time.perf_counter() - start)
    return statistics.median(figures)


def in_turns(kit: Kit, runs: Mapping[str, Callable[[], Any]], rounds: int,
             times: int = 1) -> dict[str, float]:
    """Return the median seconds of a run over rounds of ``times``, after a warm-up round."""
    figures: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            kit.wait()
            start = time.perf_counter()
            for _ in range(times):
                run()
            kit.wait()
            if turn:
                figures[name].append((time.perf_counter() - start) / times)
    return {name: statistics.median(seconds) for name, seconds in figures.items()}


def peak(kit: Kit, dtype: torch.dtype) -> float:
    """FLOPs a second of one large product."""
    side = 8192 if kit.device.type == "cuda" else 1024
    a = torch.randn(side, side, device=kit.device, dtype=dtype)
    return 2 * side**3 / timed(kit, lambda: a @ a, 5)


def _engine(kit: Kit, size: str, compiled: bool, **how: Any) -> tuple[Engine, Any]:
    settings = {"precision": "auto" if kit.device.type == "cuda" else "fp32",
             "compile": "yes" if compiled else "no"}
    recipe = kit.recipe(**(settings | how))
    tokens = TOKENS[size] // (16 if kit.quick else 1)
    sample = batch(rows=tokens // LENGTH, length=LENGTH)
    subject = model(SIZES[size], dropout=0.1).to(kit.device).train()
    return Engine(subject, recipe, Hardware.from_recipe(recipe)), sample


@check(gpus=0)
def training(kit: Kit) -> Figures:
    """Target tokens per second, and the share of one large product's speed: eager, compiled."""
    figures = kit.figures
    for size in ("small",) if kit.quick else SIZES:
        for compiled in (False,) if kit.device.type == "cpu" else (False, True):
            engine, sample = _engine(kit, size, compiled)
            seconds = timed(kit, lambda: engine.update([sample], 1e-4), 3 if kit.quick else 10)  # noqa: B023
            costs = evaluate_cost(engine.model.block,
                                  find_protocol("forward", LENGTH, LENGTH, VOCAB))
            dtype = torch.bfloat16 if engine.hardware.uses_bf16 else torch.float32
            flops = 3 * 2 * costs["macs.total"] * len(sample) / seconds
            figures[f"{size}, {'compiled' if compiled else 'eager'}"] = {
                "target tokens / s": round(sample.tokens / seconds),
                "share of peak": round(flops / peak(kit, dtype), 4)}
    return figures


@check(gpus=0)
def optimizers(kit: Kit) -> Figures:
    """Milliseconds of a small model's update by each optimizer, in turns; on a GPU with TF32 and with bf16."""
    precisions = ("fp32", "bf16") if kit.device.type == "cuda" else ("fp32",)

    def update(**how: str) -> Callable[[], Any]:
        engine, sample = _engine(kit, "small", False, **how)
        return lambda: engine.update([sample], 1e-4)

    runs = {f"{optimizer}, {precision}": update(optimizer=optimizer, precision=precision)
            for optimizer in ("adamw", "muon", "soap") for precision in precisions}
    figures = in_turns(kit, runs, 3, 2 if kit.quick else 20)
    return {name: round(1e3 * seconds, 2) for name, seconds in figures.items()}


@check()
def waiting_for_python(kit: Kit) -> Figures:
    """Share of an update in which the device has nothing to do: wall time against kernel time."""
    from torch.profiler import ProfilerActivity, profile

    figures = {}
    for size in SIZES:
        engine, sample = _engine(kit, size, False)
        seconds = timed(kit, lambda: engine.update([sample], 1e-4), 5)  # noqa: B023
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            engine.update([sample], 1e-4)
            kit.wait()
        busy = sum(event.self_device_time_total for event in profiled.key_averages()) / 1e6
        figures[size] = {"idle share": round(max(0.0, 1 - busy / seconds), 3),
                       "ms per update": round(1e3 * seconds, 2)}
    return figures


@check()
def cuda_graph(kit: Kit) -> Figures:
    """A forward and backward pass of a small model as one CUDA graph, against eager."""
    subject = model("small/plain").to(kit.device).train()
    for part in subject.modules():
        part.training = False  # dropout draws again in a graph only through its own generator
    sample = batch(rows=128, length=LENGTH)
    tensor = kit.hardware().to_device
    source = tensor(sample.source)
    target = tensor(sample.target_in)

    def step() -> None:
        subject.zero_grad(set_to_none=False)
        subject(source, target).float().logsumexp(-1).sum().backward()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())  # the batch is copied on that one
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    figures = in_turns(kit, {"eager": step, "graph": graph.replay}, 5, 2)
    return {f"{name} ms": 1e3 * seconds
            for name, seconds in figures.items()} | {"ratio": figures["eager"] / figures["graph"]}


@check()
def updates_per_second(kit: Kit) -> Figures:
    """Updates per second in all: eager and captured, 1 to 8 processes, with and without MPS."""
    widths = (128,) if kit.quick else (128, 256, 512)
    many = 2 if kit.quick else 8
    with multi_process_service() as service:
        for width in widths:
            eager = Load(width, is_captured=False)
            captured = Load(width)
            measured = {"eager, 1": (1, {}, eager), "captured, 1": (1, {}, captured),
                        f"captured, {many}": (many, {}, captured)}
            if service:
                measured |= {f"eager, {many}, MPS": (many, service, eager),
                             f"captured, {many}, MPS": (many, service, captured)}
                if width == 128 and not kit.quick:
                    measured["captured, 16, MPS"] = (16, service, captured)
                    measured["captured, 8, MPS, 1,024 tokens"] = (8, service, Load(128, rows=32))
            for name, (count, environment, load) in measured.items():
                kit.figures[f"width {width}, {name}"] = _rate(count, load, environment)
    return kit.figures


def _rate(count: int, load: Load, environment: Mapping[str, str], seconds: float = 3.0) -> float:
    """Measure the updates per second of ``count`` processes that train at the same time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch._dynamo", "scalesearch.training", "gpu_kit.kit"])
    barrier = context.Barrier(count)
    rates = context.Queue()
    processes = [context.Process(target=count_updates, args=(load, seconds, environment, cores,
                                                             barrier, rates))
                 for cores in split_cores(count)]
    for process in processes:
        process.start()
    try:
        return round(sum(rates.get(timeout=60) for _ in processes), 1)
    except queue.Empty:
        raise Wrong(f"{count} processes: one has not ended after 60 s") from None
    finally:
        for process in processes:
            process.join(10)
            process.kill()


@check(gpus=0)
def several_in_one_process(kit: Kit) -> Figures:
    """Small candidates of one structure as one, by ``torch.func``: forward and backward against one after the other."""
    count = 2 if kit.quick else 8
    several = [model("small/plain", seed=seed).to(kit.device).eval() for seed in range(count)]
    weights, buffers = torch.func.stack_module_state(several)
    sample = batch(rows=16, length=LENGTH)
    tensor = kit.hardware().to_device
    source = tensor(sample.source)
    target = tensor(sample.target_in)

    def loss(own: Any, kept: Any) -> torch.Tensor:
        return torch.func.functional_call(several[0], (own, kept),
                                          (source, target)).logsumexp(-1).mean()

    def separate() -> None:
        for candidate in several:
            candidate.zero_grad()
            candidate(source, target).logsumexp(-1).mean().backward()

    together = torch.func.vmap(torch.func.grad(loss))
    separate_seconds = timed(kit, separate, 3)
    other = timed(kit, lambda: together(weights, buffers), 3)
    return {"candidates": count, "separate ms": 1e3 * separate_seconds, "together ms": 1e3 * other,
            "ratio": separate_seconds / other}


@check(gpus=0)
def decoding_speed(kit: Kit) -> Figures:
    """Target tokens per second of greedy and beam decoding, eager and with captured steps."""
    hardware = Hardware.from_recipe(kit.recipe(precision="auto"))
    subject = model("small/plain").to(kit.device).eval()
    subject.set_attention(hardware.attention_kernel)
    source = torch.from_numpy(batch(rows=16 if kit.quick else 256, length=20).source).to(kit.device)
    runs = {
        "greedy, a look each step": lambda: greedy_search(subject, source, compaction_interval=1),
        "greedy, each eighth": lambda: greedy_search(subject, source, compaction_interval=8),
        "beam 5": lambda: beam_search(subject, source)}
    with hardware.autocast(), subject.cached_weights():
        for beam in (1, 5):
            search = StaticSearch(subject, GraphRunner(kit.device, "decoding steps", []), beam)
            runs[f"beam {beam}, captured"] = partial(search.search, source)
        tokens = int(greedy_search(subject, source).lengths.sum())
        return {name: round(tokens / timed(kit, run, 3)) for name, run in runs.items()}


@check(gpus=0)
def against_a_plain_loop(kit: Kit) -> Figures:
    """Target tokens per second against ``torch.nn.Transformer`` in a plain loop, in turns, fp32."""
    core = torch.nn.Transformer(128, 4, 3, 3, 256, 0.1, batch_first=True).to(kit.device)
    table = torch.nn.Embedding(VOCAB, 128).to(kit.device)
    adam = torch.optim.Adam([*core.parameters(), *table.parameters()], 1e-4)
    rows = (512 if kit.quick else 4096) // LENGTH
    sample = batch(rows=rows, length=LENGTH)
    tensor = kit.hardware().to_device
    source, target, labels = map(tensor, (sample.source, sample.target_in, sample.target_out))
    mask = torch.nn.Transformer.generate_square_subsequent_mask(LENGTH, device=kit.device)

    def plain() -> None:
        adam.zero_grad()
        inputs = (torch.nn.functional.dropout(table(ids), 0.1) for ids in (source, target))
        logits = core(*inputs, tgt_mask=mask) @ table.weight.t()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(),
                                          ignore_index=0).backward()
        adam.step()

    subject = model("small/plain", dropout=0.1).to(kit.device).train()
    engine = Engine(subject, kit.recipe(), kit.hardware())
    figures = in_turns(
        kit, {"scalesearch": lambda: engine.update([sample], 1e-4), "plain loop": plain}, 5, 2)
    return {name: round(sample.tokens / seconds) for name, seconds in figures.items()} | {
        "ratio": figures["plain loop"] / figures["scalesearch"]}
