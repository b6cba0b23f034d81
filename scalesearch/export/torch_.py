"""Export format ``torch``: a copy of the training folder."""

from __future__ import annotations

from pathlib import Path

import torch

from scalesearch.blocks.core import BOS
from scalesearch.errors import UserError
from scalesearch.export.base import ArtifactDecoder, ExportFormat, RankedHypotheses
from scalesearch.files import copy_files
from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.decode import greedy_search
from scalesearch.training.checkpoint import (
    DESCRIPTION_FILES,
    WEIGHTS_FILE,
    Checkpoint,
    read_checkpoint,
)
from scalesearch.training.result import RESULT_FILE
from scalesearch.training.scoring.evaluate import DecodingOptions

TRAINING_FILES = (*DESCRIPTION_FILES, WEIGHTS_FILE, RESULT_FILE, "record.json")


class TorchFormat(ExportFormat):
    """Files of a finished training run, and the record of a trial."""

    name = "torch"
    has_decoder = False

    def write(self, trained: Checkpoint, folder: Path, quantization: str) -> None:
        assert trained.folder is not None
        if left := copy_files(trained.folder, folder, include=TRAINING_FILES):
            raise UserError(f"{trained.folder}: files cannot be copied: {'; '.join(left)}",
                            code="cannot-copy")

    def open_decoder(self, folder: Path, threads: int) -> ArtifactDecoder:
        return TorchDecoder(read_checkpoint(folder).model)


class TorchDecoder(ArtifactDecoder):
    """Decoder that searches with PyTorch, in the data type of the weights."""

    def __init__(self, model: object) -> None:
        self.model = model

    def greedy(self, source_ids: list[list[int]], max_lengths: list[int],
               allow_unk: bool = False) -> list[list[int]]:
        return greedy_search(self.model, _pad(source_ids), torch.tensor(max_lengths),
                             allow_unk=allow_unk).best_ids()

    def beam_search(self, source_ids: list[list[int]], max_lengths: list[int],
                    search: DecodingOptions) -> list[RankedHypotheses]:
        hypotheses = beam_search(self.model, _pad(source_ids), search.beam, search.length_penalty,
                                 torch.tensor(max_lengths), search.n_best,
                                 allow_unk=search.allow_unk)
        return [[(ids, score) for ids, score in row] for row in hypotheses.ranked()]

    def language_model(self) -> object:
        return self.model

    def decode_fixed_length(self, source_ids: list[list[int]], length: int, beam: int) -> None:
        # BOS is never generated. With BOS as the end, a search takes one step more than its limit.
        if beam == 1:
            greedy_search(self.model, _pad(source_ids), length - 1, eos=BOS)
        else:
            beam_search(self.model, _pad(source_ids), beam, 1.0, length - 1, eos=BOS)


def _pad(sequences: list[list[int]]) -> torch.Tensor:
    tensors = [torch.tensor(ids) for ids in sequences]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)

