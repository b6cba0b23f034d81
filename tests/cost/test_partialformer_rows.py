"""Transformer rows of the tables of PartialFormer, under the ``delight`` protocol.

The models are pre-norm, with one embedding table and 8 heads.
"""

import pytest

from scalesearch.cost import evaluate_cost, find_protocol
from tests.architectures import transformer

EN_DE = 34040
EN_FR = 37288
EN_RO = 19064


def pre_norm(width: int, encoder: int, decoder: int, **changes):
    return transformer(width, encoder, decoder, **{"norm": "pre", **changes})


def no_ffn(width: int, encoder: int, decoder: int):
    from scalesearch.spaces.assembly.architecture import assemble

    config = dict(pre_norm(width, encoder, decoder).config)
    for stack in ("encoder", "decoder"):
        del config[f"{stack}.ffn.hidden"]
        config[f"{stack}.ffn"] = "none"
    return assemble(config)


PARAMS = {"T1 24-6 d512": (pre_norm(512, 24, 6), EN_DE, "118.312"),
          "T1 6-6 d512": (pre_norm(512, 6, 6), EN_DE, "61.569"),
          "T1 24-6 d360": (pre_norm(360, 24, 6), EN_DE, "62.176"),
          "T2 24 d512": (pre_norm(512, 24, 6), EN_FR, "119.975"),
          "T2 6 d512": (pre_norm(512, 6, 6), EN_FR, "63.232"),
          "T2 24 d360": (pre_norm(360, 24, 6), EN_FR, "63.345"),
          "T3 24 d512": (pre_norm(512, 24, 6), EN_RO, "110.644"),
          "T6 6-6 d512": (pre_norm(512, 6, 6), 33000, "61.037"),
          "T7 pure attention": (no_ffn(360, 24, 6), EN_DE, "30.996"),
          "T10 light FFN": (pre_norm(512, 6, 6, encoder__ffn__hidden=384, decoder__ffn__hidden=384),
                            EN_DE, "41.102")}

MACS = {"T5 6-6 d512": (pre_norm(512, 6, 6), "9.976"),
        "T5 24-6 d360": (pre_norm(360, 24, 6), "6.274"),
        "T10 light FFN": (pre_norm(512, 6, 6, encoder__ffn__hidden=384, decoder__ffn__hidden=384),
                          "7.622")}


@pytest.mark.parametrize("row", PARAMS)
def test_params_of_table_rows(row: str) -> None:
    architecture, vocab, millions = PARAMS[row]
    breakdown = evaluate_cost(architecture.block, find_protocol("delight", vocab=vocab))
    assert f"{breakdown['params.total'] / 1e6:.3f}" == millions


@pytest.mark.parametrize("row", MACS)
def test_macs_of_table_rows(row: str) -> None:
    architecture, giga = MACS[row]
    breakdown = evaluate_cost(architecture.block, find_protocol("delight"))
    assert f"{breakdown['macs.total'] / 1e9:.3f}" == giga


def test_macs_equal_the_closed_form() -> None:
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
    breakdown = evaluate_cost(pre_norm(d, n, m).block, find_protocol("delight", s, t, v))
    assert breakdown["macs.total"] == encoder + decoder + tau1 * v * d


@pytest.mark.parametrize(("shape", "giga"), [((512, 6, 6), "1.237"), ((360, 24, 6), "1.252")])
def test_macs_of_cached_decoding(shape: tuple[int, int, int], giga: str) -> None:
    """With a key-value cache and with biases, the models rank in the other order."""
    from dataclasses import replace

    cached = replace(find_protocol("decode", 20, 20, EN_DE), work_weights={"mac": 1, "bias": 1})
    assert f"{evaluate_cost(pre_norm(*shape).block, cached)['macs.total'] / 1e9:.3f}" == giga
