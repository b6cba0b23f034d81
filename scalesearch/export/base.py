"""What a format of artifacts is, and what decodes one."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.data import Split, eval_batches, restore_order
from scalesearch.errors import UserError
from scalesearch.library import install_command

if TYPE_CHECKING:
    from scalesearch.blocks.core import Block
    from scalesearch.train.checkpoint import Checkpoint
    from scalesearch.train.scoring.evaluate import DecodingOptions, Translations

# hypotheses of one sentence, the best first: ids, and a score if known
RankedHypotheses = list[tuple[list[int], float | None]]


class ExportFormat(ABC):
    """A format of artifacts.

    Attributes:
        name: as ``--to`` takes it.
        quantizations: as ``--quantize`` takes them, the default first; ``none`` is float32.
        packages: that writing and opening need.
        install_extra: that installs them.
        has_decoder: whether an artifact is verified by its translations; else it holds the very
            weights.
    """

    name: str
    quantizations: tuple[str, ...] = ("none",)
    packages: tuple[str, ...] = ()
    install_extra = "export"
    has_decoder = True

    @abstractmethod
    def unsupported_reasons(self, block: Block) -> list[str]:
        """The reasons why it cannot hold this architecture; none if it can. Needs no package."""

    @abstractmethod
    def write(self, trained: Checkpoint, folder: Path, quantization: str) -> None:
        """Writes its files into the empty ``folder``."""

    @abstractmethod
    def open_decoder(self, folder: Path, threads: int) -> ArtifactDecoder:
        """Opens what :meth:`write` wrote."""

    def package_versions(self) -> dict[str, str]:
        """Versions of its packages. Raises UserError where one is missing."""
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                raise UserError(f"{self.name} needs {package}, which is not installed: "
                                f"{install_command(self.install_extra)}", code="package-missing")
        return {package: version(package) for package in self.packages}


class ArtifactDecoder(ABC):
    """An artifact that decodes.

    ``rows`` are source ids as an encoder reads them, EOS last and without padding; a translation
    has neither BOS nor EOS, and at most its ``limits``' number of tokens. PAD and BOS are never
    chosen.

    Attributes:
        accuracy_note: what on this machine makes its translations worse than elsewhere; empty if
            nothing does.
        compute_type: type of its products on this machine, where the runtime chooses it; else
            empty.
    """

    accuracy_note = compute_type = ""

    @abstractmethod
    def greedy(self, source_ids: list[list[int]], max_lengths: list[int]) -> list[list[int]]:
        """The likeliest token at each step, as :func:`scalesearch.nn.decode.greedy_search` chooses it."""

    @abstractmethod
    def beam_search(self, rows: list[list[int]], limits: list[int],
                    search: DecodingOptions) -> list[RankedHypotheses]:
        """The ``search.nbest`` best of a beam search."""

    @abstractmethod
    def decode_fixed_length(self, rows: list[list[int]], length: int, beam: int) -> None:
        """Decodes exactly ``length`` tokens of each row, EOS or not: what is timed."""

    def decode(self, split: Split, model: Any, search: DecodingOptions) -> list[RankedHypotheses]:
        """Ids and scores of each source sentence's translations, in the split's order.

        Args:
            model: that it stands for, of which the limits are; its weights are not read.
        """
        import torch

        from scalesearch.nn.decode import length_limits

        batches = eval_batches(split, max(1, search.batch_tokens * 2 // (search.beam + 1)))
        found: list[list[RankedHypotheses]] = []
        for batch in batches:
            model.check_length(batch.source.shape[1])
            rows = [row[row > 0].tolist() for row in batch.source]
            most = length_limits(model, torch.from_numpy(batch.source)).tolist()
            if search.beam == 1:
                found.append([[(ids, None)] for ids in self.greedy(rows, most)])
            else:
                found.append(self.beam_search(rows, most, search))
        return restore_order(batches.indices_by_batch, found)

    def translate(self, split: Split, trained: Checkpoint,
                  search: DecodingOptions) -> list[Translations]:
        """The translations of each source sentence, detokenized, in the split's order."""
        rows = self.decode(split, trained.model, search)
        texts = iter(trained.tokenizer.decode(ids for row in rows for ids, _ in row))
        return [[(next(texts), score) for _, score in row] for row in rows]
