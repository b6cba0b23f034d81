"""A space taken apart: each section's candidates with their costs, and the answers that sections share.

Costs add up over embedding, encoder, decoder and output. Once the answers that more than one of
them depends on are fixed, the sections vary independently: it is enough to list each section's own
candidates.
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
from scalesearch.cost.population import BlockBuilder, BlockInspector, evaluate_population_costs, select_candidates
from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.enumeration import NOT_SAMPLED, CandidateTable, ValueIndices, enumerate_tables
from scalesearch.feasible.identity import NetworkNumbering, network_signature
from scalesearch.feasible.pieces import (
    NetworkPiece,
    SectionCandidates,
    TracingConfig,
    UndeclaredReadError,
    join_parts,
    parameters_behind,
    shared_parameters,
    trace_keys_read,
)
from scalesearch.space import Space
from scalesearch.space.assembly.architecture import SECTION_NAMES
from scalesearch.space.parameters.constraints import Constraint
from scalesearch.space.schema.bound_tree import ParameterNode

MAX_ROWS = 6_000_000
# sheets that are built to see which answers count; what they do not show is found while listing
N_TRACE_SAMPLES = 60
HALVED_SECTIONS = ("encoder", "decoder")
PARALLEL_STEPS_PATTERN = re.compile(r"\[[^\]]*\[")  # an order of sub-layers with a list inside
SHARED_PART = "spine"  # what sections share
# what no section depends on, and decides nothing but how many answer sheets there are
REMAINING_PART = "rest"


class Decomposition:
    """A space taken apart: a Part for each section and for the rest, and the ``spine`` of what sections share.

    The spine's rows are the combinations of answers to ``shared`` parameters. A part has only those
    of them among its own parameters that matter to it.

    Raises:
        TooMany, Endless: a section has more candidates than are listed.
    """

    def __init__(self, space: Space, protocol: Protocol, names: tuple[str, ...],
                 max_rows: int = MAX_ROWS) -> None:
        self.space = space
        self.protocol = protocol
        self.names = names
        self.form = space.parameter_space
        self.pieces = {name: self._pieces(name) for name in SECTION_NAMES}
        rng = Random(0)
        samples = [answers
                   for _ in range(N_TRACE_SAMPLES)
                   if not (answers := space.sample(rng)).infeasible_values]
        pieces = [piece for found in self.pieces.values() for piece in found]
        # lengths that follow from it make it part of every piece
        lengths = {"vocab"} if protocol.lengths_by_vocab else set()
        self.keys_read = {piece: trace_keys_read(piece, samples, self.form.nodes_by_key) | lengths
                          for piece in pieces}
        while True:
            try:
                return self._decompose(max_rows)
            except UndeclaredReadError as missed:
                assert isinstance(missed.piece, NetworkPiece)
                self.keys_read[missed.piece].add(missed.key)

    def _decompose(self, max_rows: int) -> None:
        where = [constraint for constraint in self.space.constraints if not constraint.costs]
        coupled = self._unread_parameters()
        needs = {name: self._parameters(self._keys(*pieces))
                 for name, pieces in self.pieces.items()}
        self.constraints: dict[str, list[Constraint]] = {
            name: [] for name in (*SECTION_NAMES, SHARED_PART)}
        for constraint in where:
            parameters = self._parameters(constraint.referenced_names())
            home = next((name for name in SECTION_NAMES if parameters <= needs[name]), SHARED_PART)
            self.constraints[home].append(constraint)
            coupled |= parameters if home == SHARED_PART else set()
        self.shared = frozenset(coupled | shared_parameters(needs.values()))
        self.parts = {name: self._part(name, max_rows) for name in SECTION_NAMES}
        everything = frozenset().union(*needs.values()) | coupled
        rest = [leaf.key for leaf in self.form.nodes if self._parameters([leaf.key]) - everything]
        self.parts[REMAINING_PART] = self._list_candidates(None, rest, [], self.shared, max_rows)
        read = set().union(*self.keys_read.values())
        # What nothing is made from may still have no value, as a width that three heads do not
        # divide.
        spine = [leaf.key
                 for leaf in self.form.nodes
                 if self._parameters_of_leaf(leaf) & self.shared
                 or (leaf.key not in read and self._parameters([leaf.key]) <= self.shared)]
        self.parts[SHARED_PART] = self._list_candidates(
            None, spine, self.constraints[SHARED_PART], self.shared, max_rows)

    # -- what depends on what

    def _pieces(self, name: str) -> tuple[NetworkPiece, ...]:
        """A section, or its halves, unless these hang together.

        So they do in a decoder that borrows feed-forward networks, and where mixers and networks
        stand in parallel.
        """
        loans, orders = (" ".join(str(leaf.domain)
                                  for leaf in self.form.nodes if leaf.key.startswith(key))
                         for key in ("share.decoder", f"{name}.sublayers"))
        if name not in HALVED_SECTIONS or (name == "decoder"
                                           and "encoder.ffn"
                                           in loans) or PARALLEL_STEPS_PATTERN.search(orders):
            return (NetworkPiece(name),)
        return NetworkPiece(name, "mixers"), NetworkPiece(name, "ffn")

    def _unread_parameters(self) -> set[str]:
        """Gives answers that nothing is made from to the piece whose parameters decide whether they come up.

        Returns the parameters of several pieces that decide about one such answer: they have to be
        shared.
        """
        needs = {piece: self._parameters(self._keys(piece)) for piece in self.keys_read}
        sections = [frozenset().union(*(needs[piece] for piece in pieces))
                    for pieces in self.pieces.values()]
        own = frozenset().union(*sections) - shared_parameters(sections)
        coupled: set[str] = set()
        for leaf in self.form.nodes:
            deciding = (self._parameters([leaf.key]) - self._parameters_of_leaf(leaf)) & own
            if deciding and not any(leaf.key in read for read in self.keys_read.values()):
                home = next((piece for piece, asked in needs.items() if deciding <= asked), None)
                if home is not None:
                    self.keys_read[home].add(leaf.key)
                else:
                    coupled |= deciding
        return coupled

    def _keys(self, *pieces: NetworkPiece) -> list[str]:
        """The answers that pieces are made from, in the order of the schema."""
        read = set().union(*(self.keys_read[piece] for piece in pieces))
        return list(dict.fromkeys(leaf.key for leaf in self.form.nodes if leaf.key in read))

    def _parameters_of_leaf(self, leaf: ParameterNode) -> set[str]:
        return {name for name, _ in self.form.domains[leaf.path].parameters()}

    def _parameters(self, keys: Iterable[str]) -> frozenset[str]:
        """Every parameter whose answer may change the values of ``keys``."""
        return frozenset(name for leaf in parameters_behind(self.form, keys)
                         for name in self._parameters_of_leaf(leaf))

    # -- listing

    def _part(self, name: str, max_rows: int) -> SectionCandidates:
        where = self.constraints[name]
        pieces = self.pieces[name]
        apart = [self._keys(piece) for piece in pieces]
        if len(pieces) == 1:
            return self._list_candidates(pieces[0], apart[0], where, self.shared, max_rows)
        parameters = [self._parameters(half) for half in apart]
        homes = [_half_containing(self._parameters(constraint.referenced_names()), parameters)
                 for constraint in where]
        # A constraint over both halves ties them together: both then have its parameters.
        across = [key for constraint, home in zip(where, homes) if home is None
                  for key in constraint.referenced_names()]
        apart = [[*half, *across] for half in apart]
        parameters = [self._parameters(half) for half in apart]
        shared = self.shared | (parameters[0] & parameters[1])
        mine = [[c for c, home in zip(where, homes) if home == n or (home is None and n == 0)]
                for n in (0, 1)]
        parts = [self._list_candidates(pieces[n], apart[n], mine[n], shared, max_rows)
                 for n in (0, 1)]
        return join_parts(*parts, max_rows)

    def _list_candidates(self, piece: NetworkPiece | None, keys: list[str], where: list[Constraint],
                         shared: frozenset[str], max_rows: int) -> SectionCandidates:
        """The candidates of a section, or of one half of it; without a piece the answers alone, which cost nothing."""
        wanted = dict.fromkeys([*keys, *self._decided_keys(keys, shared)])
        wanted |= dict.fromkeys(key for constraint in where
                                for key in constraint.referenced_names())
        networks = NetworkNumbering()
        listed = []
        first = 0
        for table in enumerate_tables(self.form, wanted, max_rows):
            costs, built = self._evaluate_table(piece, table, wanted, networks, first)
            listed.append((table.value_indices, costs,
                           built & constraints_hold(where, table.values, table.n_candidates)))
            first += table.n_candidates
        return _stacked(listed, networks.numbers_of(first))

    def _decided_keys(self, keys: Iterable[str], shared: frozenset[str]) -> list[str]:
        """Keys that ``keys`` depend on and that shared parameters decide: they come up whenever they exist."""
        return [leaf.key
                for leaf in parameters_behind(self.form, keys)
                if self._parameters_of_leaf(leaf) & shared]

    def _evaluate_table(
            self, piece: NetworkPiece | None, table: CandidateTable, keys: Container[str],
            networks: NetworkNumbering, first: int) -> tuple[Any, Any]:
        """Costs and soundness of the candidates of one table, whose networks are noted from place ``first`` on."""
        if table.is_invalid or piece is None:
            return np.zeros((table.n_candidates, len(self.names)),
                            np.int64), np.full(table.n_candidates, not table.is_invalid)

        def look(block: Block, index: NDArray[np.int64]) -> None:
            inner = block.block  # type: ignore[attr-defined]
            words, numbers = network_signature(inner) if inner is not None else ("", [])
            if self.protocol.lengths_by_vocab:  # equal sections cost alike only for one vocabulary
                numbers = [*numbers,
                           np.broadcast_to(table.values["vocab"], table.n_candidates)[index]]
            networks.add(words, numbers, first + index)

        costs, built = self._evaluate_piece(piece, piece.build, table, keys, look)
        if piece.half == "ffn":  # what feed-forward networks add to the plainest mixer
            without, plain = self._evaluate_piece(piece, piece.build_placeholder, table, keys, None)
            costs = costs - without
            built = built & plain
        return costs, built

    def _evaluate_piece(
            self, piece: NetworkPiece, build: BlockBuilder, table: CandidateTable,
            keys: Container[str], inspect_block: BlockInspector | None) -> tuple[Any, Any]:
        def watched(answers: Mapping[str, Any]) -> Block:
            return build(TracingConfig(answers, keys, self.form.nodes_by_key, piece))

        costs, built = evaluate_population_costs(table.values, table.n_candidates, self.protocol, self.names,
                                      watched, inspect_block)
        return np.stack([costs[n] for n in self.names], 1), built


def _half_containing(parameters: frozenset[str], halves: list[frozenset[str]]) -> int | None:
    """The half that has all of ``parameters``."""
    return next((n for n, half in enumerate(halves) if parameters <= half), None)


def constraints_hold(where: Iterable[Constraint], values: Mapping[str, Any],
                     n_candidates: int) -> NDArray[np.bool_]:
    """Which of so many candidates meet constraints; ``values`` may be arrays."""
    good = np.ones(n_candidates, bool)
    for constraint in where:
        good &= constraint_holds(constraint, values, n_candidates)
    return good


def constraint_holds(constraint: Constraint, values: Mapping[str, Any],
                     n_candidates: int) -> NDArray[np.bool_]:
    """Where a constraint holds; ``values`` may be arrays."""
    good = np.zeros(n_candidates, bool)
    queue = [np.arange(n_candidates)]
    while queue:
        index = queue.pop()
        chosen = dict(select_candidates(values, index))
        try:
            good[index] = constraint.is_satisfied(chosen.__getitem__)
        except PopulationSplitError as split:
            queue += [index[split.labels == label] for label in np.unique(split.labels)]
    return good


def _stacked(listed: list[tuple[ValueIndices, Any, Any]],
             identity: NDArray[np.int64]) -> SectionCandidates:
    parameters = tuple(sorted({parameter for codes, *_ in listed for parameter in codes}))
    rows = [np.stack([codes.get(q, np.full(len(good), NOT_SAMPLED, np.int32)) for q in parameters],
                     1) if parameters else np.zeros((len(good), 0), np.int32)
            for codes, _, good in listed]
    costs, good = (np.concatenate([item[i] for item in listed]) for i in (1, 2))
    return SectionCandidates(np.concatenate(rows), parameters, costs, good, identity)
