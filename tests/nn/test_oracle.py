"""The ledger against independent counters: equal to the unit, for every block and for whole models."""

from dataclasses import replace
from random import Random

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from scalesearch.blocks.catalogue import CATALOGUE, LENGTH, Specimen
from scalesearch.blocks.scores import RESIDUAL_SCORES
from scalesearch.blocks.seq2seq import TYINGS
from scalesearch.blocks.solvers import SOLVERS
from scalesearch.cost import cost, find_protocol
from scalesearch.cost.protocol import PRODUCTS
from scalesearch.nn.build import build, module
from scalesearch.nn.causality import causality
from scalesearch.nn.model import Model
from scalesearch.nn.verify import verify
from scalesearch.space.architecture import Architecture
from tests.architectures import random_architecture

S, T, V = 5, 7, 17
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


def check_counts(architecture: Architecture, rng: Random) -> None:
    """Params and MACs of a pass, and of stepwise and repeated decoding, against what PyTorch holds and runs."""
    s, t, v = rng.randint(1, 6), rng.randint(1, 6), rng.randint(4, 20)
    ours = cost(architecture.block, find_protocol("forward", s, t, v))
    model = build(architecture.block, vocab=v, device="meta")
    model.set_attention(rng.choice(["fused", "products"]))
    source, target = (torch.zeros(1, n, dtype=torch.long, device="meta") for n in (s, t))
    assert sum(weight.numel() for weight in model.parameters()) == ours["params.total"], architecture.answers
    with FlopCounterMode(display=False) as counter:
        model(source.expand(2, s), target.expand(2, t))
    # Work on weights alone is done once, whatever the batch.
    assert counter.get_total_flops() == 2 * (2 * ours["macs.total"] + ours["macs.once"]), architecture.answers
    assert ours["flops.total"] == 2 * ours["macs.total"]
    with torch.no_grad(), model.folded():
        model(source, target)
        decoding = {"decode": stepwise(model, source, target), "delight": rerun(model, source, target)}
    for name, counted in decoding.items():
        protocol = replace(find_protocol(name, s, t, v), counts=PRODUCTS)
        assert cost(architecture.block, protocol)["macs.total"] == counted, (name, architecture.answers)


def stepwise(model: Model, source: torch.Tensor, target: torch.Tensor) -> float:
    """Multiply-adds of decoding token by token with a cache."""
    with FlopCounterMode(display=False) as counter:
        memory, cache = model.encode(source), model.new_cache()
        for i in range(target.shape[1]):
            model.logits(model.decode(target[:, i : i + 1], memory, cache))
    return counter.get_total_flops() / 2


def rerun(model: Model, source: torch.Tensor, target: torch.Tensor) -> float:
    """Multiply-adds of decoding by running every prefix again."""
    with FlopCounterMode(display=False) as counter:
        memory = model.encode(source)
        for i in range(target.shape[1]):
            model.logits(model.decode(target[:, : i + 1], memory))
    return counter.get_total_flops() / 2


def check_numbers(architecture: Architecture, seed: int) -> None:
    """Nothing sees what it must not; step by step equals all at once, and one attention kernel the other (fp64)."""
    model = build(architecture.block, vocab=V, seed=seed, dtype=torch.float64).eval()
    causality(model, V)
    generator = torch.Generator().manual_seed(seed)
    source, target = (torch.randint(4, V, (3, n), generator=generator) for n in (5, 6))
    source[1, 3:] = 0
    with torch.no_grad(), model.folded():
        for weight in model.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
        whole, memory, cache = model(source, target), model.encode(source), model.new_cache()
        steps = [model.logits(model.decode(target[:, i : i + 1], memory, cache)) for i in range(6)]
        assert torch.allclose(torch.cat(steps, 1), whole, rtol=0, atol=1e-9), architecture.answers
        model.set_attention("fused")
        assert torch.allclose(model(source, target), whole, rtol=0, atol=1e-9), architecture.answers


@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_models_of_all_families(count: int) -> None:
    """Drawn from spaces/slim.yaml at small sizes, with any sharing and loans besides."""
    rng, seen = Random(20260), set()
    for seed in range(count):
        architecture = random_architecture(rng)
        seen |= {f"{path}={value}".split("(")[0].split("[")[0] for path, value in architecture.answers.items()}
        check_counts(architecture, rng)
        check_numbers(architecture, seed)
    for path, words in WORDS.items():
        assert not [word for word in words if f"{path}={word}" not in seen], path


WORDS = {
    "share.encoder.attention": ["own", "one", "cycle", "sequence", "reverse_cycle", "sandwich", "runs", "load"],
    "share.decoder.self": ["encoder.attention"],
    "embedding.tie": TYINGS,
    "embedding": ["plain", "factorised", "h-softpos", "adaptive"],
    "norm": ["pre", "post"],
    "model": ["encoder-decoder", "decoder-only"],
    "adapt": ["nothing", "bias", "lora", "prompt"],
    "encoder.solver": list(SOLVERS),
    "encoder.pg": ["none", "relu", "swiglu"],
    "decoder.residual_scores": RESIDUAL_SCORES,
}


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
