"""Checks of a registered kind of block, from the single block to the search: for kinds of your own as for ours."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from scalesearch.blocks.core import Block, Option, options
from scalesearch.blocks.ffn import FFNS
from scalesearch.cost import cost, find_protocol
from scalesearch.feasible.count import Counter
from scalesearch.feasible.sections import Decomposition
from scalesearch.space import Space, Unbuildable
from scalesearch.testing.attention import feed_forward
from scalesearch.testing.checks import check_bill, check_columns, check_model
from scalesearch.testing.draws import random_architecture, small_space
from scalesearch.testing.specimen import MANY

BLOCKS, MODELS = 12, 4  # drawn of each kind
TINY = {
    "width": "8 | 12", "norm": "pre", "encoder": {"depth": "1 | 2", "heads": 2},
    "decoder": {"depth": 1, "heads": 2, "ffn": {"relu": {"hidden": 16}}},
}
COSTS = ("params.total", "macs.total")


def check_ffn(name: str) -> None:
    """Put the feed-forward kind ``name`` through every check that ours go through.

    Blocks at random sizes and in whole models, inside heads as well if it has hidden units: billed as built, also with
    arrays for sizes, decoded step by step as at once, causal; and counted by ``feasible`` as by listing.

    Raises:
        AssertionError, CausalityError: a check fails.
    """
    kind = FFNS[name]
    for seed in range(BLOCKS):
        specimen = feed_forward(Random(seed), name)
        check_bill(specimen)
        check_columns(specimen.block)
        assert kind.units in (None, *specimen.block.parts()), f"{name}: no part {kind.units}, which units names"
    keys = spelled(kind)
    changes = {f"{stack}.ffn": {name: keys} for stack in ("encoder", "decoder")}
    if "hidden" in keys:
        within = {name: {"ratio": "1 | 2", **{key: text for key, text in keys.items() if key != "hidden"}}}
        changes |= {f"{stack}.pg": within for stack in ("encoder", "decoder")}
    space = small_space().set({path: flow(value) for path, value in changes.items()})
    for seed in range(MODELS):
        check_model(random_architecture(Random(seed), space), seed)
    check_count(Space.of({**TINY, "encoder": {**TINY["encoder"], "ffn": {name: spelled(kind, few=2)}}}))  # type: ignore[dict-item]


def check_count(space: Space) -> None:
    """Check that ``feasible`` counts of a small space what listing every candidate finds, and all that it costs.

    Raises:
        AssertionError: it does not.
    """
    protocol = find_protocol("forward", 6, 5, 40)
    sheets, bills = 0, []
    for answers in space.enumerate():
        sheets += 1
        try:
            architecture = None if space.problems_of(answers) else space.architecture(answers)
        except Unbuildable:
            continue
        if architecture is not None:
            bill = cost(architecture.block, protocol)
            bills.append((architecture.id, *(bill[name] for name in COSTS)))
    counter = Counter(Decomposition(space, protocol, COSTS), [])
    assert (counter.sheets, counter.sound, counter.distinct([])) == (sheets, len(bills), len({b[0] for b in bills}))


def spelled(kind: type[Block], few: int = MANY) -> dict[str, str]:
    """The options of a block class as keys of a space with everything legal open, but of sizes ``few``."""
    return {name: _spelled(option, few) for name, option in options(kind).items()}


def _spelled(option: Option, few: int) -> str:
    if option.kind == "flag":
        return "yes | no"
    if option.among:
        return " | ".join(map(str, option.among))
    low = 1 if option.low is None else option.low
    return f"{low}..{low + few - 1 if option.high is None else min(option.high, low + few - 1)}"


def flow(value: Mapping[str, Any] | str) -> str:
    """Keys as YAML in braces, as ``--set`` takes them."""
    if isinstance(value, str):
        return value
    return "{ " + ", ".join(f"{key}: {flow(inside)}" for key, inside in value.items()) + " }"
