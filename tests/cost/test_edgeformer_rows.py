"""Tables of EdgeFormer, recomputed under its protocol.

S = T = 30 and V = 32768; MACs include 5 per LayerNorm element. Params exclude the shared embedding
table. The values are those of an independent recomputation, compared at its precision.
"""

import pytest

from scalesearch.cost import evaluate_cost, find_protocol
from tests.architectures import transformer

EDGE = {
    "decoder.interleaved": True,
    "share.encoder.attention": "cycle(4)",
    "share.decoder.self": "encoder.attention[2*i]",
    "share.decoder.cross": "encoder.attention[2*i + 1]",
    "share.decoder.ffn": "one",
}
ONE_ENCODER = {"share.encoder.attention": "one", "share.encoder.ffn": "one"}
ONE_DECODER = {"share.decoder.self": "one", "share.decoder.cross": "one",
               "share.decoder.ffn": "one"}


def edgeformer(width: int = 512, ffn: int = 2048, loads: str = "load(6, 6)"):
    changes = {**EDGE, "decoder.ffn.hidden": width // 4, "share.encoder.ffn": loads}
    return transformer(width, 12, 2, hidden=ffn, **changes)


def universal_transformer(width: int, encoder_ffn: int | None = None,
                          decoder_ffn: int | None = None):
    sizes = {"encoder.ffn.hidden": encoder_ffn or 4 * width,
             "decoder.ffn.hidden": decoder_ffn or 4 * width}
    return transformer(width, 12, 2, **ONE_ENCODER, **ONE_DECODER, **sizes)


ROWS = {"T1 d512 6+6": (transformer(512, 6, 6), "44.14M", "1.8434G"),
        "T1 d512 12+2": (transformer(512, 12, 2), "46.24M", "1.9045G"),
        "T1 d512 UT": (universal_transformer(512), "7.382M", "1.9045G"),
        "T1 d512 EdgeFormer": (edgeformer(), "8.564M", "1.7945G"),
        "T1 d384 6+6": (transformer(384, 6, 6), "24.85M", "1.1348G"),
        "T1 d384 12+2": (transformer(384, 12, 2), "26.03M", "1.1688G"),
        "T1 d384 UT": (universal_transformer(384), "4.160M", "1.1688G"),
        "T1 d768 6+6": (transformer(768, 6, 6), "99.24M", "3.7560G"),
        "T1 d768 12+2": (transformer(768, 12, 2), "103.96M", "3.8948G"),
        "T1 d768 UT": (universal_transformer(768), "16.578M", "3.8948G"),
        "T2 6+6 shared decoder": (transformer(512, 6, 6, **ONE_DECODER), "23.13M", "1.843G"),
        "T2 6+6 shared encoder": (transformer(512, 6, 6, **ONE_ENCODER), "28.39M", "1.843G"),
        "T2 12+2 shared decoder": (transformer(512, 12, 2, **ONE_DECODER), "42.04M", "1.904G"),
        "T2 12+2 shared encoder": (transformer(512, 12, 2, **ONE_ENCODER), "11.58M", "1.904G"),
        "T2 UT d_ffn 2560": (universal_transformer(512, 2560, 2560), "8.432M", "2.125G"),
        "T2 UT d_encffn 3072": (universal_transformer(512, 3072), "8.432M", "2.282G"),
        "T2 UT d_decffn 3072": (universal_transformer(512, None, 3072), "8.432M", "1.967G"),
        "T3 2 x 2048 load 6-6": (edgeformer(loads="load(6, 6)"), "8.564M", "1.795G"),
        "T3 3 x 1536 load 4-4-4": (edgeformer(ffn=1536, loads="load(4, 4, 4)"), "9.090M", "1.606G"),
        "T3 4 x 1024 load 3-3-3-3": (edgeformer(ffn=1024, loads="load(3, 3, 3, 3)"), "8.565M",
                                     "1.417G"),
        "T3 2 x 2048 load 1-11": (edgeformer(loads="load(1, 11)"), "8.564M", "1.795G"),
        "T3 2 x 2048 load 11-1": (edgeformer(loads="load(11, 1)"), "8.564M", "1.795G")}


def formatted(value: int, like: str) -> str:
    """``value`` with the unit and the number of decimals of ``like``."""
    digits = len(like[:-1].partition(".")[2])
    return f"{value / {'M': 1e6, 'G': 1e9}[like[-1]]:.{digits}f}{like[-1]}"


@pytest.mark.parametrize("row", ROWS)
def test_costs_of_table_rows(row: str) -> None:
    architecture, params, flops = ROWS[row]
    breakdown = evaluate_cost(architecture.block, find_protocol("edgeformer"))
    assert formatted(breakdown["params.non_embedding"], params) == params
    assert formatted(breakdown["macs.total"], flops) == flops


def test_costs_of_edgeformer_are_exact() -> None:
    """8,519,680 weights of matrices, 13,952 biases and 30,720 parameters of norms."""
    breakdown = evaluate_cost(edgeformer().block, find_protocol("edgeformer"))
    assert breakdown["params.non_embedding"] == 8_519_680 + 13_952 + 30_720 == 8_564_352
    assert breakdown["params.embedding"] == 32768 * 512
    assert breakdown["params.output"] == 0
    assert breakdown["macs.output"] == 30 * 512 * 32768


@pytest.mark.parametrize(
    ("layer", "width", "params", "flops"),
    [
        ("encoder", 512, "3.1524M", "95.447M"),
        ("vanilla", 512, "4.2040M", "127.90M"),
        ("interleaved", 512, "2.2360M", "72.929M"),
        ("encoder", 384, "1.7745M", "53.891M"),
        ("vanilla", 384, "2.3666M", "72.334M"),
        ("interleaved", 384, "1.2592M", "41.426M"),
        ("encoder", 768, "7.0879M", "213.95M"),
        ("vanilla", 768, "9.4518M", "286.23M"),
        ("interleaved", 768, "5.0252M", "162.48M"),
    ],
)
def test_costs_of_single_layers(layer: str, width: int, params: str, flops: str) -> None:
    """Single layers of Table 1: the costs that one more layer adds."""
    light = {"decoder.interleaved": True,
             "decoder.ffn.hidden": width // 4} if layer == "interleaved" else {}
    protocol = find_protocol("edgeformer")
    base_depths, deeper_depths = ((2, 1), (3, 1)) if layer == "encoder" else ((1, 2), (1, 3))
    base_costs, deeper_costs = (evaluate_cost(transformer(width, *depths, **light).block, protocol)
                                for depths in (base_depths, deeper_depths))
    assert formatted(deeper_costs["params.total"] - base_costs["params.total"], params) == params
    assert formatted(deeper_costs["macs.total"] - base_costs["macs.total"], flops) == flops


def test_cached_decoding_needs_fewer_macs() -> None:
    """1.7912G instead of 1.7921G MACs: T(T + 1)/2 instead of T² products of self-attention."""
    lengths = {"source": 30, "target": 30, "vocab": 32768}
    block = edgeformer().block
    assert formatted(evaluate_cost(block, find_protocol("forward", **lengths))["macs.total"],
                     "1.7921G") == "1.7921G"
    assert formatted(evaluate_cost(block, find_protocol("decode", **lengths))["macs.total"],
                     "1.7912G") == "1.7912G"
