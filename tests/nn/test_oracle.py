"""The ledger against independent counters: equal to the unit, for every block and for whole models."""

from dataclasses import replace
from random import Random

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from scalesearch.blocks.catalogue import CATALOGUE, LENGTH, Specimen
from scalesearch.cost import cost, find_protocol
from scalesearch.nn.build import build, module
from scalesearch.nn.verify import verify
from tests.architectures import random_architecture

S, T, V = 5, 7, 11
LENGTHS = {"src": S, "memory": S, "src_keys": S, "tgt": T, "keys": T}


def inputs_of(specimen: Specimen, batch: int, device: str) -> list[torch.Tensor | None]:
    def tensor(shape):
        size = (batch, *(LENGTHS.get(extent, extent) for extent in shape))
        if specimen.ids:
            return torch.zeros(size, dtype=torch.long, device=device)
        return torch.zeros(size, device=device)

    more = [S if value == LENGTH else value for value in specimen.more]
    return [*(None if shape is None else tensor(shape) for shape in specimen.inputs), *more]


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.parametrize("kernel", ["fused", "products"])
def test_block_costs_what_pytorch_counts(name: str, kernel: str) -> None:
    protocol = find_protocol("forward", S, T, V)
    for seed in range(12):
        specimen = CATALOGUE[name](Random(seed))
        built = module(specimen.block, vocab=V, device="meta")
        for node in built.modules():
            node.kernel = kernel
        ours = cost(specimen.block, protocol)
        with FlopCounterMode(display=False) as counter:
            built(*inputs_of(specimen, 3, "meta"))
        assert sum(weight.numel() for weight in built.parameters()) == ours["params.total"], specimen
        executed = 2 * (3 * ours["macs.total"] + ours["macs.once"])
        assert counter.get_total_flops() == executed, specimen


def test_300_random_models_cost_what_pytorch_counts() -> None:
    """Both model kinds, norms, all tyings and schedules, borrowed and interleaved layers among them."""
    rng, seen = Random(20260), set()
    for _ in range(300):
        architecture = random_architecture(rng)
        seen |= {f"{path}={value}".split("(")[0].split("[")[0] for path, value in architecture.answers.items()}
        s, t, v = rng.randint(1, 6), rng.randint(1, 6), rng.randint(4, 20)
        ours = cost(architecture.block, find_protocol("forward", s, t, v))
        model = build(architecture.block, vocab=v, device="meta")
        model.set_attention(rng.choice(["fused", "products"]))
        ids = (torch.zeros(2, n, dtype=torch.long, device="meta") for n in (s, t))
        with FlopCounterMode(display=False) as counter:
            model(*ids)
        assert sum(weight.numel() for weight in model.parameters()) == ours["params.total"], architecture.answers
        assert counter.get_total_flops() == 2 * 2 * ours["macs.total"], architecture.answers
        assert ours["flops.total"] == 2 * ours["macs.total"]
    for word in ("own", "one", "cycle", "sequence", "reverse_cycle", "sandwich", "runs", "load"):
        assert any(f"share.encoder.attention={word}" == one for one in seen), word
    for tie in ("none", "decoder", "all"):
        assert f"embedding.tie={tie}" in seen
    assert {"norm=pre", "norm=post", "share.decoder.self=encoder.attention", "model=decoder-only"} <= seen


def test_decoding_protocols_cost_what_decoding_runs() -> None:
    """``decode`` is stepwise decoding with a cache, ``delight`` (less its biases) re-running every prefix."""
    rng = Random(99)
    for _ in range(40):
        architecture = random_architecture(rng)
        s, t, v = rng.randint(1, 6), rng.randint(1, 6), rng.randint(4, 20)
        model = build(architecture.block, vocab=v, device="meta")
        source, target = (torch.zeros(1, n, dtype=torch.long, device="meta") for n in (s, t))
        with FlopCounterMode(display=False) as cached:
            memory, cache = model.encode(source), model.new_cache()
            for i in range(t):
                model.logits(model.decode(target[:, i : i + 1], memory, cache))
        with FlopCounterMode(display=False) as rerun:
            memory = model.encode(source)
            for i in range(t):
                model.logits(model.decode(target[:, : i + 1], memory))
        ours = {name: find_protocol(name, s, t, v) for name in ("decode", "delight")}
        ours["delight"] = replace(ours["delight"], counts={"mac": 1})
        macs = {name: cost(architecture.block, protocol)["macs.total"] for name, protocol in ours.items()}
        counted = {"decode": cached.get_total_flops() / 2, "delight": rerun.get_total_flops() / 2}
        assert macs == counted, architecture.answers


def test_fvcore_agrees_once_its_norms_are_taken_off() -> None:
    rng = Random(7)
    for _ in range(25):
        architecture = random_architecture(rng)
        for check in verify(architecture.block, rng.randint(1, 6), rng.randint(1, 6), rng.randint(4, 20)):
            assert check.agrees, (check, architecture.answers)


def test_a_forward_that_departs_from_its_bill_is_caught() -> None:
    """The oracle can fail: an attention that bills one head too few is seen by it."""
    specimen = CATALOGUE["linear"](Random(1))
    built = module(specimen.block, device="meta")
    x = inputs_of(specimen, 1, "meta")[0]
    with FlopCounterMode(display=False) as counter:
        built(x)
        built(x)
    assert counter.get_total_flops() != 2 * cost(specimen.block, find_protocol("forward", S, T, V))["macs.total"]
