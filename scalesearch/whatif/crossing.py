"""Where one part of the work overtakes another as a length grows: exact whole numbers, of any size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import VOCAB, Block, walk
from scalesearch.cost.ledger import split
from scalesearch.cost.protocol import Protocol
from scalesearch.whatif.formula import Formula
from scalesearch.whatif.lengths import S, T, V, extent_of

if TYPE_CHECKING:
    import pandas as pd

Range = tuple[int, int | None]  # first and last length; None: without end
LENGTHS = {"source": (S,), "target": (T,), "length": (S, T), "vocab": (V,)}
OUTPUT, LAYERS, ATTENTION, REST = "output projection", "encoder and decoder", "attention's products", "all the rest"
SAID = {OUTPUT: "the output projection costs", ATTENTION: "attention's products of scores and mixes cost"}
PAIRS = {"vocab": ((OUTPUT, LAYERS),)}
USUAL = ((ATTENTION, REST), (OUTPUT, LAYERS))


@dataclass(frozen=True)
class Crossing:
    """Where ``part`` costs more than ``other``.

    Attributes:
        length: what varies: source, target, both at once (``length``) or vocab.
        ranges: of lengths at which it does.
        held: the other lengths.
    """

    length: str
    part: str
    other: str
    ranges: tuple[Range, ...]
    held: Mapping[str, int]

    def __str__(self) -> str:
        name = " = ".join(LENGTHS[self.length])
        if not self.ranges:
            spans = f"at no {name}"
        else:
            spans = " and ".join(_span(name, one) for one in self.ranges)
        held = ", ".join(f"{key} = {size:,}" for key, size in self.held.items())
        return f"{SAID[self.part]} more than {self.other} {spans} ({held})"

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        named = {"length": self.length, "part": self.part, "other": self.other}
        return named | {"ranges": [list(span) for span in self.ranges], "held": dict(self.held)}


class Crossings(tuple[Crossing, ...]):
    """Several of them."""

    def frame(self) -> pd.DataFrame:
        """One row for each crossing and range; a range without end has no ``to``, a part that never leads no row."""
        import pandas as pd

        rows = [(c.length, c.part, c.other, *span) for c in self for span in c.ranges]
        found = pd.DataFrame(rows, columns=["length", "part", "other", "from", "to"])
        return found.astype({"from": "Int64", "to": "Int64"})


def _span(name: str, span: Range) -> str:
    low, high = span
    if high is None:
        return f"from {name} = {low:,}" if low > 1 else f"at every {name}"
    return f"up to {name} = {high:,}" if low == 1 else f"from {name} = {low:,} to {high:,}"


def work_of(block: Block, protocol: Protocol) -> dict[str, Formula]:
    """MACs as formulas of S, T and V: by section, and ``attention``, which has two positions in its loops."""
    found: dict[str, Formula] = {}
    for line in walk(block, vocab=protocol.vocab):
        for work in line.leaf.work():
            if weight := protocol.counts.get(work.kind, 0):
                axes, size = split(work.loops)
                term = extent_of(protocol.name, axes) * int(size * line.calls * weight)
                names = [line.path.split(".", 1)[0], "total"]
                names += ["attention"] if sum(axis != VOCAB for axis in axes) > 1 else []
                for name in names:
                    found[name] = found.get(name, Formula({})) + term
    return found


def vocab_shapes_work(block: Block, protocol: Protocol) -> bool:
    """Whether loops other than those over the vocabulary itself follow from its size."""
    tables = [[line.leaf.work() for line in walk(block, vocab=vocab)] for vocab in (protocol.vocab, 2 * protocol.vocab)]
    return tables[0] != tables[1]


def crossings(block: Block, protocol: Protocol, lengths: Sequence[str] = ("vocab", "length")) -> Crossings:
    """Where the output projection takes over from the layers, and attention's products from all the rest.

    Args:
        lengths: what varies, one at a time; the other lengths stay as in ``protocol``. ``vocab`` is left out where the
            shapes of what works follow from it (an adaptive output, a chain): no formula holds for every V then.
    """
    work, found = work_of(block, protocol), list[Crossing]()
    parts = _parts(work)
    for length in (name for name in lengths if name != "vocab" or not vocab_shapes_work(block, protocol)):
        for part, other in PAIRS.get(length, USUAL):
            line = in_one(parts[part] - parts[other], length, protocol)
            held = {name: size for name, size in sizes_of(protocol).items() if name not in LENGTHS[length]}
            found.append(Crossing(length, part, other, tuple(positive(line)), held))
    return Crossings(found)


def _parts(work: Mapping[str, Formula]) -> dict[str, Formula]:
    none = Formula({})
    attention, total = work.get("attention", none), work.get("total", none)
    layers = work.get("encoder", none) + work.get("decoder", none)
    return {OUTPUT: work.get("output", none), LAYERS: layers, ATTENTION: attention, REST: total - attention}


def sizes_of(protocol: Protocol) -> dict[str, int]:
    """The protocol's lengths by the names that formulas have for them."""
    return {S: protocol.source, T: protocol.target, V: protocol.vocab}


def in_one(formula: Formula, length: str, protocol: Protocol) -> list[Fraction]:
    """Coefficients, of the power 0 upwards, of a formula in which only ``length`` varies."""
    free = LENGTHS[length]
    bound = formula.bind({name: size for name, size in sizes_of(protocol).items() if name not in free})
    powers: dict[int, Fraction] = {}
    for key, factor in bound.terms.items():
        powers[len(key)] = powers.get(len(key), Fraction(0)) + factor
    return _trimmed([powers.get(power, Fraction(0)) for power in range(max(powers, default=0) + 1)])


# -- whole numbers at which a polynomial is positive


def positive(line: list[Fraction]) -> Iterator[Range]:
    """The ranges of whole numbers from 1 on where the polynomial is above 0."""
    turns = [1, *switches(line)]
    for low, after in itertools.zip_longest(turns, turns[1:]):
        if value(line, low) > 0:
            yield low, None if after is None else after - 1


def switches(line: list[Fraction]) -> list[int]:
    """The whole numbers n > 1 at which being above 0 differs from n - 1, rising.

    Between those of its differences p(n + 1) - p(n), a polynomial rises or falls throughout, so a bisection finds all.
    """
    if len(line) <= 1:
        return []
    stops = [1, *switches(_difference(line))]
    stops.append(max(stops[-1], _bound(line)))
    ends = ((low, high) for low, high in itertools.pairwise(stops) if (value(line, low) > 0) != (value(line, high) > 0))
    return [_first(low, high, lambda n: value(line, n) > 0) for low, high in ends]


def value(line: list[Fraction], n: int) -> Fraction:
    """The polynomial at ``n``."""
    total = Fraction(0)
    for factor in reversed(line):
        total = total * n + factor
    return total


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The first whole number after ``low`` at which ``holds`` is as at ``high``; it changes once between them."""
    at_low = holds(low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) == at_low else (low, middle)
    return high


def _difference(line: list[Fraction]) -> list[Fraction]:
    """p(n + 1) - p(n)."""
    powers = range(len(line) - 1)
    return _trimmed([sum((line[j] * math.comb(j, i) for j in range(i + 1, len(line))), Fraction(0)) for i in powers])


def _trimmed(line: list[Fraction]) -> list[Fraction]:
    while line and not line[-1]:
        line.pop()
    return line


def _bound(line: list[Fraction]) -> int:
    """Cauchy's bound: no root lies beyond it."""
    return 2 + math.ceil(max((abs(factor / line[-1]) for factor in line[:-1]), default=Fraction(0)))
