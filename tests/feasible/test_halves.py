"""Halves of a stack (mixers and FFNs): costs and identity, for random architectures."""

import random

import pytest

from scalesearch.blocks.core import Block
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.feasible.identity import network_signature
from scalesearch.feasible.pieces import NetworkPiece
from scalesearch.library import find_file
from scalesearch.spaces import UnbuildableError, read_space
from scalesearch.spaces.assembly.architecture import build_section

PROTOCOL = find_protocol("edgeformer", 12, 9, 1000)
NAMES = ("params.total", "params.encoder", "params.decoder", "params.non_embedding", "macs.total",
         "flops.total")
SMALL = {"width": "24 | 32 | 48", "encoder.depth": "2..12", "decoder.depth": "1..4",
         "encoder.heads": "2 | 4 | 8", "decoder.heads": "2 | 4 | 8",
         "encoder.head_dim": "4 | 8 | 16", "decoder.head_dim": "4 | 8 | 16"}


def sampled_configs(count: int) -> list:
    space = read_space(find_file("slim", "spaces")).with_overrides(SMALL)
    configs = []
    rng = random.Random(5)
    while len(configs) < count:
        config = space.sample(rng)
        try:
            space.architecture(config)
        except UnbuildableError:
            continue
        configs.append(dict(config))
    return configs


def costs(block: Block) -> dict[str, int]:
    breakdown = evaluate_cost(block, PROTOCOL)
    return {selector: breakdown[selector] for selector in NAMES}


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_costs_of_halves_add_up_to_the_stack(stack: str) -> None:
    for config in sampled_configs(120):
        mixer_half, ffn_half = (NetworkPiece(stack, half) for half in ("mixers", "ffn"))
        builders = (mixer_half.build, ffn_half.build, ffn_half.build_placeholder)
        parts = [costs(build(config)) for build in builders]
        whole = costs(build_section(config, stack))
        assert whole == {name: parts[0][name] + parts[1][name] - parts[2][name] for name in NAMES}


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_stacks_are_equal_if_and_only_if_both_halves_are(stack: str) -> None:
    def identity(config: dict) -> str:
        inner = build_section(config, stack).block
        return str(network_signature(inner) if inner is not None else None)

    rows = [{**a,
             **{k: v for k, v in b.items() if k.startswith((f"{stack}.ffn", f"share.{stack}.ffn"))}}
            for a, b in zip(sampled_configs(60), reversed(sampled_configs(60)))
            if a[f"{stack}.ffn"] == b[f"{stack}.ffn"]]
    whole = []
    halves = []
    for config in rows + sampled_configs(60):
        try:
            whole.append(identity(config))
        except UnbuildableError:
            continue
        halves.append(tuple(identity(NetworkPiece(stack, half).with_plain_other_half(config))
                            for half in ("mixers", "ffn")))
    same = [(a == b, c == d) for a, c in zip(whole, halves) for b, d in zip(whole, halves)]
    assert all(whole_equal == halves_equal for whole_equal, halves_equal in same)
    assert len(set(whole)) > 25
