"""A space taken apart: each section's candidates with their costs, and the answers that sections share.

Costs add up over embedding, encoder, decoder and output. Once the answers that more than one of them depends on are
fixed, the sections vary independently: it is enough to list each section's own candidates.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.core import Block
from scalesearch.blocks.sizes import PopulationSplitError
from scalesearch.cost.population import Build, Look, price, taken
from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.grid import UNASKED, Codes, Table, tables
from scalesearch.feasible.identity import Networks, signature
from scalesearch.feasible.pieces import Given, Missed, Part, Piece, joined, keys_read, leaves_behind, several
from scalesearch.space import Space
from scalesearch.space.assembly.architecture import SECTION_NAMES
from scalesearch.space.parameters.constraints import Constraint
from scalesearch.space.schema.bound_tree import ParameterNode

MOST_ROWS = 6_000_000
SAMPLES = 60  # sheets that are built to see which answers count; what they do not show is found while listing
HALVED = ("encoder", "decoder")
PARALLEL = re.compile(r"\[[^\]]*\[")  # an order of sub-layers with a list inside
SPINE = "spine"  # what sections share
REST = "rest"  # what no section depends on, and decides nothing but how many answer sheets there are


class Decomposition:
    """A space taken apart: a Part for each section and for the rest, and the ``spine`` of what sections share.

    The spine's rows are the combinations of answers to ``shared`` parameters. A part has only those of them among its
    own parameters that matter to it.

    Raises:
        TooMany, Endless: a section has more candidates than are listed.
    """

    def __init__(self, space: Space, protocol: Protocol, names: tuple[str, ...], most: int = MOST_ROWS) -> None:
        self.space, self.protocol, self.names, self.form = space, protocol, names, space.parameter_space
        self.pieces = {name: self._pieces(name) for name in SECTION_NAMES}
        rng = Random(0)
        samples = [answers for _ in range(SAMPLES) if not (answers := space.sample(rng)).infeasible_values]
        pieces = [piece for found in self.pieces.values() for piece in found]
        lengths = {"vocab"} if protocol.lengths else set()  # lengths that follow from it make it part of every piece
        self.reads = {piece: keys_read(piece, samples, self.form.nodes_by_key) | lengths for piece in pieces}
        while True:
            try:
                return self._take(most)
            except Missed as missed:
                assert isinstance(missed.piece, Piece)
                self.reads[missed.piece].add(missed.key)

    def _take(self, most: int) -> None:
        where = [constraint for constraint in self.space.constraints if not constraint.costs]
        coupled = self._adopted()
        needs = {name: self._parameters(self._keys(*pieces)) for name, pieces in self.pieces.items()}
        self.constraints: dict[str, list[Constraint]] = {name: [] for name in (*SECTION_NAMES, SPINE)}
        for constraint in where:
            parameters = self._parameters(constraint.referenced_names())
            home = next((name for name in SECTION_NAMES if parameters <= needs[name]), SPINE)
            self.constraints[home].append(constraint)
            coupled |= parameters if home == SPINE else set()
        self.shared = frozenset(coupled | several(needs.values()))
        self.parts = {name: self._part(name, most) for name in SECTION_NAMES}
        everything = frozenset().union(*needs.values()) | coupled
        rest = [leaf.key for leaf in self.form.nodes if self._parameters([leaf.key]) - everything]
        self.parts[REST] = self._listed(None, rest, [], self.shared, most)
        read = set().union(*self.reads.values())
        # What nothing is made from may still have no value, as a width that three heads do not divide.
        spine = [leaf.key for leaf in self.form.nodes if self._asks(leaf) & self.shared
                 or (leaf.key not in read and self._parameters([leaf.key]) <= self.shared)]
        self.parts[SPINE] = self._listed(None, spine, self.constraints[SPINE], self.shared, most)

    # -- what depends on what

    def _pieces(self, name: str) -> tuple[Piece, ...]:
        """A section, or its halves, unless these hang together.

        So they do in a decoder that borrows feed-forward networks, and where mixers and networks stand in parallel.
        """
        loans, orders = (" ".join(str(leaf.domain) for leaf in self.form.nodes if leaf.key.startswith(key))
                         for key in ("share.decoder", f"{name}.sublayers"))
        if name not in HALVED or (name == "decoder" and "encoder.ffn" in loans) or PARALLEL.search(orders):
            return (Piece(name),)
        return Piece(name, "mixers"), Piece(name, "ffn")

    def _adopted(self) -> set[str]:
        """Gives answers that nothing is made from to the piece whose parameters decide whether they come up.

        Returns the parameters of several pieces that decide about one such answer: they have to be shared.
        """
        needs = {piece: self._parameters(self._keys(piece)) for piece in self.reads}
        sections = [frozenset().union(*(needs[piece] for piece in pieces)) for pieces in self.pieces.values()]
        own = frozenset().union(*sections) - several(sections)
        coupled: set[str] = set()
        for leaf in self.form.nodes:
            deciding = (self._parameters([leaf.key]) - self._asks(leaf)) & own
            if deciding and not any(leaf.key in read for read in self.reads.values()):
                home = next((piece for piece, asked in needs.items() if deciding <= asked), None)
                if home is not None:
                    self.reads[home].add(leaf.key)
                else:
                    coupled |= deciding
        return coupled

    def _keys(self, *pieces: Piece) -> list[str]:
        """The answers that pieces are made from, in the order of the schema."""
        read = set().union(*(self.reads[piece] for piece in pieces))
        return list(dict.fromkeys(leaf.key for leaf in self.form.nodes if leaf.key in read))

    def _asks(self, leaf: ParameterNode) -> set[str]:
        return {name for name, _ in self.form.domains[leaf.path].parameters()}

    def _parameters(self, keys: Iterable[str]) -> frozenset[str]:
        """Every parameter whose answer may change the values of ``keys``."""
        return frozenset(name for leaf in leaves_behind(self.form, keys) for name in self._asks(leaf))

    # -- listing

    def _part(self, name: str, most: int) -> Part:
        where, pieces = self.constraints[name], self.pieces[name]
        apart = [self._keys(piece) for piece in pieces]
        if len(pieces) == 1:
            return self._listed(pieces[0], apart[0], where, self.shared, most)
        parameters = [self._parameters(half) for half in apart]
        homes = [_home(self._parameters(constraint.referenced_names()), parameters) for constraint in where]
        # A constraint over both halves ties them together: both then have its parameters.
        across = [key for constraint, home in zip(where, homes) if home is None for key in constraint.referenced_names()]
        apart = [[*half, *across] for half in apart]
        parameters = [self._parameters(half) for half in apart]
        shared = self.shared | (parameters[0] & parameters[1])
        mine = [[c for c, home in zip(where, homes) if home == n or (home is None and n == 0)] for n in (0, 1)]
        parts = [self._listed(pieces[n], apart[n], mine[n], shared, most) for n in (0, 1)]
        return joined(*parts, most)

    def _listed(self, piece: Piece | None, keys: list[str], where: list[Constraint], shared: frozenset[str],
                most: int) -> Part:
        """The candidates of a section, or of one half of it; without a piece the answers alone, which cost nothing."""
        wanted = dict.fromkeys([*keys, *self._together(keys, shared)])
        wanted |= dict.fromkeys(key for constraint in where for key in constraint.referenced_names())
        networks, listed, first = Networks(), [], 0
        for table in tables(self.form, wanted, most):
            costs, built = self._priced(piece, table, wanted, networks, first)
            listed.append((table.codes, costs, built & all_hold(where, table.answers, table.rows)))
            first += table.rows
        return _stacked(listed, networks.numbered(first))

    def _together(self, keys: Iterable[str], shared: frozenset[str]) -> list[str]:
        """Keys that ``keys`` depend on and that shared parameters decide: they come up whenever they exist."""
        return [leaf.key for leaf in leaves_behind(self.form, keys) if self._asks(leaf) & shared]

    def _priced(self, piece: Piece | None, table: Table, keys: Container[str], networks: Networks,
                first: int) -> tuple[Any, Any]:
        """Costs and soundness of the candidates of one table, whose networks are noted from place ``first`` on."""
        if table.faulty or piece is None:
            return np.zeros((table.rows, len(self.names)), np.int64), np.full(table.rows, not table.faulty)

        def look(block: Block, index: NDArray[np.int64]) -> None:
            inner = block.inner  # type: ignore[attr-defined]
            words, numbers = signature(inner) if inner is not None else ("", [])
            if self.protocol.lengths:  # equal sections cost alike only for one vocabulary
                numbers = [*numbers, np.broadcast_to(table.answers["vocab"], table.rows)[index]]
            networks.add(words, numbers, first + index)

        costs, built = self._price(piece, piece.build, table, keys, look)
        if piece.half == "ffn":  # what feed-forward networks add to the plainest mixer
            without, plain = self._price(piece, piece.build_rest, table, keys, None)
            costs, built = costs - without, built & plain
        return costs, built

    def _price(self, piece: Piece, build: Build, table: Table, keys: Container[str],
               look: Look | None) -> tuple[Any, Any]:
        def watched(answers: Mapping[str, Any]) -> Block:
            return build(Given(answers, keys, self.form.nodes_by_key, piece))

        costs, built = price(table.answers, table.rows, self.protocol, self.names, watched, look)
        return np.stack([costs[n] for n in self.names], 1), built


def _home(parameters: frozenset[str], halves: list[frozenset[str]]) -> int | None:
    """The half that has all of ``parameters``."""
    return next((n for n, half in enumerate(halves) if parameters <= half), None)


def all_hold(where: Iterable[Constraint], values: Mapping[str, Any], rows: int) -> NDArray[np.bool_]:
    """Which of so many candidates meet constraints; ``values`` may be arrays."""
    good = np.ones(rows, bool)
    for constraint in where:
        good &= holding(constraint, values, rows)
    return good


def holding(constraint: Constraint, values: Mapping[str, Any], rows: int) -> NDArray[np.bool_]:
    """Where a constraint holds; ``values`` may be arrays."""
    good = np.zeros(rows, bool)
    queue = [np.arange(rows)]
    while queue:
        index = queue.pop()
        chosen = dict(taken(values, index))
        try:
            good[index] = constraint.is_satisfied(chosen.__getitem__)
        except PopulationSplitError as split:
            queue += [index[split.labels == label] for label in np.unique(split.labels)]
    return good


def _stacked(listed: list[tuple[Codes, Any, Any]], identity: NDArray[np.int64]) -> Part:
    parameters = tuple(sorted({parameter for codes, *_ in listed for parameter in codes}))
    rows = [np.stack([codes.get(q, np.full(len(good), UNASKED, np.int32)) for q in parameters], 1)
            if parameters else np.zeros((len(good), 0), np.int32) for codes, _, good in listed]
    costs, good = (np.concatenate([item[i] for item in listed]) for i in (1, 2))
    return Part(np.concatenate(rows), parameters, costs, good, identity)
