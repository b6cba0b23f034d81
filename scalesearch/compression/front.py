"""Predicted fronts of a compression study, for any costs and budgets, without training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalesearch.compression.alternatives import (
    Alternative,
    CostDeltas,
    MeasuredCombination,
    Parent,
    cost_deltas,
    evaluate_combination,
)
from scalesearch.compression.solver import PredictedFront, solve
from scalesearch.cost import Protocol
from scalesearch.errors import UserError
from scalesearch.files import read_json
from scalesearch.spaces import Constraint
from scalesearch.spaces.assembly.architecture import ModelSpec, assemble
from scalesearch.spaces.schema.cost_names import COST_NAMES
from scalesearch.spaces.syntax.diagnostics import UnbuildableError

BLOCKS_FOLDER = "blocks"  # of a study
SCORES_FILE = "scores.json"
# These costs of a combination are not the sum of what its alternatives change.
NOT_ADDITIVE_COSTS = ("load.", "latency.", "refusals.")


@dataclass(frozen=True)
class ScoredLibrary:
    """Content of ``scores.json``: the parent, and the rise of the loss with each replacement.

    Attributes:
        config: configuration of the parent.
        parent_loss: its validation loss, in nats per character.
        alternatives: all replacements.
        rises: rise of the loss with each of them.
        standard_errors: of the rises.
        cpu_seconds: CPU time of the library and of the measured combinations.
        measured: measured combinations, before fine-tuning.
        pairs: measured pairs of replacements in neighboring layers.
    """

    config: dict[str, Any]
    parent_loss: float
    alternatives: tuple[Alternative, ...]
    rises: tuple[float, ...]
    standard_errors: tuple[float, ...]
    cpu_seconds: float
    measured: tuple[MeasuredCombination, ...] = ()
    pairs: tuple[MeasuredCombination, ...] = ()

    @property
    def interactions(self) -> dict[tuple[Alternative, Alternative], float]:
        """By how much the rise of each measured pair differs from the sum of both rises."""
        rises = dict(zip(self.alternatives, self.rises))
        differences = {}
        for pair in self.pairs:
            first, second = pair.alternatives
            differences[first, second] = pair.rise - rises[first] - rises[second]
        return differences

    def predicted_rise(self, combination: Sequence[Alternative]) -> float:
        """Predicted rise of the loss of a combination, in nats per character."""
        rises = dict(zip(self.alternatives, self.rises))
        chosen = set(combination)
        return (sum(rises[alternative] for alternative in combination)
                + sum(value for pair, value in self.interactions.items() if chosen >= set(pair)))


@dataclass(frozen=True)
class Prediction:
    """The predicted front of a parent.

    Attributes:
        parent: the parent.
        parent_loss: its validation loss.
        costs: its costs, and how much each alternative changes them.
        front: the non-dominated combinations, in the order of their predicted losses.
        protocol: protocol of the costs.
    """

    parent: Parent
    parent_loss: float
    costs: CostDeltas
    front: PredictedFront
    protocol: Protocol

    def loss_of(self, row: int) -> float:
        """Predicted loss of a combination, in nats per character."""
        return self.parent_loss + float(self.front.loss[row])

    def costs_of(self, row: int) -> dict[str, int | float]:
        """Costs of a combination."""
        totals = (base + float(change)
                  for base, change in zip(self.costs.parent, self.front.costs[row]))
        return {name: int(total) if total.is_integer() else total
                for name, total in zip(self.costs.names, totals)}

    def rows_within(self, limits: Sequence[Constraint]) -> Iterator[int]:
        """Yield the combinations that meet limits, the lowest predicted loss first.

        Costs that are not additive are evaluated exactly. If the costs are those of an export
        format, combinations that it does not support are left out.
        """
        is_exported = "artifact.bytes" in self.costs.names
        for row in range(len(self.front)):
            combination = self.front.combination(row)
            costs: Mapping[str, Any] = self.costs_of(row)

            def lookup(name: str, costs: Mapping[str, Any] = costs,
                       combination: Sequence[Alternative] = combination) -> Any:
                if name in costs:
                    return costs[name]
                if name in COST_NAMES:
                    return evaluate_combination(self.parent, combination, [name], self.protocol)[0]
                return self.parent.configuration(combination)[0][name]

            try:
                fits = all(limit.violation(lookup) <= 0 for limit in limits)
                if fits and is_exported:
                    evaluate_combination(self.parent, combination, ["artifact.bytes"],
                                         self.protocol)
            except UnbuildableError:
                continue
            if fits:
                yield row

    def to_dict(self, row: int) -> dict[str, Any]:
        """A combination as JSON values."""
        combination = self.front.combination(row)
        return {"architecture": self.parent.assemble(combination).id,
                "predicted_loss": self.loss_of(row), **self.costs_of(row),
                "changes": self.parent.describe(combination),
                "replacements": [alternative.name for alternative in combination]}


def predicted_costs(objectives: Iterable[str], limits: Iterable[Constraint]) -> list[str]:
    """Costs of the predicted front: the additive ones among objectives and limits."""
    names = [*objectives, *(name for limit in limits for name in limit.costs)]
    additive = [name for name in names
                if name in COST_NAMES and not name.startswith(NOT_ADDITIVE_COSTS)]
    return list(dict.fromkeys(additive)) or ["params.total"]


def predict_front(parent: Parent, library: ScoredLibrary, names: Sequence[str],
                  limits: Sequence[Constraint],
                  protocol: Protocol) -> tuple[Prediction, list[int]]:
    """Compute the front over predicted loss and costs, and its rows within limits.

    Args:
        parent, library: the parent, and the scores of its replacements.
        names: costs of the front, see :func:`predicted_costs`.
        limits: limits of the rows, the lowest predicted loss first.
        protocol: protocol of the costs.

    Raises:
        UserError: no combination meets the limits, or the front has too many combinations.
    """
    costs = cost_deltas(parent, library.alternatives, names, protocol)
    rises = {alternative: rise for alternative, rise in zip(library.alternatives, library.rises)
             if alternative in costs.deltas}
    front = solve(parent.sizes, list(rises), rises, costs.deltas, library.interactions)
    order = np.argsort(front.loss, kind="stable")
    sorted_front = PredictedFront(front.alternatives, front.loss[order], front.costs[order],
                                  front.choices[order])
    prediction = Prediction(parent, library.parent_loss, costs, sorted_front, protocol)
    rows = list(prediction.rows_within(limits))
    if not rows:
        raise UserError("budget: no combination of replacements meets it",
                        help="raise the budget, or add smaller sizes to `replace`", key="budget",
                        code="budget-unmet")
    return prediction, rows


def frequent_pairs(front: PredictedFront, count: int) -> list[list[Alternative]]:
    """Return the pairs in neighboring layers of a chain that most combinations of a front have."""
    counts: Counter[tuple[Alternative, Alternative]] = Counter()
    for row in range(len(front)):
        combination = front.combination(row)
        counts.update((first, second) for first in combination for second in combination
                     if first.chain == second.chain and first.last + 1 == second.first)
    return [list(pair) for pair, _ in counts.most_common(count)]


def read_library(study: Path) -> tuple[Parent, ScoredLibrary]:
    """Read the scores of a compression study.

    Raises:
        UserError: the study has none.
    """
    file = study / BLOCKS_FOLDER / SCORES_FILE
    if not file.is_file():
        raise UserError(f"{study}: no scores of replacements ({BLOCKS_FOLDER}/{SCORES_FILE})",
                        help="a study of type compress writes them before its first trial",
                        code="no-predictions")
    library = read_json(file, ScoredLibrary)
    assembled: ModelSpec = assemble(library.config)
    return Parent.from_architecture(assembled), library


def geometric_rows(prediction: Prediction, rows: Sequence[int], count: int) -> list[int]:
    """Choose combinations at geometric steps of the first cost, from the first of ``rows`` on.

    At each step it is the one with the lowest predicted loss that costs no more.

    Args:
        rows: combinations in the order of their predicted losses.
        count: number of steps.
    """
    totals = {row: prediction.costs_of(row)[prediction.costs.names[0]] for row in rows}
    chosen: list[int] = []
    for limit in np.geomspace(totals[rows[0]], min(totals.values()), count):
        row = next((row for row in rows if totals[row] <= limit * (1 + 1e-9)), None)
        if row is not None and row not in chosen:
            chosen.append(row)
    return chosen
