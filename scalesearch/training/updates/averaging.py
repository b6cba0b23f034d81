"""Averages of weights from several moments of a run.

Source: Popel & Bojar (2018), section 4.10.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from scalesearch.errors import UserError
from scalesearch.files import read_regular, write_atomic

CHECKSUM_KEY = "blake2b"


class WeightSnapshots:
    """Weights of the last or best few moments, one safetensors file each.

    Attributes:
        scores_by_step: scores by number of updates, stored in checkpoints. Lower scores are better;
            of equal scores the later is better.
    """

    def __init__(self, directory: Path, count: int) -> None:
        self.folder = directory / "snapshots"
        self.count = count
        self.scores_by_step: dict[int, tuple[float, ...]] = {}

    def add(self, model: nn.Module, step: int, score: tuple[float, ...] = ()) -> None:
        """Keep the current weights, unless ``count`` better ones exist."""
        if step in self.scores_by_step:
            return
        ranked = sorted([*self.scores_by_step.items(), (step, score)],
                        key=lambda item: (item[1], -item[0]))
        kept = dict(ranked[: self.count])
        if step in kept:
            write_weights(self._file(step), model.state_dict())
        self.scores_by_step = kept

    def average(self) -> dict[str, Tensor]:
        """Average the kept weights, summed in fp32; tied weights stay tied."""
        total: dict[str, Tensor] = {}
        for step in self.scores_by_step:
            for name, weight in read_weights(self._file(step)).items():
                total[name] = total.get(name, 0) + weight.float()
        return {name: weight / len(self.scores_by_step) for name, weight in total.items()}

    def delete_unused(self) -> None:
        """Delete files that are not kept.

        Call it after writing a checkpoint that does not name them.
        """
        kept = set(map(self._file, self.scores_by_step))
        for file in set(self.folder.glob("*.safetensors")) - kept:
            file.unlink(missing_ok=True)

    def clear(self) -> None:
        """Delete all snapshots."""
        self.scores_by_step = {}
        self.delete_unused()
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _file(self, step: int) -> Path:
        return self.folder / f"{step:08d}.safetensors"


class ExponentialMovingAverage:
    """Exponential moving average of weights.

    ``window`` is a number of updates, or below 1 a share of the updates so far. The weight of the
    newest weights decreases with the number of updates, so the average is equally good at any time.
    """

    def __init__(self, model: nn.Module, window: float) -> None:
        self.model = model
        self.window = window
        self.step = 0
        self.mean = [weight.detach().clone() for weight in model.parameters()]

    def update(self) -> None:
        """Add the current weights."""
        self.step += 1
        weights = [weight.detach() for weight in self.model.parameters()]
        torch._foreach_lerp_(self.mean, weights, 1 / self.effective_window)

    @property
    def effective_window(self) -> float:
        """Number of updates that the average covers."""
        return max(1.0,
                   min(self.window, self.step) if self.window >= 1 else self.window * self.step)

    def averaged_weights(self) -> dict[str, Tensor]:
        """Return the average by weight name."""
        return {name: mean
                for (name, _), mean in zip(self.model.named_parameters(), self.mean, strict=True)}

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Context in which the model has the average as its weights."""
        weights = [weight.data for weight in self.model.parameters()]
        self._set_weights(self.mean)
        try:
            yield
        finally:
            self._set_weights(weights)

    def _set_weights(self, weights: list[Tensor]) -> None:
        for weight, value in zip(self.model.parameters(), weights, strict=True):
            weight.data = value

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"step": self.step, "mean": self.mean}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of :meth:`state`."""
        self.step = state["step"]
        for mean, stored in zip(self.mean, state["mean"], strict=True):
            mean.copy_(stored)


def write_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """Write weights atomically as safetensors, with their checksum.

    Reading this format cannot run code.
    """
    tensors = {name: weight.detach().to("cpu", copy=False).contiguous()
               for name, weight in weights.items()}
    write_atomic(path, lambda file: file.write(save(tensors, {CHECKSUM_KEY: _checksum(tensors)})))


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the weights in a safetensors file to the CPU.

    Raises:
        UserError: the file is missing, or differs from what was written.
    """
    try:
        content = read_regular(path)
        weights = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise UserError(f"{path}: cannot be read as weights: {error}",
                        code="damaged-weights") from None
    if header.get("__metadata__", {}).get(CHECKSUM_KEY) != _checksum(weights):
        raise UserError(f"{path}: the checksum of the weights is wrong. Restore the file, or train "
                        "again", code="damaged-weights")
    return weights


def _checksum(weights: dict[str, Tensor]) -> str:
    state = hashlib.blake2b(digest_size=16)
    for name, weight in sorted(weights.items()):
        state.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        state.update(weight.flatten().view(torch.uint8).numpy().data)
    return state.hexdigest()
