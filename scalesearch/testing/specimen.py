"""Specimens: blocks at random small sizes, with the shapes of their inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from scalesearch.blocks.core import SRC, Block, Shape, Site
from scalesearch.blocks.options import Option, options
from scalesearch.blocks.sites import DENSE, Chain, LowRank

LENGTH = "length"
MANY = 12  # sizes that an option without bounds is drawn from
TRIES = 1000


@dataclass(frozen=True)
class Specimen:
    """A block and its inputs' shapes after the batch axis.

    Attributes:
        inputs: a shape for each input; None: an input that is absent.
        ids: whether inputs are token ids.
        more: what else its forward takes; ``LENGTH`` stands for the number of source positions.
    """

    block: Block
    inputs: tuple[Shape | None, ...]
    ids: bool = False
    more: tuple[object, ...] = ()


Draw = Callable[[Random], Specimen]
SPECIMENS: dict[str, Draw] = {}


def specimen(name: str) -> Callable[[Draw], Draw]:
    """Register a function that draws specimens of the block ``name``."""

    def register(draw: Draw) -> Draw:
        SPECIMENS[name] = draw
        return draw

    return register


def size(rng: Random) -> int:
    """A small size, 1 to 12."""
    return rng.randint(1, 12)


def drawn(rng: Random, option: Option) -> Any:
    """A value of an option: any that is legal, but a size of at most ``MANY`` above its lowest."""
    if option.kind == "flag":
        return rng.random() < 0.5
    if option.among:
        return rng.choice(option.among)
    low = 1 if option.low is None else option.low
    return rng.randint(low, low + MANY - 1 if option.high is None else min(option.high, low + MANY - 1))


def fitting(rng: Random, kind: type[Block], *given: Any) -> Block:
    """A block of a class with drawn options whose sizes agree.

    Args:
        given: the fields that are no options, in order.

    Raises:
        AssertionError: no draw fits.
    """
    for _ in range(TRIES):
        block = kind(*given, **{name: drawn(rng, option) for name, option in options(kind).items()})
        if block.misfit() is None:
            return block
    raise AssertionError(f"{kind.__name__}: of {TRIES} draws of its options none fits: {block.misfit()}")


def site(rng: Random) -> Site:
    """Any site: a matrix, a tensor chain, a product of low rank."""
    chain = Chain(rng.uniform(0.05, 0.9), rng.randint(2, 4), rng.choice(["cores", "matrix", "auto"]))
    return rng.choice([DENSE, chain, chain, LowRank(size(rng))])


def sources(d: int) -> tuple[Shape, ...]:
    """The shape of one input: ``d`` features of every source position."""
    return ((SRC, d),)
