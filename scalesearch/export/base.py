"""What a format of artefacts is, and what decodes one."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.data import Split, eval_batches, put_back
from scalesearch.errors import UserError
from scalesearch.library import install_command

if TYPE_CHECKING:
    from scalesearch.blocks.core import Block
    from scalesearch.train.checkpoint import Checkpoint
    from scalesearch.train.scoring.evaluate import Search, Translations

Ranked = list[tuple[list[int], float | None]]  # hypotheses of one sentence, the best first: ids, and a score if known


class Format(ABC):
    """A format of artefacts.

    Attributes:
        name: as ``--to`` takes it.
        quantisations: as ``--quantize`` takes them, the default first; ``none`` is float32.
        packages: that writing and opening need.
        extra: that installs them.
        decodes: whether an artefact is verified by its translations; else it holds the very weights.
    """

    name: str
    quantisations: tuple[str, ...] = ("none",)
    packages: tuple[str, ...] = ()
    extra = "export"
    decodes = True

    @abstractmethod
    def refusals(self, block: Block) -> list[str]:
        """The reasons why it cannot hold this architecture; none if it can. Needs no package."""

    @abstractmethod
    def write(self, trained: Checkpoint, folder: Path, quantise: str) -> None:
        """Writes its files into the empty ``folder``."""

    @abstractmethod
    def open(self, folder: Path, threads: int) -> Decoder:
        """Opens what :meth:`write` wrote."""

    def versions(self) -> dict[str, str]:
        """Versions of its packages. Raises UserError where one is missing."""
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                raise UserError(f"{self.name} needs {package}, which is not installed: "
                                f"{install_command(self.extra)}", code="package-missing")
        return {package: version(package) for package in self.packages}


class Decoder(ABC):
    """An artefact that decodes.

    ``rows`` are source ids as an encoder reads them, EOS last and without padding; a translation has neither BOS nor
    EOS, and at most its ``limits``' number of tokens. PAD and BOS are never chosen.

    Attributes:
        note: what on this machine makes its translations worse than elsewhere; empty if nothing does.
        computed: type of its products on this machine, where the runtime chooses it; else empty.
    """

    note = computed = ""

    @abstractmethod
    def greedy(self, rows: list[list[int]], limits: list[int]) -> list[list[int]]:
        """The likeliest token at each step, as :func:`scalesearch.nn.decode.greedy` chooses it."""

    @abstractmethod
    def beam(self, rows: list[list[int]], limits: list[int], search: Search) -> list[Ranked]:
        """The ``search.nbest`` best of a beam search."""

    @abstractmethod
    def forced(self, rows: list[list[int]], length: int, beam: int) -> None:
        """Decodes exactly ``length`` tokens of each row, EOS or not: what is timed."""

    def decode(self, split: Split, model: Any, search: Search) -> list[Ranked]:
        """Ids and scores of each source sentence's translations, in the split's order.

        Args:
            model: that it stands for, of which the limits are; its weights are not read.
        """
        import torch

        from scalesearch.nn.decode import limits

        batches = eval_batches(split, max(1, search.tokens * 2 // (search.beam + 1)))
        found: list[list[Ranked]] = []
        for batch in batches:
            model.check_length(batch.source.shape[1])
            rows = [row[row > 0].tolist() for row in batch.source]
            most = limits(model, torch.from_numpy(batch.source)).tolist()
            if search.beam == 1:
                found.append([[(ids, None)] for ids in self.greedy(rows, most)])
            else:
                found.append(self.beam(rows, most, search))
        return put_back(batches.plan, found)

    def translate(self, split: Split, trained: Checkpoint, search: Search) -> list[Translations]:
        """The translations of each source sentence, detokenised, in the split's order."""
        rows = self.decode(split, trained.model, search)
        texts = iter(trained.tokenizer.decode(ids for row in rows for ids, _ in row))
        return [[(next(texts), score) for _, score in row] for row in rows]
