"""Costs of published models beyond the rows of their tables, which are in tests/reference."""

from dataclasses import replace

import pytest

from scalesearch.cost import evaluate_cost, find_protocol
from tests.architectures import transformer

EDGEFORMER = {"decoder.interleaved": True, "decoder.ffn.hidden": 128,
              "share.encoder.attention": "cycle(4)", "share.encoder.ffn": "load(6, 6)",
              "share.decoder.self": "encoder.attention[2*i]",
              "share.decoder.cross": "encoder.attention[2*i + 1]", "share.decoder.ffn": "one"}


def test_costs_of_edgeformer_are_exact() -> None:
    """8,519,680 weights of matrices, 13,952 biases and 30,720 parameters of norms."""
    block = transformer(512, 12, 2, **EDGEFORMER).block
    breakdown = evaluate_cost(block, find_protocol("edgeformer"))
    assert breakdown["params.non_embedding"] == 8_519_680 + 13_952 + 30_720 == 8_564_352
    assert breakdown["params.embedding"] == 32768 * 512
    assert breakdown["params.output"] == 0
    assert breakdown["macs.output"] == 30 * 512 * 32768


@pytest.mark.parametrize(("protocol", "giga"), [("forward", "1.7921"), ("decode", "1.7912")])
def test_cached_decoding_of_edgeformer_needs_fewer_macs(protocol: str, giga: str) -> None:
    """T(T + 1)/2 instead of T² products of self-attention."""
    block = transformer(512, 12, 2, **EDGEFORMER).block
    breakdown = evaluate_cost(block, find_protocol(protocol, 30, 30, 32768))
    assert f"{breakdown['macs.total'] / 1e9:.4f}" == giga


def test_macs_of_delight_equal_the_closed_form() -> None:
    """N[4SD + 2S²d + SF] + M[6·τ₁D + 2TSD + 2·τ₂d + 2·τ₁Sd + τ₁F] + τ₁Vd.

    D and F include biases.
    """
    n = 5
    m = 3
    d = 64
    s = 13
    t = 9
    v = 101
    tau1 = t * (t + 1) // 2
    tau2 = t * (t + 1) * (2 * t + 1) // 6
    big_d = d * d + d
    big_f = (d * 4 * d + 4 * d) + (4 * d * d + d)
    encoder = n * (4 * s * big_d + 2 * s * s * d + s * big_f)
    decoder = m * (6 * tau1 * big_d + 2 * t * s * big_d + 2 * tau2 * d + 2 * tau1 * s * d
                   + tau1 * big_f)
    block = transformer(d, n, m, norm="pre").block
    breakdown = evaluate_cost(block, find_protocol("delight", s, t, v))
    assert breakdown["macs.total"] == encoder + decoder + tau1 * v * d


@pytest.mark.parametrize(("shape", "giga"), [((512, 6, 6), "1.237"), ((360, 24, 6), "1.252")])
def test_macs_of_cached_decoding(shape: tuple[int, int, int], giga: str) -> None:
    """With a key-value cache and with biases, the models rank in the other order."""
    cached = replace(find_protocol("decode", 20, 20, 34040), work_weights={"mac": 1, "bias": 1})
    breakdown = evaluate_cost(transformer(*shape, norm="pre").block, cached)
    assert f"{breakdown['macs.total'] / 1e9:.3f}" == giga
