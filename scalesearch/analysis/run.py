"""All measures of one trained model on one sample of sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch

from scalesearch.analysis.activations import FFNProbe, FFNRow, ffn_probes
from scalesearch.analysis.groups import GradientAnalysis, LoadRow, compute_gradients, compute_loads
from scalesearch.analysis.heads import HeadProbe, HeadRow, head_probes
from scalesearch.analysis.probes import TokenMasks, attached_probes
from scalesearch.analysis.tokens import TokenProbe, TokenRow, token_probes
from scalesearch.blocks.core import Block
from scalesearch.data import Split, eval_batches
from scalesearch.nn import Seq2SeqModel
from scalesearch.train import Recipe
from scalesearch.train.hardware import Hardware
from scalesearch.train.scoring.evaluate import retry_with_smaller_batches
from scalesearch.train.updates.engine import Engine

BATCH_TOKENS = 4096  # places of the wider side in a batch


@dataclass(frozen=True)
class Analysis:
    """What was found; ``load`` is the whole model's, ``loads`` the groups'."""

    heads: list[HeadRow]
    tokens: list[TokenRow]
    ffn: list[FFNRow]
    loads: list[LoadRow]
    load: Mapping[str, float]
    gradients: GradientAnalysis

    def tables(self) -> dict[str, list[Any]]:
        """The rows by the name that files have."""
        return {"heads": self.heads, "tokens": self.tokens, "ffn": self.ffn, "load": self.loads,
                "gradients": self.gradients.rows}

    def to_json(self) -> dict[str, Any]:
        """Rows by table, and the totals."""
        rows = {name: [asdict(row) for row in found] for name, found in self.tables().items()}
        load = {name.removeprefix("load."): value for name, value in self.load.items()}
        return {**rows, "load": {**load, "groups": rows["load"]},
                "gradients": {"loss": self.gradients.loss, "norm": self.gradients.norm,
                              "groups": rows["gradients"]}}


def analyze_model(model: Seq2SeqModel, block: Block, split: Split, recipe: Recipe) -> Analysis:
    """The measures of ``model``, made from ``block``, on the pairs of ``split``, in fp32 and without dropout.

    ``recipe``: the loss's label smoothing is that of the training, and the device is the one it
    asks for.
    """
    plain = replace(recipe, precision="fp32", compile="no")
    hardware = Hardware.from_recipe(plain)
    model.eval().to(hardware.device).set_attention(hardware.attention_kernel)
    heads, tokens, ffn = retry_with_smaller_batches(
        lambda max_tokens: _measure(model, split, hardware, max_tokens), BATCH_TOKENS)
    pull = retry_with_smaller_batches(
        lambda max_tokens: compute_gradients(Engine(model, plain, hardware), split,
                                             recipe.label_smoothing, max_tokens), BATCH_TOKENS)
    groups, load = compute_loads(block)
    return Analysis([probe.row() for probe in heads], [probe.row() for probe in tokens],
                    [probe.row() for probe in ffn], groups, load, pull)


def take_sentences(split: Split, sentences: int) -> Split:
    """The first ``sentences`` pairs, or windows of a text."""
    first = np.arange(min(sentences, len(split)))
    return Split(split.source_ids.take(first), split.target_ids.take(first), lambda: split.texts,
                 split.window_overlap)


def _measure(model: Seq2SeqModel, split: Split, hardware: Hardware, max_tokens: int
             ) -> tuple[list[HeadProbe], list[TokenProbe], list[FFNProbe]]:
    probes = head_probes(model), token_probes(model), ffn_probes(model)
    real = TokenMasks()
    with attached_probes(chain(*probes), real), torch.no_grad():
        for batch in eval_batches(split, max_tokens):
            real.run_model(model, hardware.to_device(batch.source),
                           hardware.to_device(batch.target_in))
    return probes
