"""Decomposition of a space into sections that vary independently.

Costs add up over embedding, encoder, decoder and output. If the parameters that more than one of
these sections depends on are fixed, the sections vary independently. It is then enough to list the
candidates of each section.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.core import Block
from scalesearch.blocks.sizes import map_structures
from scalesearch.cost.population import (
    BlockBuilder,
    BlockInspector,
    evaluate_population_costs,
    select_candidates,
)
from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.enumeration import (
    NOT_SAMPLED,
    CandidateTable,
    ValueIndices,
    enumerate_tables,
    too_many_combinations,
)
from scalesearch.feasible.identity import NetworkNumbering
from scalesearch.feasible.pieces import (
    NetworkPiece,
    SectionCandidates,
    TracedConfig,
    join_parts,
    parameters_behind,
    shared_parameters,
)
from scalesearch.spaces import Space, UnbuildableError
from scalesearch.spaces.assembly.architecture import SECTION_NAMES
from scalesearch.spaces.parameters.constraints import Constraint
from scalesearch.spaces.parameters.count import estimate_combinations
from scalesearch.spaces.parameters.param_values import ParamAssignment, SuggestFunction
from scalesearch.spaces.schema.bound_tree import ParameterNode

MAX_ROWS = 6_000_000
MAX_ERROR = 3  # of the estimated number of rows, in standard errors
# Random configurations that are built to find the keys that a section reads. Keys that they do not
# show are found while candidates are listed.
N_TRACE_SAMPLES = 60
HALVED_SECTIONS = ("encoder", "decoder")
PARALLEL_STEPS_PATTERN = re.compile(r"\[[^\]]*\[")  # an order of sub-layers with a list inside
SHARED_PART = "shared"  # parameters that several sections depend on
# Parameters that no section depends on. They only affect the number of configurations.
REMAINING_PART = "remaining"


class Decomposition:
    """Candidates of every section, of shared parameters and of remaining parameters.

    Args:
        names: costs to evaluate.
        max_rows: maximum number of candidates of a section.

    Attributes:
        parts: candidates by section name, and by ``SHARED_PART`` and ``REMAINING_PART``. The rows
            of the shared part are all combinations of shared parameters. Another part only has
            the shared parameters that it depends on.
        columns: names of the columns of costs: ``names``.
        shared: names of the shared parameters.
        pieces: sections, or their halves, whose candidates are listed together.
        keys_read: keys that a piece of the network depends on.
        constraints: constraints on parameters, by the part that decides them.

    Raises:
        TooManyCandidatesError: a section has more than ``max_rows`` candidates.
        ContinuousRangeError: the space has a continuous range.
    """

    def __init__(self, space: Space, protocol: Protocol, names: tuple[str, ...],
                 max_rows: int = MAX_ROWS) -> None:
        self.space = space
        # Sections cannot be exported, and bytes of the exported model are not a sum over them.
        self.protocol = replace(protocol, artifact=None)
        self.names = names
        self.columns = names
        self.parameter_space = space.parameter_space
        self.pieces = {name: self._pieces(name) for name in SECTION_NAMES}
        rng = Random(0)
        samples = [space.sample(rng) for _ in range(N_TRACE_SAMPLES)]
        samples = [values for values in samples if not values.infeasible_values]
        # If sentence lengths depend on the vocabulary, the cost of every piece does.
        length_keys = {"vocab"} if protocol.lengths_by_vocab else set()
        space_keys = self.parameter_space.nodes_by_key
        self.keys_read: dict[NetworkPiece, set[str]] = {}
        for piece in (piece for pieces in self.pieces.values() for piece in pieces):
            self.keys_read[piece] = set(length_keys)
            for values in samples:
                with suppress(UnbuildableError):
                    piece.build(TracedConfig(values, space_keys, space_keys, self.keys_read[piece]))
        is_complete = False
        while not is_complete:
            is_complete = self._decompose(max_rows)

    def _decompose(self, max_rows: int) -> bool:
        """List the candidates of all parts, unless a piece reads a key that no sample has shown.

        Returns:
            whether all parts are listed; if not, the key was added to ``keys_read``.
        """
        constraints = [constraint for constraint in self.space.constraints if not constraint.costs]
        # Keys that no piece reads belong to the piece that decides whether they exist. If several
        # pieces decide, their parameters have to be shared.
        piece_parameters = {piece: self._parameters(self._keys(piece)) for piece in self.keys_read}
        sections = [frozenset().union(*(piece_parameters[piece] for piece in pieces))
                    for pieces in self.pieces.values()]
        unshared = frozenset().union(*sections) - shared_parameters(sections)
        coupled: set[str] = set()
        for node in self.parameter_space.nodes:
            deciding = (self._parameters([node.key]) - self._parameters_of_node(node)) & unshared
            if deciding and not any(node.key in keys for keys in self.keys_read.values()):
                piece = next((piece for piece, parameters in piece_parameters.items()
                              if deciding <= parameters), None)
                if piece is not None:
                    self.keys_read[piece].add(node.key)
                else:
                    coupled |= deciding
        section_parameters = {name: self._parameters(self._keys(*pieces))
                              for name, pieces in self.pieces.items()}
        self.constraints: dict[str, list[Constraint]] = {
            name: [] for name in (*SECTION_NAMES, SHARED_PART)}
        for constraint in constraints:
            parameters = self._parameters(constraint.referenced_names())
            deciding_part = next((name for name in SECTION_NAMES
                                  if parameters <= section_parameters[name]), SHARED_PART)
            self.constraints[deciding_part].append(constraint)
            coupled |= parameters if deciding_part == SHARED_PART else set()
        self.shared = frozenset(coupled | shared_parameters(section_parameters.values()))
        n_keys_read = sum(map(len, self.keys_read.values()))
        self.parts = {}
        for name in SECTION_NAMES:
            self.parts[name] = self._part(name, max_rows)
            if sum(map(len, self.keys_read.values())) > n_keys_read:
                return False
        used = frozenset().union(*section_parameters.values()) | coupled
        nodes = self.parameter_space.nodes
        remaining_keys = [node.key for node in nodes if self._parameters([node.key]) - used]
        self.parts[REMAINING_PART] = self._list_candidates(None, remaining_keys, [], self.shared,
                                                           max_rows)
        read = set().union(*self.keys_read.values())
        # A key that no piece reads may still have no value, for example a width that is not
        # divisible by the number of heads.
        shared_keys = [node.key for node in nodes
                       if self._parameters_of_node(node) & self.shared
                       or (node.key not in read and self._parameters([node.key]) <= self.shared)]
        self.parts[SHARED_PART] = self._list_candidates(
            None, shared_keys, self.constraints[SHARED_PART], self.shared, max_rows)
        return True

    # -- dependencies

    def _pieces(self, name: str) -> tuple[NetworkPiece, ...]:
        """A section as one piece, or as its two halves if they are independent.

        The halves depend on each other if the decoder ties feed-forward networks to the encoder,
        or if mixers and feed-forward networks run in parallel.
        """
        ties = self._domain_text("share.decoder")
        is_tied = name == "decoder" and "encoder.ffn" in ties
        is_parallel = PARALLEL_STEPS_PATTERN.search(self._domain_text(f"{name}.sublayers"))
        if name not in HALVED_SECTIONS or is_tied or is_parallel:
            return (NetworkPiece(name),)
        return NetworkPiece(name, "mixers"), NetworkPiece(name, "ffn")

    def _domain_text(self, prefix: str) -> str:
        """Text of the domains of all keys that start with ``prefix``."""
        return " ".join(str(node.domain)
                        for node in self.parameter_space.nodes if node.key.startswith(prefix))

    def _keys(self, *pieces: NetworkPiece) -> list[str]:
        """Keys that pieces read, in the order of the schema."""
        read = set().union(*(self.keys_read[piece] for piece in pieces))
        return list(dict.fromkeys(node.key for node in self.parameter_space.nodes
                                  if node.key in read))

    def _parameters_of_node(self, node: ParameterNode) -> set[str]:
        return {name for name, _ in self.parameter_space.domains[node.path].parameters()}

    def _parameters(self, keys: Iterable[str]) -> frozenset[str]:
        """All parameters that the values of ``keys`` depend on."""
        return frozenset(name for node in parameters_behind(self.parameter_space, keys)
                         for name in self._parameters_of_node(node))

    # -- candidates

    def _part(self, name: str, max_rows: int) -> SectionCandidates:
        """Candidates of a section."""
        constraints = self.constraints[name]
        pieces = self.pieces[name]
        keys = [self._keys(piece) for piece in pieces]
        if len(pieces) == 1:
            return self._list_candidates(pieces[0], keys[0], constraints, self.shared, max_rows)
        parameters = [self._parameters(half_keys) for half_keys in keys]
        halves = []  # index of the half that has all parameters of the constraint, or None
        for constraint in constraints:
            referenced = self._parameters(constraint.referenced_names())
            halves.append(next((index for index, half in enumerate(parameters)
                                if referenced <= half), None))
        # A constraint on both halves couples them: both then have its parameters.
        coupled_keys = [key for constraint, half in zip(constraints, halves) if half is None
                        for key in constraint.referenced_names()]
        keys = [[*half_keys, *coupled_keys] for half_keys in keys]
        parameters = [self._parameters(half_keys) for half_keys in keys]
        shared = self.shared | (parameters[0] & parameters[1])
        half_constraints: tuple[list[Constraint], list[Constraint]] = ([], [])
        for constraint, half in zip(constraints, halves):
            half_constraints[half or 0].append(constraint)
        first, second = (self._list_candidates(pieces[half], keys[half], half_constraints[half],
                                               shared, max_rows) for half in (0, 1))
        return join_parts(first, second, max_rows)

    def _list_candidates(self, piece: NetworkPiece | None, keys: list[str],
                         constraints: list[Constraint], shared: frozenset[str],
                         max_rows: int) -> SectionCandidates:
        """Candidates of a section or half of it; without a piece, their costs are 0."""
        needed = dict.fromkeys(keys)
        needed |= dict.fromkeys(node.key for node in parameters_behind(self.parameter_space, keys)
                                if self._parameters_of_node(node) & shared)
        needed |= dict.fromkeys(key for constraint in constraints
                                for key in constraint.referenced_names())
        self._check_size(needed, max_rows)
        networks = NetworkNumbering(self.protocol)
        tables = []
        n_rows = 0
        for table in enumerate_tables(self.parameter_space, needed, max_rows):
            costs, is_buildable = self._evaluate_table(piece, table, needed, networks, n_rows)
            is_valid = is_buildable & constraints_hold(constraints, table.values,
                                                       table.n_candidates)
            tables.append((table.value_indices, costs, is_valid))
            n_rows += table.n_candidates
        return stack_candidates(tables, networks.numbers_of(n_rows))

    def _check_size(self, keys: Collection[str], max_rows: int) -> None:
        """Refuse too many combinations before they are evaluated, which takes a minute."""
        parameters = dict(self.space.parameters())
        counts = [parameters[name].count() for name in self._parameters(keys)]
        if None in counts or math.prod(filter(None, counts)) <= max_rows:
            return

        def request_values(suggest: SuggestFunction) -> None:
            assignment = ParamAssignment(self.parameter_space, suggest)
            for key in keys:
                assignment.value_of(key)

        estimate, standard_error = estimate_combinations(request_values)
        if estimate - MAX_ERROR * standard_error > max_rows:
            raise too_many_combinations(max_rows)

    def _evaluate_table(
            self, piece: NetworkPiece | None, table: CandidateTable, keys: Container[str],
            networks: NetworkNumbering, first_row: int) -> tuple[Any, Any]:
        """Evaluate one table of candidates, and number their networks.

        Returns:
            costs (candidates, names), and the mask (candidates,) of those that can be built.
        """
        if table.is_invalid or piece is None:
            no_costs = np.zeros((table.n_candidates, len(self.names)), np.int64)
            return no_costs, np.full(table.n_candidates, not table.is_invalid)

        def number_networks(section: Any, index: NDArray[np.int64]) -> None:
            networks.add(section.block, table, index, first_row, section.model_nests)

        costs, is_buildable = self._evaluate_piece(piece, piece.build, table, keys, number_networks)
        if piece.half == "ffn":  # costs of feed-forward networks, without the placeholder mixer
            placeholder_costs, is_placeholder_buildable = self._evaluate_piece(
                piece, piece.build_placeholder, table, keys, None)
            costs = costs - placeholder_costs
            is_buildable = is_buildable & is_placeholder_buildable
        return costs, is_buildable

    def _evaluate_piece(
            self, piece: NetworkPiece, build: BlockBuilder, table: CandidateTable,
            keys: Container[str], inspect_block: BlockInspector | None) -> tuple[Any, Any]:
        keys_read: set[str] = set()

        def build_traced(config: Mapping[str, Any]) -> Block:
            return build(TracedConfig(config, keys, self.parameter_space.nodes_by_key, keys_read))

        costs, is_buildable = evaluate_population_costs(
            table.values, table.n_candidates, self.protocol, self.names, build_traced,
            inspect_block)
        self.keys_read[piece] |= {key for key in keys_read if key not in keys}
        return np.stack([costs[name] for name in self.names], 1), is_buildable


def constraints_hold(constraints: Iterable[Constraint], values: Mapping[str, Any],
                     n_candidates: int) -> NDArray[np.bool_]:
    """Mask (n_candidates,) of candidates that meet all constraints."""
    is_valid = np.ones(n_candidates, bool)
    for constraint in constraints:
        is_valid &= constraint_holds(constraint, values, n_candidates)
    return is_valid


def constraint_holds(constraint: Constraint, values: Mapping[str, Any],
                     n_candidates: int) -> NDArray[np.bool_]:
    """Mask (n_candidates,) of candidates that meet a constraint.

    Args:
        values: key or cost to the value of all candidates, or to an array with one per candidate.
    """
    def is_satisfied(group: Any) -> bool:
        return constraint.is_satisfied(dict(select_candidates(values, group)).__getitem__)

    is_valid = np.zeros(n_candidates, bool)
    for group, is_group_valid in map_structures(is_satisfied, 0, n_candidates):
        is_valid[group] = is_group_valid
    return is_valid


def stack_candidates(tables: list[tuple[ValueIndices, Any, Any]],
             network_numbers: NDArray[np.int64]) -> SectionCandidates:
    """Concatenate tables (value indices, costs, is_valid) of candidates."""
    parameters = tuple(sorted({parameter for indices, *_ in tables for parameter in indices}))
    rows = []
    for indices, _, is_valid in tables:
        missing = np.full(len(is_valid), NOT_SAMPLED, np.int32)
        columns = [indices.get(parameter, missing) for parameter in parameters]
        rows.append(np.stack(columns, 1) if columns else np.zeros((len(is_valid), 0), np.int32))
    costs = np.concatenate([table_costs for _, table_costs, _ in tables])
    all_valid = np.concatenate([is_valid for *_, is_valid in tables])
    return SectionCandidates(np.concatenate(rows), parameters, costs, all_valid, network_numbers)
