"""Untrained models as checkpoints, for tests of formats."""

from random import Random
from typing import Any

import torch

from scalesearch.blocks.core import EOS
from scalesearch.data import DataSpec
from scalesearch.export.calibration import PlaceholderVocabulary
from scalesearch.nn import build_model
from scalesearch.nn.decode import length_limits
from scalesearch.spaces.assembly.architecture import ModelSpec, assemble
from scalesearch.training.checkpoint import Checkpoint
from scalesearch.training.recipe import Recipe
from tests.architectures import transformer_config

VOCAB = 60
LONGEST = 12


def architecture(**changes: Any) -> ModelSpec:
    """A tiny architecture whose stacks differ in size."""
    small = {"encoder__heads": 4, "encoder__score_heads": 4, "encoder__head_dim": 3,
             "decoder__ffn__hidden": 12}
    return assemble(transformer_config(**(small | changes)))


def untrained(chosen: ModelSpec, ends: float = 4.0) -> Checkpoint:
    """A checkpoint with random, non-constant weights that gives distinct translations."""
    model = build_model(chosen.block, vocab=VOCAB).eval()
    rng = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5).add_(0.3 * torch.randn(weight.shape, generator=rng)
                                  * (weight.dim() == 1))
            if weight.shape[0] == VOCAB:
                weight[EOS].mul_(ends)  # so that some end, each at a step of its own
    data = DataSpec(builtin="grammar", max_length=LONGEST)
    return Checkpoint(model, PlaceholderVocabulary(VOCAB), chosen,  # type: ignore[arg-type]
                      data, Recipe(steps=1))


def sentences(count: int) -> list[list[int]]:
    """Random source ids that end with EOS."""
    rng = Random(3)
    return [[*rng.choices(range(4, VOCAB), k=rng.randint(1, LONGEST)), EOS] for _ in range(count)]


def most(trained: Checkpoint, rows: list[list[int]]) -> list[int]:
    """Maximum lengths of translations of ``rows``."""
    padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    limits: list[int] = length_limits(trained.model, padded).tolist()
    return limits
