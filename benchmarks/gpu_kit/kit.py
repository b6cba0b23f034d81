"""Checks, and the device, corpus and small models that they share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scalesearch.data import Batch, Corpus, DataSpec, load_corpus
from scalesearch.library import find_file
from scalesearch.nn import DropoutRates, build_model
from scalesearch.spaces.space import read_space
from scalesearch.training import Recipe
from scalesearch.training.hardware import Hardware

VOCAB = 1000
Figures = Mapping[str, Any]


class Skipped(Exception):
    """Reason: this check cannot run here."""


class Wrong(Exception):
    """Finding: something is not as it must be."""


@dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
        run: returns figures, or raises :class:`Wrong`.
        gpus: number of GPUs that it needs.
        seconds: planned time on a GPU.
    """

    name: str
    run: Callable[[Kit], Figures]
    gpus: int
    seconds: float

    @property
    def what(self) -> str:
        """First line of its docstring."""
        return (self.run.__doc__ or "").strip().splitlines()[0]


CHECKS: dict[str, Check] = {}


def check(gpus: int = 1, seconds: float = 15
          ) -> Callable[[Callable[[Kit], Figures]], Callable[[Kit], Figures]]:
    """Register a function as a check; for the arguments see :class:`Check`."""
    def registered(run: Callable[[Kit], Figures]) -> Callable[[Kit], Figures]:
        CHECKS[run.__name__] = Check(run.__name__, run, gpus, seconds)
        return run

    return registered


@dataclass
class Kit:
    """Device, models and figures that all checks share.

    Attributes:
        folder: for files of the checks.
        quick: whether short runs of small models are enough.
        is_dry_run: whether checks of a GPU run on the CPU.
        figures: of the check that runs; a check that fails keeps them.
    """

    folder: Path | None
    quick: bool = False
    device: torch.device = field(
        default_factory=lambda: torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    is_dry_run: bool = False
    figures: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def corpus(self) -> Corpus:
        """Built-in text."""
        return load_corpus(DataSpec(builtin="grammar", pairs=3000 if self.quick else 10_000,
                                    vocab=VOCAB), self.folder)

    def recipe(self, **changes: Any) -> Recipe:
        """A short recipe for the device."""
        settings = {"steps": 20, "max_tokens": 512, "device": self.device.type, "precision": "fp32",
                 "beam": 1}
        return Recipe(**(settings | changes))

    def hardware(self, device: torch.device | None = None, bf16: bool = False) -> Hardware:
        """Eager, on the device."""
        return Hardware(device or self.device, bf16, False)

    def wait(self) -> None:
        """Waits for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    @contextlib.contextmanager
    def exact(self) -> Iterator[None]:
        """Context in which products of fp32 are in fp32."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


FAMILIES = ("small/plain", "small/partialformer", "small/anthe", "small/edgeformer")
OTHER_PUBLISHED = ("reference/subformer-waist", "reference/evolved", "reference/delight-d128",
               "reference/lite-d200", "reference/mega", "reference/dman", "reference/multi-path",
               "small/plain with matrices.ffn=kronecker and matrices.attention=low_rank",
               "small/plain with matrices.ffn=group and matrices.attention=group")


def architecture(name: str) -> Any:
    """Return a shipped architecture, or one with other parameters."""
    file, _, changes = name.partition(" with ")
    space = read_space(find_file(file, "spaces"))
    return (space.with_overrides(dict(first.split("=")
                                      for first in changes.split(" and "))).single_architecture()
            if changes else space.single_architecture())


def model(name: str, vocab: int = VOCAB, seed: int = 1, dropout: float = 0.0) -> Any:
    """Build its model on the CPU; ``dropout`` applies to all three kinds of dropout."""
    return build_model(architecture(name).block, vocab=vocab, seed=seed,
                       dropout=DropoutRates(dropout, dropout, dropout))


def plain_transformer(width: int, vocab: int) -> Any:
    """Build the 3-3 Transformer of ``small/plain`` at another width, with dropout."""
    hidden = 256 if width == 128 else 4 * width
    changes = f"width={width} and encoder.ffn.relu.hidden={hidden} and decoder.ffn.relu.hidden={hidden}"
    return model(f"small/plain with {changes}", vocab, dropout=0.1)


def batch(rows: int = 8, length: int = 12, vocab: int = VOCAB, seed: int = 0) -> Batch:
    """Random pairs, the later rows shorter."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(4, vocab, (3, rows, length))
    for row in range(rows):
        ids[:, row, length - row % 4 :] = 0
    return Batch(ids[0], ids[1], ids[2], np.arange(rows))


def far(first: torch.Tensor, second: torch.Tensor) -> float:
    """Greatest difference, relative to the greatest entry."""
    first = first.detach().double().cpu()
    second = second.detach().double().cpu()
    return float((first - second).abs().max() / second.abs().max().clamp(min=1e-12))


def excess(name: str, value: float, limit: float) -> list[str]:
    """Describe a value above ``limit`` or NaN; otherwise the list is empty."""
    return [] if value <= limit else [f"{name}: {value:.3g}, above {limit:.3g}"]


def hold(name: str, value: float, limit: float) -> None:
    """Raises :class:`Wrong` where ``found`` is above ``limit``, or no number."""
    refuse(excess(name, value, limit))


def refuse(wrong: list[str]) -> None:
    """Raises :class:`Wrong` where anything is."""
    if wrong:
        raise Wrong("; ".join(wrong))
