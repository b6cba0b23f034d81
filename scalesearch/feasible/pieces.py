"""Pieces of a network whose candidates are listed separately.

A piece is a section, or one half of a stack. The costs that a feed-forward network adds to a stack
do not depend on the mixer, and the other way round: weights, ties and work are separate. Each half
is therefore listed with a plain placeholder for the other half. The halves are joined on the
parameters that both depend on. A stack with 1,000 mixers and 1,000 feed-forward networks then has
2,000 structures to cost instead of a million.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.feasible.enumeration import too_many_combinations
from scalesearch.feasible.identity import number_rows
from scalesearch.spaces import UnbuildableError
from scalesearch.spaces.assembly.architecture import build_section
from scalesearch.spaces.assembly.components import with_changes
from scalesearch.spaces.parameters.param_values import ParameterSpace
from scalesearch.spaces.schema.bound_tree import ParameterNode
from scalesearch.spaces.syntax.domains import OWN_WEIGHTS, iter_expressions
from scalesearch.spaces.syntax.expressions import keys_of

Config = Mapping[str, Any]
# The smallest mixer: attention with one head of one feature.
_PLAIN_MIXER_CONFIG = {"mixer": "attention", "local": "none", "heads": 1, "head_dim": 1,
                       "score_heads": 1, "head_scaling": "none", "key_value_heads": "off",
                       "gate": "none", "mask": "none", "lift": "none", "cross": "attention",
                       "relative_positions": False, "rotary": False, "residual_scores": "none",
                       "position_buckets": 0, "window": 0, "qk_norm": "none", "alibi": False,
                       "soft_cap": 0, "global_every": 0, "score_dim": 0, "alibi_scaled": False,
                       "cross_gate": "none", "projections": "matrices", "projection_bias": True,
                       "out_bias": True, "cross_heads": 1, "parallel_heads": "off", "pg": "none",
                       "attention_rank": 0, "cross_rank": 0, "cross_key_value_heads": "off"}
_ATTENTION_SLOTS = {"encoder": ("attention",), "decoder": ("self", "cross")}


# -- pieces


@dataclass(frozen=True)
class NetworkPiece:
    """A section, or one half of a stack.

    Attributes:
        half: ``mixers`` (everything except feed-forward networks), ``ffn``, or empty for both.
    """

    section: str
    half: str = ""

    def with_plain_other_half(self, config: Config) -> Config:
        """``config`` with a placeholder for the other half."""
        if not self.half:
            return config
        stack = self.section
        if self.half == "mixers":
            changes = _without_ffn(stack)
        else:  # the smallest mixer
            changes = {f"{stack}.{name}": value for name, value in _PLAIN_MIXER_CONFIG.items()}
            changes |= {f"share.{stack}.{slot}": OWN_WEIGHTS for slot in _ATTENTION_SLOTS[stack]}
            changes |= {"tensor_chain.attention": "off", "low_rank.attention": "off",
                        "matrices.attention": "dense", "matrices.out": "dense"}
        return with_changes(config, changes)

    def build(self, config: Config) -> Any:
        """Build the section, with a placeholder for the other half."""
        return build_section(self.with_plain_other_half(config), self.section)

    def build_placeholder(self, config: Config) -> Any:
        """Build only the placeholder mixers, whose costs are subtracted from ``ffn``."""
        mixers = self.with_plain_other_half(config)
        return build_section(with_changes(mixers, _without_ffn(self.section)), self.section)


def _without_ffn(stack: str) -> dict[str, Any]:
    """Values of a stack without feed-forward networks."""
    return {f"{stack}.ffn": "none", f"share.{stack}.ffn": OWN_WEIGHTS, "tensor_chain.ffn": "off",
            "low_rank.ffn": "off", "matrices.ffn": "dense", f"{stack}.interleaved": False}


@dataclass(frozen=True)
class SectionCandidates:
    """Candidates of one part of a space, one row each.

    Attributes:
        value_indices: (rows, parameters) index of each value; NOT_SAMPLED if the parameter does
            not exist for this candidate.
        parameters: names of the parameters.
        costs: (rows, costs).
        is_valid: (rows,) whether the section can be built and meets its constraints.
        network_numbers: (rows,) rows with equal numbers are the same network.
    """

    value_indices: NDArray[np.int32]
    parameters: tuple[str, ...]
    costs: NDArray[np.int64]
    is_valid: NDArray[np.bool_]
    network_numbers: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.is_valid)


def number_shared_values(left: SectionCandidates,
                         right: SectionCandidates) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number the rows of two parts by the values of the parameters that both have."""
    common = [parameter for parameter in left.parameters if parameter in right.parameters]
    columns = (np.concatenate([part.value_indices[:, part.parameters.index(parameter)]
                               for part in (left, right)]).astype(np.int64)
               for parameter in common)
    numbers = number_rows(columns, len(left) + len(right))
    return numbers[: len(left)], numbers[len(left) :]


def join_parts(left: SectionCandidates, right: SectionCandidates,
               max_rows: int) -> SectionCandidates:
    """Join the rows of two parts that have equal values of the parameters of both.

    Raises:
        TooManyCandidatesError: there are more than ``max_rows`` joined rows.
    """
    left_numbers, right_numbers = number_shared_values(left, right)
    order = np.argsort(right_numbers, kind="stable")
    starts = np.searchsorted(right_numbers[order], left_numbers, "left")
    ends = np.searchsorted(right_numbers[order], left_numbers, "right")
    n_partners = ends - starts
    if n_partners.sum() > max_rows:
        raise too_many_combinations(max_rows)
    left_rows = np.repeat(np.arange(len(left)), n_partners)
    offsets = np.arange(len(left_rows)) - np.repeat(np.cumsum(n_partners) - n_partners, n_partners)
    right_rows = order[np.repeat(starts, n_partners) + offsets]
    new_columns = [column
                   for column, parameter in enumerate(right.parameters)
                   if parameter not in left.parameters]
    indices = np.concatenate([left.value_indices[left_rows],
                              right.value_indices[right_rows][:, new_columns]], 1)
    parameters = (*left.parameters, *(right.parameters[column] for column in new_columns))
    is_valid = left.is_valid[left_rows] & right.is_valid[right_rows]
    networks = number_rows([left.network_numbers[left_rows], right.network_numbers[right_rows]],
                           len(left_rows))
    costs = left.costs[left_rows] + right.costs[right_rows]
    return SectionCandidates(indices, parameters, costs, is_valid, np.where(is_valid, networks, -1))


# -- keys that pieces read


class TracedConfig(Mapping[str, Any]):
    """A configuration that records which keys of the space are read.

    Args:
        known_keys: keys whose values are in ``config``, if they exist. To read another key of the
            space raises UnbuildableError.
        space_keys: all keys of the space.
        keys_read: set to which the keys are added.
    """

    def __init__(self, config: Config, known_keys: Container[str], space_keys: Container[str],
                 keys_read: set[str]) -> None:
        self.config = config
        self.known_keys = known_keys
        self.space_keys = space_keys
        self.keys_read = keys_read

    def __getitem__(self, key: str) -> Any:
        if key in self.space_keys:
            self.keys_read.add(key)
            if key not in self.known_keys:
                raise UnbuildableError(key, "has no value yet")
        return self.config[key]

    def __iter__(self) -> Iterator[str]:
        raise TypeError("keys must be read one by one, so that they can be traced")

    def __len__(self) -> int:
        return len(self.config)


def parameters_behind(space_parameters: ParameterSpace, keys: Iterable[str]) -> list[ParameterNode]:
    """Nodes of ``keys``, and all nodes that their values depend on."""
    nodes: dict[str, ParameterNode] = {}
    queue = list(keys)
    while queue:
        for node in space_parameters.nodes_by_key.get(queue.pop(), ()):
            if node.path not in nodes:
                nodes[node.path] = node
                queue += [key for expr in iter_expressions(node.domain) for key in keys_of(expr)]
                queue += [group for group, _ in node.guards]
                queue += [node.field.depth_key] if node.field.depth_key else []
    return list(nodes.values())


def shared_parameters(parameters_by_piece: Iterable[frozenset[str]]) -> set[str]:
    """Parameters of more than one piece."""
    counts = Counter(parameter for parameters in parameters_by_piece for parameter in parameters)
    return {parameter for parameter, count in counts.items() if count > 1}
