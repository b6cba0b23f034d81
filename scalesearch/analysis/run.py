"""All measures of one trained model on one sample of sentences."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch

from scalesearch.analysis.activations import FFNRow, ffn_probes
from scalesearch.analysis.groups import (
    GradientAnalysis,
    LoadAnalysis,
    compute_gradients,
    compute_loads,
)
from scalesearch.analysis.heads import HeadRow, head_probes
from scalesearch.analysis.probes import Probe, TokenMasks, attached_probes
from scalesearch.analysis.tokens import TokenRow, token_probes
from scalesearch.blocks.core import Block
from scalesearch.data import Split, eval_batches
from scalesearch.nn import Seq2SeqModel
from scalesearch.training import Recipe
from scalesearch.training.hardware import Hardware
from scalesearch.training.scoring.evaluate import retry_with_smaller_batches
from scalesearch.training.updates.engine import Engine

BATCH_TOKENS = 4096  # tokens of the longer side of a batch, with padding


@dataclass(frozen=True)
class Analysis:
    """Measures of a model."""

    heads: list[HeadRow]
    tokens: list[TokenRow]
    ffn: list[FFNRow]
    load: LoadAnalysis
    gradients: GradientAnalysis

    def tables(self) -> dict[str, list[Any]]:
        """Return rows by the name of their file."""
        return {"heads": self.heads, "tokens": self.tokens, "ffn": self.ffn,
                "load": self.load.groups, "gradients": self.gradients.groups}


def analyze_model(model: Seq2SeqModel, block: Block, split: Split, recipe: Recipe) -> Analysis:
    """Measure ``model`` on the pairs of ``split``, in fp32 and without dropout.

    Args:
        block: the block that ``model`` was built from.
        recipe: determines the label smoothing of the loss, and the device.
    """
    fp32_recipe = recipe.replace(precision="fp32", compile="no")
    hardware = Hardware.from_recipe(fp32_recipe)
    model.eval().to(hardware.device).set_attention(hardware.attention_kernel)

    def run_probes(max_tokens: int) -> list[list[Any]]:
        probes: list[Sequence[Probe]] = [head_probes(model), token_probes(model), ffn_probes(model)]
        masks = TokenMasks()
        with attached_probes(chain(*probes), masks), torch.no_grad():
            for batch in eval_batches(split, max_tokens):
                masks.run_model(model, hardware.to_device(batch.source),
                                hardware.to_device(batch.target_in))
        return [[probe.row() for probe in probes_of_type] for probes_of_type in probes]

    heads, tokens, ffn = retry_with_smaller_batches(run_probes, BATCH_TOKENS)
    gradients = retry_with_smaller_batches(
        lambda max_tokens: compute_gradients(Engine(model, fp32_recipe, hardware), split,
                                             recipe.label_smoothing, max_tokens), BATCH_TOKENS)
    return Analysis(heads, tokens, ffn, compute_loads(block), gradients)


def take_sentences(split: Split, sentences: int) -> Split:
    """Return the first ``sentences`` pairs, or windows of a text."""
    first = np.arange(min(sentences, len(split)))
    part = copy.copy(split)
    part.source_ids = split.source_ids.take(first)
    part.target_ids = split.target_ids.take(first)
    return part
