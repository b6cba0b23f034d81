"""Halves of a stack: their costs add up to the stack's, for random architectures of the widest space there is."""

import random

import pytest

from scalesearch.blocks.core import Block
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.feasible.identity import network_signature
from scalesearch.feasible.pieces import NetworkPiece
from scalesearch.library import find_file
from scalesearch.space import UnbuildableError, read_space
from scalesearch.space.assembly.architecture import build_section

PROTOCOL = find_protocol("edgeformer", 12, 9, 1000)
NAMES = ("params.total", "params.encoder", "params.decoder", "params.non_embedding", "macs.total",
         "flops.total")
SMALL = {"width": "24 | 32 | 48", "encoder.depth": "2..12", "decoder.depth": "1..4",
         "encoder.heads": "2 | 4 | 8", "decoder.heads": "2 | 4 | 8",
         "encoder.head_dim": "4 | 8 | 16", "decoder.head_dim": "4 | 8 | 16"}


def drawn(count: int) -> list:
    space = read_space(find_file("slim", "spaces")).with_overrides(SMALL)
    found = []
    rng = random.Random(5)
    while len(found) < count:
        answers = space.sample(rng)
        try:
            space.architecture(answers)
        except UnbuildableError:
            continue
        found.append(dict(answers))
    return found


def bill(block: Block) -> dict[str, int]:
    priced = evaluate_cost(block, PROTOCOL)
    return {selector: priced[selector] for selector in NAMES}


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_halves_add_up_to_the_stack(stack: str) -> None:
    for answers in drawn(120):
        mixers, fed = (NetworkPiece(stack, half) for half in ("mixers", "ffn"))
        parts = [bill(build(answers)) for build in (mixers.build, fed.build, fed.build_placeholder)]
        whole = bill(build_section(answers, stack))
        assert whole == {name: parts[0][name] + parts[1][name] - parts[2][name] for name in NAMES}


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_two_stacks_are_one_network_exactly_where_both_halves_are(stack: str) -> None:
    def identity(answers: dict) -> str:
        inner = build_section(answers, stack).block
        return str(network_signature(inner) if inner is not None else None)

    rows = [{**a,
             **{k: v for k, v in b.items() if k.startswith((f"{stack}.ffn", f"share.{stack}.ffn"))}}
            for a, b in zip(drawn(60), reversed(drawn(60)))
            if a[f"{stack}.ffn"] == b[f"{stack}.ffn"]]
    whole = []
    halves = []
    for answers in rows + drawn(60):
        try:
            whole.append(identity(answers))
        except UnbuildableError:
            continue
        halves.append(tuple(identity(NetworkPiece(stack, half).with_plain_other_half(answers))
                            for half in ("mixers", "ffn")))
    same = [(a == b, c == d) for a, c in zip(whole, halves) for b, d in zip(whole, halves)]
    assert all(one == other for one, other in same)
    assert len(set(whole)) > 25
