"""Samples of blocks with random small sizes, and the shapes of their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from scalesearch.blocks.core import SRC, TGT, Block, LinearFactory, Shape
from scalesearch.blocks.ffn import FFNS
from scalesearch.blocks.maps.linear_factories import DENSE, Chain, LowRank
from scalesearch.blocks.maps.structured_matrices import Kronecker
from scalesearch.blocks.mixers import MIXERS
from scalesearch.blocks.options import Option, option_fields

LENGTH = "length"
MAX_OPTION_SIZES = 12  # number of sizes that an option is sampled from
MAX_DRAWS = 1000


@dataclass(frozen=True)
class BlockSample:
    """A block and the shapes of its inputs.

    Attributes:
        block: the block.
        inputs: shape of each input without the batch axis; None for an absent input.
        takes_token_ids: whether inputs are token ids.
        extra_arguments: other arguments of its forward function; ``LENGTH`` is replaced with the
            number of source positions.
    """

    block: Block
    inputs: tuple[Shape | None, ...]
    takes_token_ids: bool = False
    extra_arguments: tuple[object, ...] = ()


def random_size(rng: Random) -> int:
    """Sample a size from 1 to 12."""
    return rng.randint(1, 12)


def legal_values(option: Option, few: int = MAX_OPTION_SIZES) -> Sequence[Any]:
    """Return the values of an option; for a size, at most ``few`` from its minimum."""
    if option.type == "flag":
        return False, True
    if option.type == "number":
        return 0.5, 1.0
    low = 1 if option.minimum is None else option.minimum
    high = low + few - 1
    return option.choices or range(
        low, 1 + (high if option.maximum is None else min(option.maximum, high)))


def sample_valid_block(rng: Random, kind: type[Block], *fields: Any) -> Block:
    """Sample a valid block of a class with random options.

    Args:
        rng: random number generator.
        kind: class of the block.
        fields: values of the other fields, in order.

    Raises:
        AssertionError: no sample is valid.
    """
    for _ in range(MAX_DRAWS):
        block = kind(*fields,
                     **{name: rng.choice(legal_values(option))
                        for name, option in option_fields(kind).items()})
        if block.validate() is None:
            return block
    raise AssertionError(f"{kind.__name__}: no valid block in {MAX_DRAWS} samples of its options: "
                         f"{block.validate()}")


def random_linear_factory(rng: Random) -> LinearFactory:
    """Sample a linear factory that supports all sizes."""
    chain = Chain(rng.uniform(0.05, 0.9), rng.randint(2, 4),
                  rng.choice(["cores", "matrix", "auto"]))
    return rng.choice([DENSE, chain, chain, LowRank(random_size(rng)),
                       Kronecker(rank=random_size(rng))])


def ffn_sample(rng: Random, kind: str) -> BlockSample:
    """Sample a feed-forward network of a class, on source positions."""
    d = random_size(rng)
    return BlockSample(sample_valid_block(rng, FFNS[kind], d, (SRC,), random_linear_factory(rng)),
                       ((SRC, d),))


def mixer_sample(rng: Random, name: str, kinds: Mapping[str, type[Block]] = MIXERS) -> BlockSample:
    """Sample a mixer of a class, of an encoder or of a decoder."""
    d = random_size(rng)
    decoder = rng.random() < 0.5
    axis = TGT if decoder else SRC
    return BlockSample(sample_valid_block(rng, kinds[name], d, axis, decoder,
                                          random_linear_factory(rng)), ((axis, d), None, None))
