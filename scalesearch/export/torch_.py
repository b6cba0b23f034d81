"""The format ``torch``: the training's folder as it is, which every verb of ours reads."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from scalesearch.blocks.core import Block
from scalesearch.data.split import BOS
from scalesearch.export.base import ArtifactDecoder, ExportFormat, RankedHypotheses
from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.decode import greedy_search
from scalesearch.train.checkpoint import Checkpoint, read_checkpoint
from scalesearch.train.scoring.evaluate import DecodingOptions


class TorchFormat(ExportFormat):
    """Architecture, tokenizer, recipe, data, weights, result and record."""

    name = "torch"
    has_decoder = False

    def unsupported_reasons(self, block: Block) -> list[str]:
        return []

    def write(self, trained: Checkpoint, folder: Path, quantization: str) -> None:
        assert trained.folder is not None
        shutil.copytree(trained.folder, folder, ignore=shutil.ignore_patterns(".*", "progress.*"),
                        dirs_exist_ok=True)

    def open_decoder(self, folder: Path, threads: int) -> ArtifactDecoder:
        return TorchDecoder(read_checkpoint(folder).model)


class TorchDecoder(ArtifactDecoder):
    """Our own search, in the type of the model's weights."""

    def __init__(self, model: object) -> None:
        self.model = model

    def greedy(self, source_ids: list[list[int]], max_lengths: list[int]) -> list[list[int]]:
        return greedy_search(self.model, _padded(source_ids), torch.tensor(max_lengths)).best_ids()

    def beam_search(self, rows: list[list[int]], limits: list[int],
                    search: DecodingOptions) -> list[RankedHypotheses]:
        found = beam_search(self.model, _padded(rows), search.beam, search.length_penalty,
                            torch.tensor(limits), search.n_best)
        return [[(ids, score) for ids, score in row] for row in found.ranked()]

    def decode_fixed_length(self, rows: list[list[int]], length: int, beam: int) -> None:
        # With an end that is never chosen, a search takes a step more than its limit.
        if beam == 1:
            greedy_search(self.model, _padded(rows), length - 1, eos=BOS)
        else:
            beam_search(self.model, _padded(rows), beam, 1.0, length - 1, eos=BOS)


def _padded(rows: list[list[int]]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)

