"""Headline figures: updates per second of processes that share a GPU, and of other programs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import repeat
from typing import Any

import torch

from gpu_kit.candidate import COLUMNS, Load, Processes, build_load
from gpu_kit.kit import Figures, Kit, batch, check
from scalesearch.training.gpus import multi_process_service

WIDTHS = (128, 256, 512)
SECONDS = 0.8  # of a measurement
ROUNDS = 2
NOT_MEASURED = "not measured"
SHARE = "share of product, "
PEERS = ("scalesearch, eager", "scalesearch, captured", "scalesearch, captured and compiled",
         "nn.Transformer, eager", "nn.Transformer, compiled with CUDA graphs")
HEADLINE_OF_STUDIES = {"candidates_per_hour": "candidates per hour",
                       "from_space_to_front": "seconds"}
# number of processes, whether updates are captured; 3 for three seeds of an architecture
ALONE = ((1, False), (1, True), (4, False), (8, False), (16, False), (8, True))
WITH_MPS = ((1, True), (3, True), (4, True), (8, True), (16, True), (8, False), (16, False))


def label(count: int, is_captured: bool, has_mps: bool) -> str:
    """Name a setting, as in the table."""
    plural = "es" if count > 1 else ""
    return (f"{'captured' if is_captured else 'eager'}, {count} process{plural}"
            f"{', MPS' if has_mps else ''}")


def measure_width(kit: Kit, width: int) -> Figures:
    """Measure all settings of processes in turns, and the speed of one large product."""
    load = Load(16, 4) if kit.quick else Load(width)
    seconds = 0.05 if kit.quick else SECONDS
    with multi_process_service() as service:
        for environment, settings in (({}, ALONE), (service, WITH_MPS)):
            if settings is WITH_MPS and not service:
                continue  # this machine permits no MPS
            if kit.quick:
                settings = [setting for setting in settings if setting[0] < 4]
            rates: dict[str, list[float]] = {}
            with Processes(kit, max(count for count, _ in settings), load, environment) as group:
                for _ in range(ROUNDS):
                    for count, is_captured in settings:
                        rate = group.rate(count, is_captured, seconds)
                        name = label(count, is_captured, settings is WITH_MPS)
                        rates.setdefault(name, []).append(rate)
            kit.figures |= {name: round(statistics.mean(both), 1) for name, both in rates.items()}
    _, _, flops = build_load(kit, load, has_fixed_shapes=False)
    product = product_speed(kit, torch.bfloat16)
    kit.figures["product, TFLOP/s"] = round(product / 1e12, 1)
    for name in list(kit.figures):
        if "process" in name:
            kit.figures[f"{SHARE}{name}"] = round(kit.figures[name] * flops / product, 4)
    return kit.figures


def product_speed(kit: Kit, dtype: torch.dtype) -> float:
    """Return the FLOPs per second of one large product."""
    side = 8192 if kit.device.type == "cuda" else 256
    a = torch.randn(side, side, device=kit.device, dtype=dtype)
    return 2 * side**3 / in_turns(kit, {"product": lambda: a @ a}, 5, 2)["product"]


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


def measure_peers(kit: Kit, width: int) -> Figures:
    """Measure updates per second of one process against ``torch.nn.Transformer``, in turns."""
    load = Load(16, 4) if kit.quick else Load(width)
    runs: dict[str, Callable[[], Any]] = {}
    for name, changes in zip(PEERS, ({"has_fixed_shapes": False}, {"has_fixed_shapes": True},
                                     {"has_fixed_shapes": True, "is_compiled": not kit.quick})):
        engine, sample, _ = build_load(kit, load, **changes)
        runs[name] = partial(engine.update, [sample], 1e-4)
    runs[PEERS[3]] = PlainLoop(kit, load, engine.hardware).update
    compiled = PlainLoop(kit, load, engine.hardware)
    settings = {"backend": "eager"} if kit.quick else {"mode": "reduce-overhead"}
    compiled.loss = torch.compile(compiled.loss, **settings)  # type: ignore[method-assign]
    runs[PEERS[4]] = compiled.update
    for name, run in runs.items():
        start = time.perf_counter()
        for _ in range(4):
            run()
        kit.wait()
        kit.figures[f"seconds of the first 4 updates, {name}"] = round(
            time.perf_counter() - start, 2)
    seconds = in_turns(kit, runs, 1 if kit.quick else 5, 2 if kit.quick else 40)
    kit.figures |= {name: round(1 / value, 1) for name, value in seconds.items()}
    return kit.figures


class PlainLoop:
    """Updates of ``torch.nn.Transformer`` as in a tutorial, with the sizes of a load."""

    def __init__(self, kit: Kit, load: Load, hardware: Any) -> None:
        hidden = 256 if load.width == 128 else 4 * load.width
        self.core = torch.nn.Transformer(load.width, 4, 3, 3, hidden, 0.1,
                                         batch_first=True).to(kit.device)
        self.table = torch.nn.Embedding(load.vocab, load.width).to(kit.device)
        parameters = [*self.core.parameters(), *self.table.parameters()]
        self.optimizer = torch.optim.AdamW(parameters, 1e-4, fused=True)
        self.hardware = hardware
        sample = batch(load.rows, COLUMNS, load.vocab)
        self.ids = [torch.from_numpy(side).to(kit.device)
                    for side in (sample.source, sample.target_in, sample.target_out)]
        self.mask = torch.nn.Transformer.generate_square_subsequent_mask(COLUMNS, device=kit.device)

    def loss(self, source: Any, target: Any, labels: Any) -> Any:
        """Return the loss of a batch."""
        with self.hardware.autocast():
            inputs = (torch.nn.functional.dropout(self.table(ids), 0.1) for ids in (source, target))
            states = self.core(*inputs, tgt_mask=self.mask, tgt_is_causal=True)
            logits = states @ self.table.weight.t()
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(),
                                                 ignore_index=0, label_smoothing=0.1)

    def update(self) -> None:
        """Update the weights once."""
        self.optimizer.zero_grad()
        self.loss(*self.ids).backward()
        self.optimizer.step()


@check(seconds=40)
def updates_128(kit: Kit) -> Figures:
    """Updates per second at width 128: eager, captured, processes, MPS."""
    return measure_width(kit, 128)


@check(seconds=45)
def updates_256(kit: Kit) -> Figures:
    """Updates per second at width 256: eager, captured, processes, MPS."""
    return measure_width(kit, 256)


@check(seconds=50)
def updates_512(kit: Kit) -> Figures:
    """Updates per second at width 512: eager, captured, processes, MPS."""
    return measure_width(kit, 512)


@check(seconds=60)
def peers_128(kit: Kit) -> Figures:
    """Updates per second against ``torch.nn.Transformer`` in a plain loop, width 128."""
    return measure_peers(kit, 128)


@check(seconds=60)
def peers_256(kit: Kit) -> Figures:
    """Updates per second against ``torch.nn.Transformer`` in a plain loop, width 256."""
    return measure_peers(kit, 256)


@check(seconds=60)
def peers_512(kit: Kit) -> Figures:
    """Updates per second against ``torch.nn.Transformer`` in a plain loop, width 512."""
    return measure_peers(kit, 512)


def headline_table(figures: Mapping[str, Figures]) -> list[str]:
    """Return the headline as lines of a Markdown table.

    Args:
        figures: by name of the check.
    """
    lines = ["| updates per second in all | width 128 | width 256 | width 512 |",
             "|---|---:|---:|---:|"]
    settings = [label(*setting, has_mps=False) for setting in ALONE]
    settings += [label(*setting, has_mps=True) for setting in WITH_MPS]
    for part, names in (("updates", settings), ("peers", PEERS)):
        for name in names:
            cells = [cell(figures, f"{part}_{width}", name) for width in WIDTHS]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    products = [cell(figures, f"updates_{width}", "product, TFLOP/s") for width in WIDTHS]
    lines.append(f"| one large bf16 product, TFLOP/s | {' | '.join(products)} |")
    for name, shares in (("captured, 1 process", map(share_alone, repeat(figures), WIDTHS)),
                         ("the fastest setting", map(share_packed, repeat(figures), WIDTHS))):
        lines.append(f"| share of its speed, {name} | {' | '.join(map(percent, shares))} |")
    seeds = [three_seeds(figures.get(f"updates_{width}", {})) for width in WIDTHS]
    lines.append(f"| cost of three seeds over one, MPS | {' | '.join(seeds)} |")
    for name, key in (("candidates of 2,400 updates per GPU-hour", "candidates_per_hour"),
                      ("seconds of `studies/gpu.yaml`", "from_space_to_front")):
        lines.append(f"| {name} | {cell(figures, key, HEADLINE_OF_STUDIES[key])} | | |")
    return lines


def goals_table(figures: Mapping[str, Figures]) -> list[str]:
    """Return the goals of issue 47 with their measured values, as lines of a Markdown table."""
    updates = figures.get("updates_128", {})
    rates = [value for name, value in updates.items() if name.startswith(("eager", "captured"))]
    most = f"{max(rates):.0f}" if rates else NOT_MEASURED
    shares = [percent(share_packed(figures, width)) for width in WIDTHS]
    rows = [
        ("updates per second in all, width 128, 2,048 tokens", "300", most, "at least 1,000"),
        ("one process, same model", "38", cell(figures, "updates_128", "captured, 1 process"),
         "at least 200"),
        ("share of one large product, widths 128 / 256 / 512", "0.3 % / - / 15 %",
         " / ".join(shares), "3 / 10 / 35 %"),
        ("candidates per GPU-hour", "57 alone, 450 packed",
         cell(figures, "candidates_per_hour", "candidates per hour"), "at least 1,400"),
        ("`studies/gpu.yaml`, seconds", "143", cell(figures, "from_space_to_front", "seconds"),
         "at most 40"),
        ("predicted memory against peak, largest error", "-",
         cell(figures, "predicted_memory", "largest error"), "5 %"),
        ("200 packed candidates without lack of memory", "-", NOT_MEASURED, "none")]
    return ["| goal | before | measured | goal |", "|---|---:|---:|---:|",
            *(f"| {' | '.join(row)} |" for row in rows)]


def cell(figures: Mapping[str, Figures], part: str, name: str) -> str:
    """Return a figure as text, or that it was not measured."""
    return str(figures.get(part, {}).get(name, NOT_MEASURED))


def share_alone(figures: Mapping[str, Figures], width: int) -> float | None:
    """Return the share of one large product that a captured process reaches."""
    share: float | None = figures.get(f"updates_{width}", {}).get(f"{SHARE}captured, 1 process")
    return share


def share_packed(figures: Mapping[str, Figures], width: int) -> float | None:
    """Return the largest share of one large product among all settings."""
    shares = [value for name, value in figures.get(f"updates_{width}", {}).items()
              if name.startswith(SHARE)]
    return max(shares, default=None)


def three_seeds(rates: Figures) -> str:
    """Return the time of three models that train together, relative to one alone."""
    alone = rates.get("captured, 1 process")
    together = rates.get("captured, 3 processes, MPS")
    return f"{3 * alone / together:.2f}" if alone and together else NOT_MEASURED


def percent(share: float | None) -> str:
    """Return a share as text, or that it was not measured."""
    return NOT_MEASURED if share is None else f"{100 * share:.2g} %"
