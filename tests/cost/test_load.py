"""Load and balance of shared weights, compared with EdgeFormer."""

import pytest

from scalesearch.cost import evaluate_cost, find_protocol
from tests.architectures import transformer

EDGE = {
    "norm": "post",
    "decoder__interleaved": True,
    "decoder__ffn__hidden": 128,
    "share__encoder__attention": "cycle(4)",
    "share__decoder__self": "encoder.attention[2*i]",
    "share__decoder__cross": "encoder.attention[2*i + 1]",
    "share__decoder__ffn": "one",
}
ENCODER = {f"share__encoder__{part}": "one" for part in ("attention", "ffn")}
DECODER = {f"share__decoder__{part}": "one" for part in ("self", "cross", "ffn")}


@pytest.mark.parametrize(
    ("encoder", "decoder", "changes", "mean", "balance"),
    [(6, 6, {}, 1.0, 1.0), (6, 6, DECODER, 1.909, 0.495), (6, 6, ENCODER, 1.556, 0.495),
     (12, 2, DECODER, 1.1, 0.931), (12, 2, ENCODER, 4.0, 0.4),
     (12, 2, ENCODER | DECODER, 6.286, 0.617),
     (12, 2, EDGE | {"share__encoder__ffn": "load(6, 6)"}, 4.985, 0.961),
     (12, 2, EDGE | {"share__encoder__ffn": "cycle(3)", "encoder__ffn__hidden": 1536}, 4.0, 1.0),
     (12, 2, EDGE | {"share__encoder__ffn": "cycle(4)", "encoder__ffn__hidden": 1024}, 3.508,
      0.980), (12, 2, EDGE | {"share__encoder__ffn": "runs(1, 11)"}, 4.985, 0.651),
     (12, 2, EDGE | {"share__encoder__ffn": "load(6, 6)", "share__decoder__ffn": "own"}, 4.909,
      0.951)])
def test_load_and_balance_are_those_of_edgeformer(encoder, decoder, changes, mean, balance) -> None:
    breakdown = evaluate_cost(transformer(512, encoder, decoder, **changes).block,
                              find_protocol("edgeformer"))
    assert round(breakdown["load.mean"], 3) == mean
    assert round(breakdown["load.balance"], 3) == balance


def test_minimum_and_maximum_load() -> None:
    architecture = transformer(512, 12, 2, **EDGE, share__encoder__ffn="runs(1, 11)")
    breakdown = evaluate_cost(architecture.block, find_protocol())
    assert (breakdown["load.min"], breakdown["load.max"]) == (1.0, 11.0)
