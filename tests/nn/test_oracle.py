"""Costs compared with independent counters, exactly, for all blocks and whole models."""

from dataclasses import replace
from functools import cache
from random import Random

import pytest

from scalesearch.blocks.embedding import POSITION_TYPES
from scalesearch.blocks.mixers import MIXERS
from scalesearch.blocks.mixers.composites import JOIN_MODES
from scalesearch.blocks.mixers.scores import RESIDUAL_SCORES
from scalesearch.blocks.seq2seq import TYING_MODES
from scalesearch.blocks.stacks import SOLVERS
from scalesearch.blocks.sublayers import SUBLAYERS
from scalesearch.cost import breakdown
from scalesearch.nn.verify import verify_costs
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.testing import (
    check_costs,
    check_model,
    check_population_costs,
    random_architecture,
)
from tests.blocks.catalog import CATALOG
from tests.nn.covering import covering, words

SCHEDULES = ["own", "one", "cycle", "sequence", "reverse_cycle", "sandwich", "runs", "load"]
WORDS = {
    "share.encoder.attention": SCHEDULES,
    "share.decoder.self": [*SCHEDULES, "encoder.attention"],
    "share.decoder.ffn": SCHEDULES,
    "embedding.tie": TYING_MODES,
    "embedding": ["plain", "factorised", "attentive", "h-softpos", "adaptive"],
    "embedding.positions": POSITION_TYPES,
    "norm": ["pre", "post"],
    "residual_after_norm": ["True"],
    **{f"{stack}.{key}": [value] for stack in ("encoder", "decoder")
       for key, value in (("ffn", "mixture"), ("alibi_scaled", "True"))},
    "model": ["encoder-decoder", "decoder-only", "encoder-only"],
    "adapt": ["nothing", "bias", "lora", "prompt"],
    "encoder.solver": list(SOLVERS),
    "encoder.pg": ["none", "relu", "swiglu"],
    "decoder.residual_scores": RESIDUAL_SCORES,
    "encoder.middle_width": ["on"],
    "decoder.middle_width": ["on"],
    "low_rank.ffn": ["on", "off"],
    "tensor_chain.output": ["on", "off"],
    "encoder.sublayers": list(SUBLAYERS),
    "decoder.sublayers": list(SUBLAYERS),
    "encoder.mixer": list(MIXERS),
    "decoder.mixer": list(MIXERS),
    "encoder.local": ["none", *(name for name in MIXERS if not MIXERS[name].has_scores)],
    "decoder.local.join": JOIN_MODES,
}


@pytest.mark.parametrize("name", CATALOG)
@pytest.mark.parametrize("kernel", ["fused", "products"])
def test_block_costs_equal_pytorch_counters(name: str, kernel: str) -> None:
    for seed in range(6):
        check_costs(CATALOG[name](Random(seed)), kernel)


@pytest.mark.parametrize("name", CATALOG)
def test_block_costs_are_equal_for_populations(name: str) -> None:
    for seed in range(6):
        check_population_costs(CATALOG[name](Random(seed)).block)


@cache
def covering_networks() -> list[ModelSpec]:
    """Networks of all families that cover most pairs of values."""
    return [*covering(Random(6), 34, model="encoder-decoder"),
            *covering(Random(6), 8, model="decoder-only"),
            *covering(Random(6), 6, model="encoder-only")]


@pytest.mark.full
@pytest.mark.all_instances
@pytest.mark.parametrize("part", range(12), ids="part-{}".format)
def test_covering_networks_pass_all_checks(part: int) -> None:
    for seed, architecture in list(enumerate(covering_networks()))[part::12]:
        check_model(architecture, seed)


@pytest.mark.full
def test_covering_networks_have_all_values() -> None:
    values = {word for architecture in covering_networks() for word in words(architecture.config)}
    for path, expected in WORDS.items():
        assert not [word for word in expected if f"{path}={word}" not in values], path


@pytest.mark.slow
def test_random_networks_pass_all_checks() -> None:
    rng = Random(20260)
    for seed in range(1000):
        check_model(random_architecture(rng), seed)


@pytest.mark.parametrize("count", [2, pytest.param(5, marks=pytest.mark.full),
                                   pytest.param(50, marks=pytest.mark.slow)])
def test_costs_equal_fvcore_without_norms(count: int) -> None:
    rng = Random(7)
    for architecture in covering(rng, count, encoder__depth=1, decoder__depth=1):
        for check in verify_costs(architecture.block, rng.randint(1, 6), rng.randint(1, 6),
                                  rng.randint(4, 20)):
            assert check.is_equal, (check, architecture.config)


def test_wrong_costs_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cost with one additional call fails the check."""
    walk = breakdown.iterate_cost_lines
    monkeypatch.setattr(breakdown, "iterate_cost_lines", lambda *args, **kwargs: (
        replace(line, calls=line.calls + 1) for line in walk(*args, **kwargs)))
    with pytest.raises(AssertionError):
        check_costs(CATALOG["linear"](Random(1)))
