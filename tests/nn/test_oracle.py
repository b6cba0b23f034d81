"""The bill against independent counters: equal to the unit, for every block and for whole models."""

from collections.abc import Iterator
from random import Random

import pytest

from scalesearch.blocks.core import Line
from scalesearch.blocks.scores import RESIDUAL_SCORES
from scalesearch.blocks.seq2seq import TYINGS
from scalesearch.blocks.solvers import SOLVERS
from scalesearch.cost import ledger
from scalesearch.nn.verify import verify
from scalesearch.space.assembly.architecture import Architecture
from scalesearch.testing import CATALOGUE, check_bill, check_columns, check_model, covering, random_architecture
from scalesearch.testing.draws import words

SCHEDULES = ["own", "one", "cycle", "sequence", "reverse_cycle", "sandwich", "runs", "load"]
WORDS = {
    "share.encoder.attention": SCHEDULES,
    "share.decoder.self": [*SCHEDULES, "encoder.attention"],
    "share.decoder.ffn": SCHEDULES,
    "embedding.tie": TYINGS,
    "embedding": ["plain", "factorised", "h-softpos", "adaptive"],
    "norm": ["pre", "post"],
    "model": ["encoder-decoder", "decoder-only"],
    "adapt": ["nothing", "bias", "lora", "prompt"],
    "encoder.solver": list(SOLVERS),
    "encoder.pg": ["none", "relu", "swiglu"],
    "decoder.residual_scores": RESIDUAL_SCORES,
    "encoder.middle_width": ["on"],
    "low_rank.ffn": ["on", "off"],
    "tensor_chain.output": ["on", "off"],
}


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.parametrize("kernel", ["fused", "products"])
def test_block_costs_what_pytorch_counts(name: str, kernel: str) -> None:
    for seed in range(6):
        check_bill(CATALOGUE[name](Random(seed)), kernel)


@pytest.mark.parametrize("name", CATALOGUE)
def test_block_costs_the_same_with_arrays_for_sizes(name: str) -> None:
    for seed in range(6):
        check_columns(CATALOGUE[name](Random(seed)).block)


def chosen() -> Iterator[Architecture]:
    """Networks of all families, few and chosen so that most pairs of answers meet in one."""
    yield from covering(Random(1), 34, model="encoder-decoder")
    yield from covering(Random(1), 8, model="decoder-only")


def drawn(count: int) -> Iterator[Architecture]:
    """Networks of all families, as they come."""
    rng = Random(20260)
    yield from (random_architecture(rng) for _ in range(count))


@pytest.mark.parametrize("models", [chosen(), pytest.param(drawn(1000), marks=pytest.mark.slow)],
                         ids=["chosen", "drawn"])
def test_random_models_of_all_families(models: Iterator[Architecture]) -> None:
    """Drawn from spaces/slim.yaml at small sizes, with any sharing and loans besides."""
    seen: set[str] = set()
    for seed, architecture in enumerate(models):
        seen |= set(words(architecture.answers))
        check_model(architecture, seed)
    for path, found in WORDS.items():
        assert not [word for word in found if f"{path}={word}" not in seen], path


@pytest.mark.parametrize("count", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_fvcore_agrees_once_its_norms_are_taken_off(count: int) -> None:
    rng = Random(7)
    for architecture in covering(rng, count, encoder__depth=1, decoder__depth=1):
        for check in verify(architecture.block, rng.randint(1, 6), rng.randint(1, 6), rng.randint(4, 20)):
            assert check.agrees, (check, architecture.answers)


def test_a_bill_that_departs_from_the_forward_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle can fail: a bill of one call too many is seen by it."""
    walk = ledger.walk
    monkeypatch.setattr(ledger, "walk", lambda *args, **kwargs: (
        Line(line.path, line.leaf, line.calls + 1, line.copies) for line in walk(*args, **kwargs)))
    with pytest.raises(AssertionError):
        check_bill(CATALOGUE["linear"](Random(1)))
