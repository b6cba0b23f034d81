# ruff: noqa: E402 - the time of the imports is measured
"""Measures designs that train small models faster on one GPU: CUDA graphs, packing, start-up, memory.

    python benchmarks/gpu_designs.py --out gpu_designs.json [--device cpu] [--seconds 220] [--only
    NAME ...]

Every experiment runs in its own process with a time limit and writes its figures as soon as it has
them. The prototypes (``StaticTrainer`` and the optimizers below) are what the trainer would need;
they are not part of the package. With ``--device cpu`` everything runs except capture and MPS, at
small sizes.
"""

from __future__ import annotations

import time

STARTED = time.time()

import argparse
import contextlib
import copy
import json
import multiprocessing
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

TORCH_IMPORTED = time.time()

from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.data import PAD, Batch
from scalesearch.library import find_file
from scalesearch.nn import DropoutRates, build_model
from scalesearch.space.space import read_space
from scalesearch.train import Recipe
from scalesearch.train.hardware import Hardware
from scalesearch.train.updates.averaging import ExponentialMovingAverage
from scalesearch.train.updates.engine import Engine
from scalesearch.train.updates.loss import CHUNK_ROWS_GPU, _OutputGradients
from scalesearch.train.updates.optimizers import (
    BASIS_UPDATE_INTERVAL,
    SOAP_EPS,
    UPDATE_RMS,
    MatrixOptimizer,
    Muon,
    Soap,
    _as_matrices,
    _covariances,
    _rotate,
    build_optimizers,
    orthogonalize,
)
from scalesearch.train.updates.parametrization import weight_scales

PACKAGE_IMPORTED = time.time()

ROWS = 64
WIDTH = 32  # 2,048 tokens (padded) on each side
RATE = 1e-3
Shape = tuple[int, int]


# -- models and batches


def architecture(name: str = "small/plain", **params: Any) -> Any:
    """A shipped architecture with some parameters changed (``__`` stands for a dot)."""
    space = read_space(find_file(name, "spaces"))
    changes = {key.replace("__", "."): str(value) for key, value in params.items()}
    return (space.with_overrides(changes) if changes else space).single_architecture()


def plain(width: int = 128, hidden: int = 256) -> Any:
    """The 3-3 encoder-decoder of ``small/plain`` at another width."""
    return architecture(width=width, encoder__ffn__relu__hidden=hidden,
                        decoder__ffn__relu__hidden=hidden)


def model_of(given: Any, vocab: int, dropout: float, seed: int = 1) -> Any:
    """Its model on the CPU, in training mode."""
    return build_model(given.block, vocab=vocab, seed=seed,
                       dropout=DropoutRates(dropout, dropout, 0.0)).train()


def recipe_of(device: str, precision: str, **changes: Any) -> Recipe:
    """The package's recipe with few changes. On a GPU, ``fp32`` means TF32 products."""
    known = {"steps": 20, "max_tokens": ROWS * WIDTH, "device": device, "precision": precision,
             "beam": 1}
    return Recipe(**(known | changes))


def random_batch(rows: int, width: int, vocab: int, seed: int) -> Batch:
    """Random pairs; rows are up to three tokens shorter than ``width``."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(4, vocab, (3, rows, width))
    for row in range(rows):
        ids[:, row, width - row % 4 :] = PAD
    return Batch(ids[0], ids[1], ids[2], np.arange(rows))


def stacked(batch: Batch, device: str) -> torch.Tensor:
    """(3, rows, width) ids of a batch on the host, page-locked for a GPU."""
    ids = torch.from_numpy(np.stack([batch.source, batch.target_in, batch.target_out]))
    return ids.pin_memory() if device == "cuda" else ids


# -- the prototype


class WeightedCrossEntropy(torch.autograd.Function):
    """The package's label-smoothed loss with a weight per row (0 at padding) instead of a selection of rows."""

    @staticmethod
    def forward(ctx: Any, hidden: Any, matrix: Any, bias: Any, labels: Any, smoothing: float,
                weights: Any) -> Any:
        """Returns the sum of the weighted losses of (N, d) states, labels (N,), weights (N,)."""
        kind = hidden.device.type
        low = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
        x = hidden.to(low)
        w = matrix.to(low)
        grads = _OutputGradients(x, matrix, bias)
        total = matrix.new_zeros(())
        column_weights = weights[:, None]
        for start in range(0, len(x), CHUNK_ROWS_GPU):
            rows = slice(start, start + CHUNK_ROWS_GPU)
            target = labels[rows, None]
            logits = (x[rows] @ w.t()).float()
            if bias is not None:
                logits += bias
            correct = logits.gather(1, target)
            p = torch.softmax(logits, 1)
            partition = logits.amax(1, keepdim=True) - p.amax(1, keepdim=True).log()
            total += ((partition - (1 - smoothing) * correct) * column_weights[rows]).sum()
            p.scatter_add_(1, target, torch.full_like(correct, smoothing - 1))
            p *= column_weights[rows]
            grads.add(x[rows], w, p, rows)
        if smoothing:
            share = smoothing / len(matrix)
            column = matrix.sum(0)
            states = (x * column_weights).sum(0, dtype=matrix.dtype)
            count = weights.sum()
            total -= share * (column @ states if bias is None
                              else column @ states + count * bias.sum())
            grads.hidden -= (column_weights * (share * column)).to(grads.hidden.dtype)
            grads.weight -= share * states
            if grads.bias is not None:
                grads.bias -= share * count
        ctx.grads = grads
        ctx.dtype = hidden.dtype
        return total

    @staticmethod
    def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
        """Scales the gradients that the forward pass has formed."""
        grads = ctx.grads
        ctx.grads = None
        hidden, weight, bias = (None if g is None else g.mul_(grad)
                                for g in (grads.hidden, grads.weight, grads.bias))
        return hidden.to(ctx.dtype), weight, bias, None, None, None


class CapturableStep(MatrixOptimizer):
    """``OfMatrices.step`` with a learning rate that is a tensor; the refresh of SOAP's bases is a call of its own."""

    def refresh(self) -> None:
        """Work that is due every ``EVERY`` updates."""


class CapturableMuon(CapturableStep, Muon):
    """Muon whose learning rate is a tensor on the device."""

    def update_weights(self, weights: list[Any], group: Mapping[str, Any]) -> None:
        """Changes weights of one shape."""
        matrices = _as_matrices(torch.stack(self._nesterov_momenta(weights, group["momentum"])),
                                group["matrices"])
        steps = orthogonalize(matrices, self.dtype) * (
            -group["lr"] * UPDATE_RMS * max(matrices.shape[1:]) ** 0.5)
        torch._foreach_add_(weights, list(steps.view(len(weights), *weights[0].shape).unbind()))


class CapturableSoap(CapturableStep, Soap):
    """SOAP with a learning rate and a count of updates on the device, and bases that are changed in place."""

    def update_weights(self, weights: list[Any], group: Mapping[str, Any]) -> None:
        """Changes weights of one shape; the first call only makes the bases."""
        state = self.state[weights[0]]
        if not state:
            super().update_weights(weights, group)
            state["updates"] = torch.zeros((), dtype=torch.float64, device=weights[0].device)
            return
        gradients = _as_matrices(torch.stack([weight.grad for weight in weights]),
                                 group["matrices"])
        steps = self._update_directions(state, gradients, group["momentum"]) * -group["lr"]
        torch._foreach_add_(weights, list(steps.view(len(weights), *weights[0].shape).unbind()))

    def _update_directions(self, state: dict[str, Any], gradient: Any, decay: float) -> Any:
        state["updates"] += 1
        low = gradient.to(self.dtype)
        bases = {side: basis.to(self.dtype) for side, basis in state["bases"].items()}
        turned = _rotate(low, bases).to(gradient.dtype)
        state["mean"].lerp_(turned, 1 - decay)
        state["square"].mul_(decay).addcmul_(turned, turned, value=1 - decay)
        correction = 1 - decay ** state["updates"]
        size = (state["square"] / correction).sqrt_().add_(SOAP_EPS).mul_(correction)
        step = _rotate((state["mean"] / size).to(self.dtype), bases, back=True)
        for side, covariance in _covariances(low).items():
            state["covariances"][side].lerp_(covariance.to(gradient.dtype), 1 - decay)
        return step.to(gradient.dtype)

    def refresh(self) -> None:
        """Moves the bases towards the eigenvectors of the covariances, in place."""
        with torch.no_grad():
            for state in self.state.values():
                own = _rotate(state["mean"], state["bases"], back=True)
                for side, basis in state["bases"].items():
                    basis.copy_(torch.linalg.qr(state["covariances"][side] @ basis)[0])
                state["mean"].copy_(_rotate(own, state["bases"]))


class StaticTrainer:
    """Updates on static tensors.

    ``mode``: ``eager``, ``passes`` or ``update`` (what is captured as a CUDA graph).

    On a CPU the captured function is called instead of a replay.
    """

    def __init__(self, model: Any, recipe: Recipe, hardware: Hardware, mode: str,
                 places: int = ROWS * WIDTH, tensor_rate: bool | None = None,
                 kind: str = "adamw") -> None:
        self.model = model
        self.recipe = recipe
        self.hardware = hardware
        self.mode = mode
        self.device = hardware.device
        self.cuda = self.device.type == "cuda"
        model.set_attention(hardware.attention_kernel)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.tensor_rate = mode == "update" if tensor_rate is None else tensor_rate
        self.rate = torch.zeros((), device=self.device)
        self.loss = torch.zeros((), device=self.device)
        self.ids = torch.zeros(3 * places, dtype=torch.int64, device=self.device)
        self.optimizers = self._optimizers(kind)
        self.graphs: dict[Any, Any] = {}
        self.pool: Any = None
        self.side: Any = None
        self.warmups = 3
        self.lean = False
        self.states = lambda source, target: model.decode(target, model.encode(source))
        self.updates = 0
        self.notes: dict[Any, str] = {}
        if mode == "passes":
            for weight in self.parameters:
                weight.grad = torch.zeros_like(weight)

    def _optimizers(self, kind: str) -> list[Any]:
        made = build_optimizers(self.model, self.recipe, weight_scales(self.model, self.recipe),
                                self.hardware.uses_bf16)
        if not self.tensor_rate:
            return made
        found = []
        for optimizer in made:
            groups = [{"params": group["params"], "scale": group["scale"],
                       "weight_decay": group["weight_decay"],
                       "lr": torch.zeros((), device=self.device),
                       **({"matrices": group["matrices"]} if "matrices" in group else {})}
                      for group in optimizer.param_groups]
            if isinstance(optimizer, torch.optim.AdamW):
                betas = (self.recipe.beta1, self.recipe.beta2)
                found.append(
                    torch.optim.AdamW(groups, lr=torch.tensor(1.0), betas=betas,
                                      eps=self.recipe.eps, fused=True, capturable=self.cuda))
            else:
                made_of = {"muon": CapturableMuon, "soap": CapturableSoap}[kind]
                found.append(made_of(groups, self.hardware.uses_bf16, lr=1.0,
                                     momentum=self.recipe.momentum,
                                     weight_decay=self.recipe.weight_decay))
        return found

    def update(self, ids: Any, lr: float) -> Any:
        """One update on (3, rows, width) ids; returns the loss per token, which the next update overwrites."""
        shape = ids.shape[1:]
        self.ids[: ids.numel()].copy_(ids.view(-1), non_blocking=True)
        if self.tensor_rate:
            self.rate.fill_(lr)
        if self.mode == "eager":
            self._whole(shape)
        elif self.mode == "passes":
            self._replay(shape, self._accumulate)
        else:
            self._replay(shape, self._whole)
        if not self.tensor_rate:
            self._apply(lr)
        self.updates += 1
        if self.updates > 1 and (self.updates - 1) % BASIS_UPDATE_INTERVAL == 0:
            for optimizer in self.optimizers:
                if isinstance(optimizer, CapturableStep):
                    self._replay("refresh", optimizer.refresh)
        return self.loss

    def _whole(self, shape: Any) -> None:
        self.model.zero_grad(set_to_none=True)
        self._passes(shape)
        if self.tensor_rate:
            self._apply(None)

    def _accumulate(self, shape: Any) -> None:
        torch._foreach_zero_([weight.grad for weight in self.parameters])
        self._passes(shape)

    def _passes(self, shape: Any) -> None:
        rows, width = shape
        source, target, labels = self.ids[: 3 * rows * width].view(3, rows, width).unbind()
        labels = labels.reshape(-1)
        weights = (labels != PAD).float()
        with self.hardware.autocast():
            terms = self.model.softmax_terms(self.states(source, target).flatten(0, 1), labels)
            total = sum(WeightedCrossEntropy.apply(*term, self.recipe.label_smoothing, weights)
                        for term in terms)
        loss = total / weights.sum()
        loss.backward()
        self.loss.copy_(loss.detach())

    def _apply(self, lr: float | None) -> None:
        if self.recipe.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.recipe.clip_norm, foreach=True)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                if lr is None:
                    group["lr"].copy_(self.rate * group["scale"])
                else:
                    group["lr"] = lr * group["scale"]
            optimizer.step()

    def _replay(self, key: Any, function: Callable[..., None]) -> None:
        arguments = () if key == "refresh" else (key,)
        if not self.cuda or self.mode == "eager":
            function(*arguments)
            return
        if key not in self.graphs:
            try:
                self.graphs[key] = self.capture(function, *arguments)
            except RuntimeError as error:
                if key != "refresh":
                    raise
                self.graphs[key], self.notes[key] = None, " ".join(str(error).split())[:300]
        if self.graphs[key] is None:
            function(*arguments)
        else:
            self.graphs[key].replay()

    def capture(self, function: Callable[..., None], *arguments: Any) -> Any:
        """A graph of one call; weights, optimizer states and generators are as before."""
        before = self.state()
        # one for all shapes: each stream has its cuBLAS workspace
        self.side = side = self.side or torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(self.warmups):
                function(*arguments)
        torch.cuda.current_stream().wait_stream(side)
        self.restore(before)
        graph = torch.cuda.CUDAGraph()
        if self.lean:  # without the garbage collection and the emptied cache of torch.cuda.graph
            torch.cuda.synchronize()
            with torch.cuda.stream(side):
                graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
                try:
                    function(*arguments)
                finally:
                    graph.capture_end()
        else:
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                function(*arguments)
        self.pool = self.pool or graph.pool()
        return graph

    def tensors(self) -> list[Any]:
        """Weights and tensors of the optimizers' states."""
        found: list[Any] = [weight.detach() for weight in self.parameters]
        for optimizer in self.optimizers:
            for state in optimizer.state.values():
                for value in state.values():
                    found += [v for v in (value.values() if isinstance(value, dict) else [value])
                              if isinstance(v, torch.Tensor)]
        return found

    def state(self) -> tuple[list[Any], Any]:
        """Copies of weights and states, and the generator's state."""
        return ([t.clone() for t in self.tensors()],
                torch.cuda.get_rng_state() if self.cuda else torch.get_rng_state())

    def restore(self, state: tuple[list[Any], Any]) -> None:
        """Restores :meth:`state` in place; tensors that did not exist then become zero."""
        kept, random = state
        with torch.no_grad():
            for at, tensor in enumerate(self.tensors()):
                if at < len(kept):
                    tensor.copy_(kept[at])
                else:
                    tensor.zero_()
        (torch.cuda.set_rng_state if self.cuda else torch.set_rng_state)(random)


# -- measuring


class Figures:
    """Figures of one experiment; every change is written to a file at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values = {}

    def put(self, *keys_and_value: Any) -> None:
        """Stores a value under nested keys."""
        *keys, last, value = keys_and_value
        place = self.values
        for key in keys:
            place = place.setdefault(str(key), {})
        place[str(last)] = value
        self.path.write_text(json.dumps(self.values, indent=1, default=str), "utf-8")

    @contextlib.contextmanager
    def guarded(self, *keys: Any) -> Iterator[None]:
        """Context whose exception becomes a figure."""
        try:
            yield
        except Exception as error:
            lines = "".join(traceback.format_exception(error)).splitlines()
            frames = [line.strip()
                      for line in lines if "scalesearch" in line or "gpu_designs" in line]
            self.put(*keys, "error",
                     {"what": " ".join(str(error).split())[:600], "at": frames[-6:]})


def wait(device: str) -> None:
    """Waits for the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def rounded(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")


def in_turns(device: str, runs: Mapping[str, Callable[[int], Any]], rounds: int,
             seconds: float) -> dict[str, Any]:
    """Runs timed in turns; a run takes the number of the update.

    ``host_ms``: time to issue an update to an idle GPU.

    Every turn takes about ``seconds``.
    """
    counts = {}
    found = {name: [] for name in runs}
    host = {name: [] for name in runs}
    for name, run in runs.items():
        for number in range(4):
            run(number)
        wait(device)
        start = time.perf_counter()
        for number in range(4):
            run(number)
        wait(device)
        counts[name] = max(4, int(4 * seconds / (time.perf_counter() - start)))
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            for number in range(4):
                run(number)
            host[name].append((time.perf_counter() - start) / 4)
            wait(device)
            start = time.perf_counter()
            for number in range(counts[name]):
                run(number)
            wait(device)
            found[name].append((time.perf_counter() - start) / counts[name])
    return {name: {"updates/s": rounded(1 / statistics.median(times)),
                   "ms": rounded(1e3 * statistics.median(times)),
                   "host_ms": rounded(1e3 * statistics.median(host[name])), "rounds": len(times),
                   "spread": rounded((max(times) - min(times)) / statistics.median(times))}
            for name, times in found.items()}


def apart(one: Any, other: Any) -> dict[str, float | bool]:
    """How far two lists of tensors are apart: largest difference, norm of the difference, whether bitwise equal."""
    a, b = (torch.cat([t.detach().double().flatten().cpu() for t in side]) for side in (one, other))
    return {"largest": float((a - b).abs().max()), "relative": float((a - b).norm() / b.norm()),
            "bitwise": bool(torch.equal(a, b))}


def kernels(run: Callable[[], Any]) -> dict[str, Any]:
    """Number and time of the kernels of one run, and the most expensive ones."""
    from torch.profiler import ProfilerActivity, profile

    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    events = [event for event in seen.key_averages() if event.self_device_time_total]
    events.sort(key=lambda event: -event.self_device_time_total)
    return {"kernels": sum(event.count for event in events),
            "kernel_ms": rounded(sum(event.self_device_time_total for event in events) / 1e3),
            "top": [[event.key[:90], event.count, rounded(event.self_device_time_total / 1e3)]
                    for event in events[:16]]}


# -- A: static shapes and graphs


def updates(figures: Figures, given: argparse.Namespace) -> None:
    """Equality with the package's updates, then updates per second in turns."""
    device = given.device
    cuda = device == "cuda"
    batches = [random_batch(ROWS if cuda else 4, WIDTH if cuda else 8, 1000, seed)
               for seed in range(8)]
    other = [random_batch(ROWS // 2 if cuda else 2, 2 * WIDTH if cuda else 16, 1000, seed)
             for seed in range(2)]
    small = plain()

    def trainer(mode: str, precision: str, dropout: float, **more: Any) -> Any:
        recipe = recipe_of(device, precision)
        hardware = Hardware.from_recipe(recipe)
        model = model_of(small, 1000, dropout).to(device)
        return Engine(model, recipe, hardware) if mode == "package" else StaticTrainer(
            model, recipe, hardware, mode, **more)

    def weights_after(subject: Any, sequence: list[Batch]) -> list[Any]:
        losses = []
        for number, batch in enumerate(sequence):
            if isinstance(subject, Engine):
                losses.append(subject.update([batch], RATE * (number + 1)).clone())
            else:
                losses.append(subject.update(stacked(batch, device), RATE * (number + 1)).clone())
        return [weight.detach().clone() for weight in subject.parameters] + losses

    variants = {"static, eager": ("eager", {}),
                "static, eager, tensor rate": ("eager", {"tensor_rate": True}),
                "passes captured": ("passes", {}), "update captured": ("update", {})}
    sequence = [batches[0], other[0], batches[1]]
    for precision in ("exact", "bf16") if cuda else ("fp32",):
        with figures.guarded("gradients", precision):
            one, static = (trainer(mode, precision.replace("exact", "fp32"), 0.0)
                           for mode in ("package", "eager"))
            if precision == "exact":
                torch.set_float32_matmul_precision("highest")
            one.model.zero_grad(set_to_none=True)
            (one.loss_sum(batches[0], one.recipe.label_smoothing) / batches[0].tokens).backward()
            ids = stacked(batches[0], device)
            static.ids[: ids.numel()].copy_(ids.view(-1))
            static._passes(ids.shape[1:])
            figures.put("gradients", precision, apart([w.grad for w in static.parameters],
                                                      [w.grad for w in one.parameters]))
        with figures.guarded("equality", precision):
            found = {}
            for name, (mode, more) in {"package": ("package", {}), **variants}.items():
                with figures.guarded("equality", precision, name):
                    subject = trainer(mode, precision.replace("exact", "fp32"), 0.0, **more)
                    if precision == "exact":
                        torch.set_float32_matmul_precision("highest")
                    found[name] = weights_after(subject, sequence)
                    figures.put("equality", precision, name, "from package",
                                apart(found[name], found["package"]))
                    base = "static, eager, tensor rate"
                    if base in found and name != base:
                        figures.put("equality", precision, name, f"from {base}",
                                    apart(found[name], found[base]))
                    figures.put("equality", precision, name, "losses",
                                [float(x) for x in found[name][-3:]])
    with figures.guarded("dropout"):
        precision = "bf16" if cuda else "fp32"
        for precision in ("fp32", "bf16") if cuda else ("fp32",):
            found = {}
            for name in ("static, eager, tensor rate", "update captured"):
                torch.manual_seed(7)
                mode, more = variants[name]
                found[name] = weights_after(trainer(mode, precision, 0.1, **more), sequence)
            figures.put("dropout", precision, "captured from eager, same seed",
                        apart(*found.values()))
            subject = trainer("update", precision, 0.1)
            ids = stacked(batches[0], device)
            subject.update(ids, RATE)
            state = subject.state()
            runs = []
            for restored in (False, False, True):
                if restored:
                    subject.restore(state)
                else:
                    random = subject.state()[1]
                    subject.restore((state[0], random))
                subject.update(ids, RATE)
                runs.append([t.clone() for t in subject.tensors()])
            figures.put("dropout", precision, "two replays from the same weights",
                        apart(runs[0], runs[1]))
            figures.put("dropout", precision, "replay after restoring weights and generator",
                        apart(runs[0], runs[2]))
    rates: dict[str, Any] = {}
    for precision in ("fp32", "bf16") if cuda else ("fp32",):
        with figures.guarded("speed", precision):
            runs: dict[str, Callable[[int], Any]] = {}
            pinned = [stacked(batch, device) for batch in batches]
            for name, (mode, more) in {"package": ("package", {}), **variants}.items():
                if name == "static, eager, tensor rate":
                    continue
                subject = trainer(mode, precision, 0.1, **more)
                if mode == "package":
                    runs[name] = lambda n, s=subject: s.update([batches[n % 8]], RATE)
                else:
                    runs[name] = lambda n, s=subject, p=pinned: s.update(p[n % 8], RATE)
                runs[name](0)
            if cuda:
                graph = next(iter(subject.graphs.values()))
                runs["replay alone"] = lambda n, graph=graph: graph.replay()
            rates[precision] = in_turns(device, runs, 3, 0.5 if cuda else 0.05)
            figures.put("speed", precision, rates[precision])
            if cuda:
                figures.put("kernels", precision, "package",
                            kernels(lambda r=runs: r["package"](0)))
                figures.put("kernels", precision, "update captured",
                            kernels(lambda r=runs: r["update captured"](0)))
    with figures.guarded("shapes"):
        shapes = [(ROWS * WIDTH // width, width)
                  for width in ((32, 8, 16, 24, 40, 48, 56, 64) if cuda else (8, 16))]
        for lean, warmups in ((False, 3), (False, 1), (True, 1)):
            subject = trainer("update", "fp32", 0.1)
            subject.lean = lean
            subject.warmups = warmups
            wait(device)
            before = torch.cuda.memory_reserved() if cuda else 0
            seconds = []
            for rows, width in shapes:
                start = time.perf_counter()
                subject.update(stacked(random_batch(rows, width, 1000, width), device), RATE)
                wait(device)
                seconds.append(rounded(time.perf_counter() - start))
            name = f"{'lean' if lean else 'torch.cuda.graph'}, {warmups} warm-ups"
            figures.put("shapes", name,
                        {"seconds_per_shape": seconds, "shapes": len(shapes),
                         "reserved_MiB": (torch.cuda.memory_reserved() - before) / 2**20 if cuda
                         else 0})
        many = [stacked(random_batch(*shape, 1000, 1), device) for shape in shapes]
        package = trainer("package", "fp32", 0.1)
        ragged = [random_batch(*shape, 1000, 1) for shape in shapes]
        figures.put(
            "shapes", "speed, one after the other",
            in_turns(device,
                     {"package": lambda n: package.update([ragged[n % len(ragged)]], RATE),
                      "update captured": lambda n: subject.update(many[n % len(many)], RATE)}, 2,
                     0.5 if cuda else 0.05))


# -- B: many processes


def worker(figures: Figures, given: argparse.Namespace) -> None:
    """One process that trains on request: ``graph``, ``package``, ``pin CORE``, ``unpin``; reads standard input."""
    device = given.device
    stages = {"torch": TORCH_IMPORTED - STARTED, "package": PACKAGE_IMPORTED - TORCH_IMPORTED}
    start = time.time()
    recipe = recipe_of(device, given.precision)
    hardware = Hardware.from_recipe(recipe)
    torch.zeros(1, device=device)
    wait(device)
    stages["context"] = time.time() - start
    start = time.time()
    batches = [random_batch(ROWS if device == "cuda" else 4, WIDTH, given.vocab, seed)
               for seed in range(8)]
    pinned = [stacked(batch, device) for batch in batches]
    block = plain(given.width, given.hidden)
    graph = StaticTrainer(model_of(block, given.vocab, 0.1).to(device), recipe, hardware, "update")
    graph.lean = True
    graph.warmups = 1
    graph.update(pinned[0], RATE)
    wait(device)
    stages["first captured update"] = time.time() - start
    package = Engine(model_of(block, given.vocab, 0.1).to(device), recipe, hardware)
    runs = {"graph": lambda n: graph.update(pinned[n % 8], RATE),
            "package": lambda n: package.update([batches[n % 8]], RATE)}
    for number in range(3):
        runs["package"](number)
    wait(device)
    cores = os.sched_getaffinity(0)
    print(json.dumps(stages), flush=True)
    for line in sys.stdin:
        word, *arguments = line.split()
        if word in ("pin", "unpin"):
            chosen = {sorted(cores)[int(arguments[0]) % len(cores)]} if word == "pin" else cores
            for task in os.listdir("/proc/self/task"):
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(int(task), chosen)
            print("{}", flush=True)
        elif word in runs:
            at, seconds = map(float, arguments)
            run = runs[word]
            count = 0
            events = []
            for number in range(3):
                run(number)
            wait(device)
            time.sleep(max(0.0, at - time.time()))
            start = time.perf_counter()
            used = time.process_time()
            while time.perf_counter() - start < seconds:
                for number in range(10):
                    run(number)
                count += 10
                if device == "cuda":  # at most twenty updates ahead; the host sleeps while it waits
                    events.append(torch.cuda.Event(blocking=True))
                    events[-1].record()
                    if len(events) > 1:
                        events.pop(0).synchronize()
            wait(device)
            print(json.dumps({"rate": count / (time.perf_counter() - start),
                              "cores": (time.process_time() - used)
                              / (time.perf_counter() - start)}), flush=True)


@contextlib.contextmanager
def mps() -> Iterator[dict[str, str]]:
    """Context with an MPS daemon of our own in a private directory; gives the environment of its clients."""
    with tempfile.TemporaryDirectory(prefix="mps") as folder:
        environment = {f"CUDA_MPS_{name}_DIRECTORY": folder for name in ("PIPE", "LOG")}
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=os.environ | environment, check=True,
                       timeout=30)
        try:
            yield environment
        finally:
            with contextlib.suppress(subprocess.SubprocessError):
                subprocess.run(["nvidia-cuda-mps-control"], input="quit\n",
                               env=os.environ | environment, text=True, timeout=20,
                               stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def pool(count: int, given: argparse.Namespace, environment: Mapping[str, str],
         vocab: int) -> Iterator[Any]:
    """Context with so many workers; gives a function that sends each its line and returns what they answer."""
    command = [sys.executable, __file__, "--child", "worker", "--device", given.device,
               "--precision", given.precision, "--vocab", str(vocab), "--width", str(given.width),
               "--hidden", str(given.hidden), "--out", os.devnull]
    threads = {"OMP_NUM_THREADS": "1"}
    several = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                env=os.environ | threads | environment) for _ in range(count)]

    def ask(lines: list[str]) -> list[dict[str, float]]:
        for one, line in zip(several, lines):
            one.stdin.write(line + "\n")
            one.stdin.flush()
        return [json.loads(one.stdout.readline()) for one, _ in zip(several, lines)]

    try:
        yield ask, [json.loads(one.stdout.readline()) for one in several]
    finally:
        for one in several:
            one.kill()
        for one in several:
            one.wait()


def packing(figures: Figures, given: argparse.Namespace) -> None:
    """Updates per second of 1, 4, 8 and 16 processes together; without and with MPS, not pinned and pinned."""
    cuda = given.device == "cuda"
    counts, seconds = ((1, 4, 8, 16), 1.2) if cuda else ((1, 2), 0.2)

    def measure(name: str, environment: Mapping[str, str],
                plan: list[tuple[str, int, bool]]) -> None:
        start = time.time()
        with pool(max(count for _, count, _ in plan), given, environment, given.vocab) as (
                ask, stages):
            figures.put(name, "seconds until all are ready", rounded(time.time() - start))
            figures.put(name, "stages of a worker, median",
                        {stage: rounded(statistics.median(one[stage] for one in stages))
                         for stage in stages[0]})
            if cuda:
                used = subprocess.run(["nvidia-smi", "--query-gpu=memory.used",
                                       "--format=csv,noheader,nounits"], capture_output=True,
                                      text=True, check=False).stdout.split()
                figures.put(name, "MiB used by all workers", used)
            pinned = False
            for word, count, pin in plan:
                if pin != pinned:
                    ask([f"pin {at}" if pin else "unpin" for at in range(len(stages))])
                    pinned = pin
                told = ask([f"{word} {time.time() + 0.25} {seconds}"] * count)
                figures.put(name, f"{word}, {count} processes{', pinned' if pin else ''}", {
                    "updates/s": rounded(sum(one["rate"] for one in told)),
                    "slowest": rounded(min(one["rate"] for one in told)),
                    "cores": rounded(sum(one["cores"] for one in told))})

    free = [("graph", count, False) for count in counts]
    pinned = [("graph", count, True) for count in counts[-2:]]
    eager = [("package", 8 if cuda else 2, False)]
    with figures.guarded("no MPS"):
        measure("no MPS", {}, [*free, *eager, *pinned, ("package", counts[-1], True)])
    if cuda:
        with figures.guarded("MPS"), mps() as environment:
            measure("MPS", environment, [*free, *eager, *pinned, ("package", counts[-1], True)])


def streams(figures: Figures, given: argparse.Namespace) -> None:
    """Several captured models in one process: a stream each, and as parallel branches of one graph."""
    device = given.device
    cuda = given.device == "cuda"
    recipe = recipe_of(device, given.precision)
    hardware = Hardware.from_recipe(recipe)
    block = plain(given.width, given.hidden)
    pinned = [stacked(random_batch(ROWS if cuda else 4, WIDTH, given.vocab, seed), device)
              for seed in range(8)]
    several = []
    for count in (1, 2, 4, 8, 16) if cuda else (1, 2):
        with figures.guarded(f"{count} streams"):
            while len(several) < count:
                made = StaticTrainer(
                    model_of(block, given.vocab, 0.1, seed=len(several)).to(device), recipe,
                    hardware, "update")
                made.lean = True
                made.warmups = 1
                made.update(pinned[0], RATE)
                several.append((made, torch.cuda.Stream() if cuda else None))
            wait(device)

            def turn(number: int) -> None:
                for one, stream in several:
                    with torch.cuda.stream(stream) if cuda else contextlib.nullcontext():
                        one.update(pinned[number % 8], RATE)

            found = in_turns(device, {"turn": turn}, 2, 0.4 if cuda else 0.05)["turn"]
            figures.put(f"{count} streams",
                        {"updates/s": rounded(count * found["updates/s"]),
                         "host_ms of all": found["host_ms"]})
            if not cuda or count < 4:
                continue
        with figures.guarded(f"{count} branches of one graph"):
            graph = torch.cuda.CUDAGraph()
            main = torch.cuda.Stream()
            torch.cuda.synchronize()
            with torch.cuda.stream(main):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    for _, stream in several:  # all branches begin before the first one ends
                        stream.wait_stream(main)
                    for one, stream in several:
                        with torch.cuda.stream(stream):
                            one._whole((ROWS, WIDTH))
                    for _, stream in several:
                        main.wait_stream(stream)
                finally:
                    graph.capture_end()
            found = in_turns(device, {"turn": lambda n, graph=graph: graph.replay()}, 2,
                             0.4)["turn"]
            figures.put(f"{count} branches of one graph",
                        {"updates/s": rounded(count * found["updates/s"])})


def host_wait(figures: Figures, given: argparse.Namespace) -> None:
    """CPU seconds per second while a process waits for the device, by the number of updates that it is ahead."""
    device = given.device
    cuda = given.device == "cuda"
    recipe = recipe_of(device, given.precision)
    subject = StaticTrainer(model_of(plain(given.width, given.hidden), given.vocab, 0.1).to(device),
                            recipe, Hardware.from_recipe(recipe), "update")
    ids = stacked(random_batch(ROWS if cuda else 4, WIDTH, given.vocab, 1), device)
    subject.update(ids, RATE)
    for ahead in (1, 2, 4, 10, 20):
        for copied in (True, False):
            wait(device)
            start = time.perf_counter()
            used = time.process_time()
            count = 0
            while time.perf_counter() - start < (1.0 if cuda else 0.1):
                for _ in range(ahead):
                    if copied or not cuda:
                        subject.update(ids, RATE)
                    else:
                        next(iter(subject.graphs.values())).replay()
                count += ahead
                if cuda:
                    event = torch.cuda.Event(blocking=True)
                    event.record()
                    event.synchronize()
            wait(device)
            seconds = time.perf_counter() - start
            figures.put(f"{ahead} ahead, {'batches copied' if copied else 'replays alone'}",
                        {"updates/s": rounded(count / seconds),
                         "cores": rounded((time.process_time() - used) / seconds)})


# -- C: start-up


def stages_to_first_update(device: str) -> dict[str, float]:
    """Seconds of each stage from here to some updates, a captured one as the first."""
    found = {}
    last = time.time()

    def mark(name: str) -> None:
        nonlocal last
        wait(device)
        found[name], last = rounded(time.time() - last), time.time()

    torch.zeros(1, device=device)
    mark("context")
    recipe = recipe_of(device, "fp32")
    hardware = Hardware.from_recipe(recipe)
    model = model_of(plain(), 1000, 0.1)
    mark("model on the CPU")
    subject = StaticTrainer(model.to(device), recipe, hardware, "update")
    eager = StaticTrainer(model, recipe, hardware, "eager")
    mark("model to the device")
    shapes = [(ROWS, WIDTH), (ROWS // 2, 2 * WIDTH), (2 * ROWS, WIDTH // 2)]
    if device == "cpu":
        shapes = [(2, 8), (1, 16)]
    ids = [stacked(random_batch(*shape, 1000, 1), device) for shape in shapes]
    mark("batches")
    eager.update(ids[0], RATE)
    mark("first eager update")
    eager.update(ids[0], RATE)
    mark("second eager update")
    subject.lean = True
    subject.warmups = 1
    for number, one in enumerate(ids):
        subject.update(one, RATE)
        mark(f"capture of shape {number + 1}")
    subject.update(ids[0], RATE)
    mark("replay")
    return found


def stages(figures: Figures, given: argparse.Namespace) -> None:
    """Stages of a process that was started for this."""
    before = {"python": STARTED - given.since, "import torch": TORCH_IMPORTED - STARTED,
              "import scalesearch": PACKAGE_IMPORTED - TORCH_IMPORTED}
    found = {name: rounded(value)
             for name, value in before.items()} | stages_to_first_update(given.device)
    found["since start"] = rounded(time.time() - given.since)
    print(json.dumps(found), flush=True)


def forked(since: float, device: str, sender: Any) -> None:
    """The same in a process of a forkserver."""
    arrived = time.time()
    torch.set_num_threads(1)
    found = {"process": rounded(arrived - since), **stages_to_first_update(device)}
    found["since start"] = rounded(time.time() - since)
    sender.send(found)


def startup(figures: Figures, given: argparse.Namespace) -> None:
    """Seconds from the start of a process to its first update: a new interpreter, and a forkserver with torch."""
    for number in range(2):
        with figures.guarded(f"new process {number + 1}"):
            start = time.time()
            command = [sys.executable, __file__, "--child", "stages", "--device", given.device,
                       "--out", os.devnull, "--since", str(start)]
            told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
            found = json.loads(told.stdout.splitlines()[-1])
            figures.put(f"new process {number + 1}",
                        {**found, "end": rounded(time.time() - start - found["since start"])})
    with figures.guarded("forkserver"):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "numpy", "torch._dynamo",
                                        "scalesearch.train.updates.engine", "scalesearch.cost",
                                        "scalesearch.space.space", "gpu_designs"])
        for number in range(3):
            receiver, sender = context.Pipe(duplex=False)
            start = time.time()
            process = context.Process(target=forked, args=(start, given.device, sender))
            process.start()
            sender.close()
            found = receiver.recv()
            process.join()
            figures.put("forkserver", f"process {number + 1}", {**found, "end": rounded(
                time.time() - start - found["since start"])})
    with figures.guarded("forkserver, 8 together"):
        start = time.time()
        several = []
        for _ in range(8 if given.device == "cuda" else 2):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=forked, args=(time.time(), given.device, sender))
            process.start()
            sender.close()
            several.append((process, receiver))
        found = [receiver.recv() for _, receiver in several]
        for process, _ in several:
            process.join()
        figures.put("forkserver, 8 together",
                    {name: rounded(statistics.median(one[name] for one in found))
                     for name in found[0]} | {"all": rounded(time.time() - start)})


# -- D: memory


MEMORY = [("small/plain", {}), ("small/partialformer", {}), ("small/anthe", {}),
          ("small/edgeformer", {}), ("found/conv-2.54m", {}), ("reference/delight-d128", {}),
          ("reference/mega", {}), ("transformer", {})]


def memory(figures: Figures, given: argparse.Namespace) -> None:
    """Predicted bytes of an update against the allocator's peak, eager and captured."""
    device = given.device
    cuda = given.device == "cuda"
    vocab = 8000
    rows, width = (ROWS, WIDTH) if cuda else (2, 8)
    if cuda:
        free = torch.cuda.mem_get_info()[0]
        torch.cuda.synchronize()
        figures.put("context",
                    {"total MiB": torch.cuda.mem_get_info()[1] / 2**20, "free MiB": free / 2**20})
    for name, params in MEMORY:
        for precision in ("fp32", "bf16") if cuda else ("fp32",):
            with figures.guarded(name, precision):
                block = architecture(name, **params).block
                at_once = evaluate_cost(block, find_protocol("forward", width, width, 8))
                whole = evaluate_cost(block, find_protocol("forward", width, width, vocab))
                weights = 4 * whole["params.total"]
                states = rows * at_once["memory.activations"]
                n = min(rows * width, CHUNK_ROWS_GPU)
                predicted = {"weights": weights, "gradients": weights, "moments": 2 * weights,
                             "activations": states, "logits": 4 * n * vocab}
                figures.put(name, precision, "predicted", predicted)
                recipe = recipe_of(device, precision)
                hardware = Hardware.from_recipe(recipe)
                if not cuda:
                    StaticTrainer(model_of(architecture(name), vocab, 0.1), recipe, hardware,
                                  "eager", rows * width).update(
                        stacked(random_batch(rows, width, vocab, 1), device), RATE)
                    continue
                ids = stacked(random_batch(rows, width, vocab, 1), device)
                for mode in ("eager", "update"):
                    torch.cuda.empty_cache()
                    base = torch.cuda.memory_allocated()
                    reserved = torch.cuda.memory_reserved()
                    subject = StaticTrainer(model_of(architecture(name), vocab, 0.1).to(device),
                                            recipe, hardware, mode)
                    subject.lean = True
                    subject.warmups = 1
                    found = {}
                    if mode == "eager":
                        subject.update(ids, RATE)
                        subject.model.zero_grad(set_to_none=True)
                        torch.cuda.synchronize()
                        still = torch.cuda.memory_allocated()
                        source = ids[0].to(device)
                        target = ids[1].to(device)
                        with hardware.autocast():
                            hidden = subject.model.decode(target, subject.model.encode(source))
                        found["activations"] = torch.cuda.memory_allocated() - still
                        del hidden
                        found["weights and moments"] = still - base
                    torch.cuda.reset_peak_memory_stats()
                    for _ in range(2):
                        subject.update(ids, RATE)
                    torch.cuda.synchronize()
                    found["peak"] = torch.cuda.max_memory_allocated() - base
                    found["reserved"] = torch.cuda.memory_reserved() - reserved
                    found["predicted over peak"] = rounded(sum(predicted.values()) / found["peak"])
                    figures.put(name, precision, mode, found)
                    del subject
    if cuda:
        left = torch.cuda.mem_get_info()
        figures.put("context", "used at the end MiB", (left[1] - left[0]) / 2**20)
        figures.put("context", "reserved at the end MiB", torch.cuda.memory_reserved() / 2**20)


# -- E: precision and width


def widths(figures: Figures, given: argparse.Namespace) -> None:
    """TF32 and bf16 at each width under graphs, and the share of one large product's speed."""
    device = given.device
    cuda = given.device == "cuda"
    vocab = 8000
    peaks = {}
    for precision, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        torch.set_float32_matmul_precision("high")
        side = 8192 if cuda else 512
        a = torch.randn(side, side, device=device, dtype=dtype)
        peaks[precision] = 2 * side**3 / (
            in_turns(device, {"product": lambda n, a=a: a @ a}, 3, 0.1)["product"]["ms"] / 1e3)
        figures.put("peak", precision, f"{peaks[precision] / 1e12:.4g} TFLOP/s")
        del a
    for width, hidden, rows in ((128, 256, 64), (256, 1024, 64), (512, 2048, 64), (512, 2048, 256),
                                (128, 256, 256)):
        if not cuda and width > 128:
            continue
        with figures.guarded(f"width {width}, {rows * WIDTH} tokens"):
            block = plain(width, hidden)
            macs = evaluate_cost(block.block,
                                 find_protocol("forward", WIDTH, WIDTH, vocab))["macs.total"] * rows
            runs = {}
            ids = stacked(random_batch(rows, WIDTH, vocab, 1), device)
            for precision in ("fp32", "bf16"):
                recipe = recipe_of(device, precision)
                subject = StaticTrainer(model_of(block, vocab, 0.1).to(device), recipe,
                                        Hardware.from_recipe(recipe), "update", rows * WIDTH)
                subject.lean = True
                subject.warmups = 1
                runs[precision] = lambda n, s=subject, ids=ids: s.update(ids, RATE)
                runs[precision](0)
            if (width, rows) != (128, 256):
                package = Engine(model_of(block, vocab, 0.1).to(device), recipe,
                                 Hardware.from_recipe(recipe))
                batch = random_batch(rows, WIDTH, vocab, 1)
                runs["package, bf16"] = lambda n, e=package, b=batch: e.update([b], RATE)
            found = in_turns(device, runs, 2, 0.4 if cuda else 0.05)
            for name, one in found.items():
                one["TFLOP/s"] = rounded(6 * macs / one["ms"] / 1e9)
                one["share of bf16 peak"] = rounded(6 * macs / one["ms"] * 1e3 / peaks["bf16"])
                figures.put(f"width {width}, {rows * WIDTH} tokens", name, one)
            if cuda and rows == 64:
                figures.put(f"width {width}, {rows * WIDTH} tokens", "kernels, bf16",
                            kernels(lambda r=runs: r["bf16"](0)))


def compiled(figures: Figures, given: argparse.Namespace) -> None:
    """Passes through ``torch.compile`` with static shapes, captured by our own graph."""
    device = given.device
    recipe = recipe_of(device, given.precision)
    hardware = Hardware.from_recipe(recipe)
    ids = stacked(random_batch(ROWS, WIDTH, 1000, 1), device)
    runs = {}
    for name in ("plain", "compiled"):
        subject = StaticTrainer(model_of(plain(), 1000, 0.1).to(device), recipe, hardware, "update")
        start = time.time()
        if name == "compiled":
            subject.states = torch.compile(subject.states, dynamic=False)
        subject.update(ids, RATE)
        wait(device)
        figures.put(f"seconds to the first update, {name}", rounded(time.time() - start))
        runs[name] = lambda n, s=subject: s.update(ids, RATE)
    figures.put("speed", in_turns(device, runs, 3, 0.5 if device == "cuda" else 0.05))
    if device == "cuda":
        figures.put("kernels", kernels(lambda: runs["compiled"](0)))


# -- F: Muon and SOAP


def matrix_optimizers(figures: Figures, given: argparse.Namespace) -> None:
    """Muon and SOAP with tensors for rate and count: equality with the package's, then speed captured."""
    device = given.device
    cuda = given.device == "cuda"
    batches = [random_batch(ROWS if cuda else 4, WIDTH if cuda else 8, 1000, seed)
               for seed in range(4)]
    pinned = [stacked(batch, device) for batch in batches]
    for kind in ("adamw", "muon", "soap"):
        for precision in ("fp32",):
            with figures.guarded(kind, precision):
                recipe = recipe_of(device, precision, optimizer=kind, weight_decay=0.01)
                hardware = Hardware.from_recipe(recipe)
                steps = 13 if cuda else 12
                found = {}
                runs = {}
                for name in ("package", "eager", "captured"):
                    with figures.guarded(kind, precision, name):
                        model = model_of(plain(), 1000, 0.0).to(device)
                        if name == "package":
                            subject: Any = Engine(model, recipe, hardware)
                            runs[name] = lambda n, s=subject: s.update([batches[n % 4]], RATE)
                        else:
                            subject = StaticTrainer(
                                model, recipe, hardware, "eager", kind=kind, tensor_rate=True)
                            runs[name] = lambda n, s=subject: s.update(pinned[n % 4], RATE)
                        for number in range(steps):
                            # SOAP's first update only makes its bases
                            if number == 1 and name == "captured":
                                subject.mode = "update"
                            runs[name](number)
                        found[name] = [weight.detach().clone() for weight in subject.parameters]
                        if name != "package":
                            figures.put(kind, precision, name, "from package",
                                        apart(found[name], found["package"]))
                        if name == "captured":
                            figures.put(kind, precision, name, "from eager",
                                        apart(found[name], found["eager"]))
                        if subject_notes := getattr(subject, "notes", None):
                            figures.put(kind, precision, name, "notes", subject_notes)
                figures.put(kind, precision, "speed",
                            in_turns(device, runs, 2, 0.4 if cuda else 0.05))


# -- obstacles


def attempt(function: Callable[[], Any], warm: bool = True) -> Any:
    """A graph of one call after a warm-up, replayed once."""
    if warm:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            function()
        torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        function()
    graph.replay()
    torch.cuda.synchronize()
    return graph


class Cases:
    """What the package's own code does in a capture, one method a case; each returns what it found."""

    def __init__(self) -> None:
        self.batch = random_batch(ROWS, WIDTH, 1000, 1)
        self.hardware = Hardware.from_recipe(recipe_of("cuda", "fp32"))
        self.ids = [self.hardware.to_device(a)
                    for a in (self.batch.source, self.batch.target_in, self.batch.target_out)]

    def _engine(self, **changes: Any) -> Engine:
        made = Engine(model_of(plain(), 1000, 0.1).to("cuda"), recipe_of("cuda", "fp32", **changes),
                      self.hardware)
        made.update([self.batch], RATE)
        return made

    def _matrices(self, kind: str) -> Any:
        return next(
            o for o in self._engine(optimizer=kind).optimizers if isinstance(o, MatrixOptimizer))

    def copy_of_a_batch(self) -> Any:
        """hardware.py:95, page-locked memory made for every array."""
        return bool(attempt(lambda: self.hardware.to_device(self.batch.source)))

    def whole_update(self) -> Any:
        """engine.py:53, as it is."""
        engine = self._engine()
        return bool(attempt(lambda: engine.update([self.batch], RATE)))

    def selected_rows(self) -> Any:
        """engine.py:99-103, with the places on the device beforehand."""
        from scalesearch.train.updates.loss import cross_entropy

        engine, (source, target, labels) = self._engine(), self.ids
        places = self.hardware.to_device(np.flatnonzero(self.batch.target_out != PAD))
        engine.model.zero_grad(set_to_none=True)

        def passes() -> None:
            hidden = engine.model.decode(
                target, engine.model.encode(source)).flatten(0, 1).index_select(0, places)
            (term,) = engine.model.softmax_terms(hidden, labels.flatten().index_select(0, places))
            (cross_entropy(*term, 0.1) / 100).backward()

        return bool(attempt(passes))

    def clipping(self) -> Any:
        """engine.py:66."""
        engine = self._engine()
        return bool(
            attempt(lambda: torch.nn.utils.clip_grad_norm_(engine.parameters, 1.0, foreach=True)))

    def adamw(self) -> Any:
        """optimizers.py:54, fused and not capturable."""
        return bool(attempt(self._engine().optimizers[0].step))

    def adamw_with_a_number(self) -> Any:
        """engine.py:69, a rate that is a number: whether a change of it is read by a replay."""
        engine = self._engine()
        for group in engine.optimizers[0].param_groups:
            group["capturable"] = True
            for weight in group["params"]:
                engine.optimizers[0].state[weight]["step"] = engine.optimizers[0].state[weight][
                    "step"].to("cuda")
        graph = attempt(engine.optimizers[0].step)
        for group in engine.optimizers[0].param_groups:
            group["lr"] = 0.0
        before = [weight.detach().clone() for weight in engine.parameters]
        graph.replay()
        torch.cuda.synchronize()
        return {"a replay reads the new rate": apart(before, engine.parameters)["bitwise"]}

    def moving_average(self) -> Any:
        """averaging.py:75."""
        mean = ExponentialMovingAverage(self._engine().model, 0.5)
        mean.update()
        return bool(attempt(mean.update))

    def muon(self) -> Any:
        """optimizers.py:88, rate a number."""
        return bool(attempt(self._matrices("muon").step))

    def muon_tensor_rate(self) -> Any:
        """optimizers.py:88, rate a tensor."""
        matrices = self._matrices("muon")
        for group in matrices.param_groups:
            group["lr"] = torch.full((), RATE, device="cuda")
        return bool(attempt(matrices.step))

    def soap(self) -> Any:
        """optimizers.py:112, rate a number; no refresh is due."""
        return bool(attempt(self._matrices("soap").step))

    def soap_tensor_rate(self) -> Any:
        """optimizers.py:112, rate a tensor."""
        matrices = self._matrices("soap")
        for group in matrices.param_groups:
            group["lr"] = torch.full((), RATE, device="cuda")
        return bool(attempt(matrices.step))

    def soap_first(self) -> Any:
        """optimizers.py:113-116, the update that makes the bases."""
        matrices = self._matrices("soap")
        matrices.state.clear()
        return bool(attempt(matrices.step, warm=False))

    def soap_refresh(self) -> Any:
        """optimizers.py:138, QR in capture."""
        matrices = self._matrices("soap")

        def follow() -> None:
            with torch.no_grad():
                for state in matrices.state.values():
                    matrices._update_bases(state)

        return bool(attempt(follow))

    def soap_eigh(self) -> Any:
        """optimizers.py:116, eigh alone in capture."""
        matrix = torch.randn(4, 128, 128, device="cuda")
        matrix = matrix @ matrix.mT
        return bool(attempt(lambda: torch.linalg.eigh(matrix)))

    def adaptive_softmax(self) -> Any:
        """embedding.py:191."""
        given = architecture("small/plain",
                             embedding="{adaptive: {cutoffs: [100, 400], factor: 2}}")
        model, (source, target, labels) = model_of(given, 1000, 0.1).to("cuda"), self.ids

        def passes() -> None:
            terms = model.softmax_terms(model.decode(target, model.encode(source)).flatten(0, 1),
                                labels.flatten())
            sum(WeightedCrossEntropy.apply(*term, 0.1, torch.ones(len(term[3]), device="cuda"))
                for term in terms).backward()

        return bool(attempt(passes))

    def restored_optimizer(self) -> Any:
        """engine.py:90, whether tensors of a captured update are the same ones after load_state_dict."""
        subject = StaticTrainer(model_of(plain(), 1000, 0.0).to("cuda"), recipe_of("cuda", "fp32"),
                                self.hardware, "update")
        subject.update(stacked(self.batch, "cuda"), RATE)
        before = {t.data_ptr() for t in subject.tensors()} | {
            g["lr"].data_ptr() for o in subject.optimizers for g in o.param_groups}
        for optimizer in subject.optimizers:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        after = {t.data_ptr() for t in subject.tensors()} | {
            g["lr"].data_ptr() for o in subject.optimizers for g in o.param_groups}
        return {"tensors": len(before),
                "at the same address after load_state_dict": len(before & after)}

    def memory_runs_out(self) -> Any:
        """engine.py:133-147, out of memory in a capture: which error, and whether the process goes on."""
        recipe = recipe_of("cuda", "fp32")
        ids = stacked(self.batch, "cuda")
        small = StaticTrainer(model_of(plain(), 1000, 0.1).to("cuda"), recipe, self.hardware,
                              "update")
        small.update(ids, RATE)
        big = StaticTrainer(model_of(plain(), 1000, 0.1).to("cuda"), recipe, self.hardware,
                            "update", 2**16)
        big.update(ids, RATE)
        big.warmups = 0
        big.pool = None
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(
            (torch.cuda.memory_reserved() + 300 * 2**20) / total)
        found: dict[str, Any] = {}
        try:
            big.update(stacked(random_batch(2048, WIDTH, 1000, 1), "cuda"), RATE)
            found["capture"] = "no error"
        except Exception as error:
            found["capture"] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        torch.cuda.set_per_process_memory_fraction(1.0)
        other = stacked(random_batch(ROWS // 2, 2 * WIDTH, 1000, 1), "cuda")
        tries = {"an older graph of another model": lambda: small.update(ids, RATE),
                 "a new capture of another model": lambda: small.update(other, RATE),
                 "an older graph of the same model": lambda: big.update(ids, RATE),
                 "the same shape eager": lambda: big._whole((2048, WIDTH)),
                 "a capture of the same shape again": lambda: big.update(
                     stacked(random_batch(2048, WIDTH, 1000, 1), "cuda"), RATE)}
        for name, function in tries.items():
            try:
                function()
                torch.cuda.synchronize()
                found[name] = "works"
            except Exception as error:
                found[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return found


CASES = [name for name in vars(Cases) if not name.startswith("_")]


def case(figures: Figures, given: argparse.Namespace) -> None:
    """One case, as a line on standard output."""
    try:
        found = getattr(Cases(), given.case)()
    except Exception as error:
        frames = [f"{Path(f.filename).name}:{f.lineno}"
                  for f in traceback.extract_tb(error.__traceback__)
                  if "scalesearch/" in f.filename or "optim/" in f.filename]
        found = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
                 "at": frames[-3:]}
    print(json.dumps(found), flush=True)
    os._exit(0)  # a broken capture may hang at the end of the process


def obstacles(figures: Figures, given: argparse.Namespace) -> None:
    """Every case in a process of its own, so that a broken capture breaks no other."""
    if given.device == "cpu":
        figures.put("skipped", "capture needs a GPU")
        return
    several = {name: subprocess.Popen([sys.executable, __file__, "--child", "case", "--case", name,
                                       "--out", os.devnull], stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, text=True) for name in CASES}
    end = time.time() + 38
    for name, process in several.items():
        try:
            said = process.communicate(timeout=max(0.5, end - time.time()))[0].splitlines()
            figures.put(name,
                        {"of": (getattr(Cases, name).__doc__ or "").strip(),
                         "found": json.loads(said[-1]) if said else f"exit {process.returncode}"})
        except subprocess.TimeoutExpired:
            process.kill()
            figures.put(name, "no answer in time")


FAMILIES = ["small/plain", "small/partialformer", "small/anthe", "small/edgeformer",
            "found/conv-2.54m", "found/conv-rotary-2.54m", "reference/delight-d128",
            "reference/mega", "reference/dman", "reference/multi-path", "reference/subformer-waist",
            "reference/evolved", "reference/lite-d200", "reference/mute", "reference/mat",
            "reference/edgeformer-prompt", "reference/edgeformer-adapter",
            "reference/partialformer-6-6-d400-h24-16", "reference/partialformer-relative-scores",
            "reference/partialformer-decoder-only", "reference/universal-d1024",
            "reference/anthe-b"]


def families(figures: Figures, given: argparse.Namespace) -> None:
    """One captured update of other architectures against the same update eager, and the seconds of the capture."""
    device = given.device
    cuda = given.device == "cuda"
    recipe = recipe_of(device, "fp32")
    hardware = Hardware.from_recipe(recipe)
    ids = stacked(random_batch(8 if cuda else 2, 16 if cuda else 8, 1000, 1), device)
    for name in FAMILIES:
        with figures.guarded(name):
            found = []
            seconds = 0.0
            for mode in ("eager", "update"):
                torch.manual_seed(3)
                model = model_of(architecture(name), 1000, 0.1).to(device)
                subject = StaticTrainer(model, recipe, hardware, mode, tensor_rate=True)
                subject.lean = True
                subject.warmups = 1
                start = time.time()
                subject.update(ids, RATE)
                subject.update(ids, RATE)
                wait(device)
                seconds = time.time() - start
                found.append([weight.detach().clone() for weight in subject.parameters])
                del subject, model
            figures.put(name, {"seconds": rounded(seconds), **apart(found[1], found[0])})


class Syncs(torch.utils._python_dispatch.TorchDispatchMode):
    """Records operations whose result the host waits for, or whose shape depends on data."""

    NAMES = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "is_nonzero", "equal",
             "lift_fresh", "_linalg_check_errors", "repeat_interleave.Tensor", "bincount", "item")

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        name = str(function).removeprefix("aten.")
        masks = name.startswith("index.Tensor") and any(
            i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
        if masks or any(name.startswith(word) for word in self.NAMES):
            where = [f"{frame.filename.partition('scalesearch/')[2]}:{frame.lineno}"
                     for frame in traceback.extract_stack() if "/scalesearch/" in frame.filename]
            self.found.setdefault(name, where[-1] if where else "backward")
        return function(*args, **(kwargs or {}))


def syncs(figures: Figures, given: argparse.Namespace) -> None:
    """Data-dependent operations of every shipped architecture's static passes and update, found without a GPU."""
    recipe = recipe_of("cpu", "fp32")
    hardware = Hardware.from_recipe(recipe)
    folder = find_file("small/plain", "spaces").parent.parent
    clean = []
    for file in sorted(folder.rglob("*.yaml")):
        name = str(file.relative_to(folder).with_suffix(""))
        try:
            block = read_space(file).single_architecture()
        except Exception:
            continue  # a space with free parameters
        with figures.guarded(name):
            if evaluate_cost(block.block,
                             find_protocol("forward", 8, 8, 64))["params.total"] > 60e6:
                figures.put(name, "skipped: large")
                continue
            subject = StaticTrainer(model_of(block, 64, 0.0), recipe, hardware, "eager", 16,
                                    tensor_rate=True)
            ids = stacked(random_batch(2, 8, 64, 1), "cpu")
            subject.update(ids, RATE)
            with Syncs() as seen:
                subject._passes((2, 8))
            if seen.found:
                figures.put(name, seen.found)
            else:
                clean.append(name)
            figures.put("clean", len(clean))


# -- the runner

EXPERIMENTS: dict[str, tuple[Callable[[Figures, argparse.Namespace], None], float]] = {
    "updates": (updates, 65), "obstacles": (obstacles, 42), "families": (families, 90),
    "memory": (memory, 60), "packing": (packing, 85), "matrix_optimizers": (matrix_optimizers, 30),
    "startup": (startup, 45), "streams": (streams, 30), "host_wait": (host_wait, 20),
    "widths": (widths, 40), "compiled": (compiled, 60), "syncs": (syncs, 400)}
TOGETHER = ("obstacles", "families", "memory")  # not timed, so they share the device
HIDDEN = {"worker": worker, "stages": stages, "case": case}


def machine() -> dict[str, Any]:
    """What the figures are of."""
    found = {"torch": torch.__version__, "cuda": torch.version.cuda,
             "python": platform.python_version(), "cores": len(os.sched_getaffinity(0))}
    with contextlib.suppress(OSError):
        told = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,memory.used,compute_mode",
             "--format=csv,noheader"], capture_output=True, text=True, check=False)
        found["gpu"] = told.stdout.strip()
    return found


def run_all(given: argparse.Namespace) -> None:
    """Starts all experiments, which wait for their turn after their imports, and collects their figures."""
    end = time.time() + given.seconds
    report: dict[str, Any] = {"machine": machine(), "device": given.device}
    with tempfile.TemporaryDirectory(prefix="designs") as scratch:
        def start(name: str) -> tuple[Any, Path, Path]:
            file = Path(scratch) / f"{name}.json"
            log = Path(scratch) / f"{name}.log"
            command = [sys.executable, __file__, "--child", name, "--device", given.device,
                       "--precision", given.precision, "--vocab", str(given.vocab), "--width",
                       str(given.width), "--hidden", str(given.hidden), "--out", str(file)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log.open("w"),
                                       stderr=subprocess.STDOUT, text=True, start_new_session=True)
            return process, file, log

        children: dict[str, tuple[Any, Path, Path]] = {}

        def begin(names: tuple[str, ...]) -> None:
            for name in names:
                if name not in children:
                    children[name] = start(name)

        def finish(name: str, began: float) -> None:
            process, file, log = children[name]
            left = max(1.0, min(EXPERIMENTS[name][1] - (time.time() - began), end - time.time()))
            found: dict[str, Any] = {}
            try:
                code = process.wait(left)
            except subprocess.TimeoutExpired:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(8)
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, 9)
                process.wait()
                code = "out of time"
            with contextlib.suppress(OSError, ValueError):
                found = json.loads(file.read_text("utf-8"))
            report[name] = {"seconds": round(time.time() - began, 1), "exit": code,
                            "figures": found}
            if code != 0:
                report[name]["log"] = log.read_text("utf-8", "replace")[-2500:]
            given.out.write_text(json.dumps(report, indent=1), "utf-8")
            print(name, code, report[name]["seconds"], flush=True)

        turns: list[tuple[str, ...]] = []
        for name in given.only:
            if name in TOGETHER and turns and turns[-1][0] in TOGETHER:
                turns[-1] = (*turns[-1], name)
            else:
                turns.append((name,))
        if given.device == "cuda":
            begin(tuple(given.only))
        for names in turns:
            if end - time.time() < 8:
                report.setdefault("not started", []).extend(names)
                continue
            begin(names)
            began = time.time()
            for name in names:
                children[name][0].stdin.write("go\n")
                children[name][0].stdin.close()
            for name in names:
                finish(name, began)
        for process, _, _ in children.values():
            if process.poll() is None:
                process.kill()
        report["machine after"] = machine()
        given.out.write_text(json.dumps(report, indent=1), "utf-8")


def main() -> None:
    """Runs all experiments, or one as a child; see the module."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu_designs.json"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, default=220,
                        help="time limit of all experiments together")
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS,
                        default=[n for n in EXPERIMENTS if n != "syncs"])
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32",
                        help="of packing, streams and host_wait")
    parser.add_argument("--vocab", type=int, default=1000, help="of packing, streams and host_wait")
    parser.add_argument("--width", type=int, default=128, help="of packing, streams and host_wait")
    parser.add_argument("--hidden", type=int, default=256,
                        help="of the feed-forward networks there")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--since", type=float, default=0.0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    # so that a daemon of ours is ended
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    if given.child is None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        run_all(given)
    elif given.child in HIDDEN:
        HIDDEN[given.child](Figures(given.out), given)
    else:
        if given.device == "cpu":
            torch.set_num_threads(1)
        if sys.stdin.readline():  # the other experiments' turns are over
            EXPERIMENTS[given.child][0](Figures(given.out), given)


if __name__ == "__main__":
    main()
