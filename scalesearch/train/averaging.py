"""Averaging of weights from several moments of a run (Popel & Bojar 2018, section 4.10)."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from scalesearch.files import write_atomic
from scalesearch.train.recipe import Recipe

FOLDER = "snapshots"


@dataclass
class Snapshot:
    """Snapshot of the weights after ``step`` updates; a lower ``score`` is better."""

    step: int
    score: float = 0.0


class Snapshots:
    """Snapshots of the last or best few moments, one safetensors file each; checkpoints store ``kept``."""

    def __init__(self, directory: Path, recipe: Recipe) -> None:
        self.folder = directory / FOLDER
        self.kind, self.count = recipe.average, recipe.average_count
        self.kept: list[Snapshot] = []

    def add(self, model: nn.Module, step: int, score: float = 0.0) -> None:
        """Keeps the current weights, unless ``count`` better (or of equal score, newer) ones exist."""
        if any(snapshot.step == step for snapshot in self.kept):
            return
        rank = (lambda s: (s.score, -s.step)) if self.kind == "best" else (lambda s: -s.step)
        kept = sorted([*self.kept, Snapshot(step, score)], key=rank)[: self.count]
        if any(snapshot.step == step for snapshot in kept):
            write_weights(self._file(step), model.state_dict())
        self.kept = kept

    def mean(self) -> dict[str, Tensor]:
        """Mean of the kept weights, summed in fp32; tied weights stay tied."""
        total: dict[str, Tensor] = {}
        for snapshot in self.kept:
            for name, weight in read_weights(self._file(snapshot.step)).items():
                total[name] = total[name] + weight.float() if name in total else weight.float()
        return {name: weight / len(self.kept) for name, weight in total.items()}

    def sweep(self) -> None:
        """Deletes files that are not kept. Call it after writing a checkpoint that does not name them."""
        kept = {self._file(snapshot.step) for snapshot in self.kept}
        for file in self.folder.glob("*.safetensors"):
            if file not in kept:
                file.unlink(missing_ok=True)

    def clear(self) -> None:
        """Deletes all snapshots."""
        self.kept = []
        self.sweep()
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _file(self, step: int) -> Path:
        return self.folder / f"{step:08d}.safetensors"


def write_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """Writes weights atomically as safetensors, a format that cannot run code when read."""
    plain = {name: weight.detach().to("cpu", copy=False).contiguous() for name, weight in weights.items()}
    write_atomic(path, lambda file: file.write(save(plain)))


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Reads the weights in a safetensors file, onto the CPU."""
    return load(path.read_bytes())
