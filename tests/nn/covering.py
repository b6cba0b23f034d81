"""Choices among random networks that cover pairs of answers."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from random import Random
from typing import Any

from scalesearch.blocks.core import iterate_cost_lines
from scalesearch.blocks.sublayers import SUBLAYERS
from scalesearch.space.assembly.architecture import ENCODER_ONLY_PREFIXES, ModelSpec
from scalesearch.testing import random_architecture

POOL = 8  # draws for each network that is chosen
CALLS = 100  # leaves that take as long as what a check does besides


def covering(rng: Random, count: int, **fixed: Any) -> list[ModelSpec]:
    """Choose ``count`` random networks in which most pairs of answers occur.

    Few networks then show faults that need two answers (Kuhn et al. 2004, combinatorial testing). A
    network is worth the new pairs that it brings, over the leaves that it calls.
    """
    pool = [random_architecture(rng, **fixed) for _ in range(POOL * count)]
    fresh = [pairs(architecture.config) for architecture in pool]
    calls = [CALLS + sum(line.calls for line in iterate_cost_lines(architecture.block, vocab=8))
             for architecture in pool]
    chosen: list[ModelSpec] = []
    for _ in range(count):
        best = max(range(len(pool)), key=lambda at: len(fresh[at]) / calls[at])
        met = fresh[best]
        chosen.append(pool[best])
        fresh = [each - met for each in fresh]
    return chosen


def pairs(answers: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Pairs of answers that decide a structure, except encoder with decoder."""
    texts = list(words(answers))
    apart = {("encoder", "decoder"), ("decoder", "encoder")}
    return {(one, other)
            for one, other in combinations(texts, 2) if (_stack(one), _stack(other)) not in apart}


def _stack(word: str) -> str:
    return word.removeprefix("share.").split(".")[0]


def words(answers: Mapping[str, Any]) -> Iterator[str]:
    """Answers that are words, flags or schedules, as texts; of sizes that may be off whether they are on."""
    only = answers["model"] == "decoder-only"
    for path, value in answers.items():
        if only and path.startswith(ENCODER_ONLY_PREFIXES):
            continue
        stack, _, key = path.removeprefix("share.").partition(".")
        if (word := key.partition(".")[0]) in SUBLAYERS and word not in str(
                answers[f"{stack}.sublayers"]):
            continue
        if key == "sublayers":
            yield from (f"{path}={word}" for word in SUBLAYERS if word in str(value))
        elif isinstance(value, str | bool | list):
            yield f"{path}={value}".split("(")[0].split("[")[0]
        elif path.startswith(("tensor_chain", "low_rank")) or path.endswith(
                ("key_value_heads", "middle_width")):
            yield f"{path}=on"
