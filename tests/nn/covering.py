"""Few random networks that cover most pairs of parameter values."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from random import Random
from typing import Any

from scalesearch.blocks.core import iterate_cost_lines
from scalesearch.blocks.sublayers import SUBLAYERS
from scalesearch.spaces.assembly.architecture import UNUSED_PREFIXES, ModelSpec
from scalesearch.testing import random_architecture

POOL = 8  # sampled networks per chosen network
VALUE = 500  # weight of a new value, in pairs
CALLS = 100  # constant part of the time of a check, in calls of leaves


def covering(rng: Random, count: int, **fixed: Any) -> list[ModelSpec]:
    """Choose ``count`` random networks in which most pairs of values occur.

    Few networks then show faults that need two values (Kuhn et al. 2004, combinatorial testing).
    The choice is greedy: most new pairs per called leaf. A new value counts as many pairs, so that
    every value of the pool occurs.
    """
    pool = [random_architecture(rng, **fixed) for _ in range(POOL * count)]
    new_pairs = [pairs(architecture.config) for architecture in pool]
    new_words = [set(words(architecture.config)) for architecture in pool]
    calls = [CALLS + sum(line.calls for line in iterate_cost_lines(architecture.block, vocab=8))
             for architecture in pool]
    chosen: list[ModelSpec] = []
    for _ in range(count):
        best = max(range(len(pool)), key=lambda index: (
            len(new_pairs[index]) + VALUE * len(new_words[index])) / calls[index])
        met_pairs, met_words = new_pairs[best], new_words[best]
        chosen.append(pool[best])
        new_pairs = [pairs_of_network - met_pairs for pairs_of_network in new_pairs]
        new_words = [words_of_network - met_words for words_of_network in new_words]
    return chosen


def pairs(config: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Pairs of values that determine the structure, except pairs of encoder and decoder."""
    texts = list(words(config))
    across_stacks = {("encoder", "decoder"), ("decoder", "encoder")}
    return {(first, second)
            for first, second in combinations(texts, 2)
            if (_stack(first), _stack(second)) not in across_stacks}


def _stack(word: str) -> str:
    return word.removeprefix("share.").split(".")[0]


def words(config: Mapping[str, Any]) -> Iterator[str]:
    """Values that are words, flags or schedules, as texts; optional sizes only as ``on``."""
    for path, value in config.items():
        if path.startswith(UNUSED_PREFIXES[config["model"]]):
            continue
        stack, _, key = path.removeprefix("share.").partition(".")
        word = key.partition(".")[0]
        if word in SUBLAYERS and word not in str(config[f"{stack}.sublayers"]):
            continue
        if key == "sublayers":
            yield from (f"{path}={word}" for word in SUBLAYERS if word in str(value))
        elif isinstance(value, str | bool | list):
            yield f"{path}={value}".split("(")[0].split("[")[0]
        elif path.startswith(("tensor_chain", "low_rank")) or path.endswith(
                ("key_value_heads", "middle_width")):
            yield f"{path}=on"
