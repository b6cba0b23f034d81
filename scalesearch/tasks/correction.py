"""Grammatical error correction: MaxMatch (M2) precision, recall and F0.5.

MaxMatch is described by Dahlmeier & Ng (2012). The edits of a system are not in its output; many
sets of edits lead from source to output. MaxMatch selects the set that agrees best with the gold
edits, among the sets that a shortest alignment of words allows. As in the official scorer (release
3.2):

- One lattice holds all shortest alignments with replacement cost 1 and all with replacement cost 2.
- An edit covers a path in the lattice with at least one change and at most ``MAX_UNCHANGED``
  unchanged words.
- The selected set has the most gold edits, then the fewest steps outside of gold edits, then the
  fewest edits.
- If a sentence has several annotators, the annotator counts that maximizes F of all sentences so
  far. Ties go to more correct edits, then to fewer edits in total.
- Insertions at the same position match gold insertions only in their order, and each gold edit
  counts once.

The official scorer finds the best set with heuristics (it marks edges of insertions from both
ends); this module searches all sets. As in the official scorer, a gold edit that changes nothing
counts as missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from scalesearch.tasks.base import Metric, Task, Texts
from scalesearch.tasks.edits import Edits, edit_distances, extract_edits

Vertex = tuple[int, int]  # number of source and of hypothesis words before it
Step = tuple[Vertex, bool]  # next vertex, and whether a word changes
Lattice = dict[Vertex, list[Step]]
# Unchanged words in the current edit, or OUTSIDE_EDIT; rank of the next gold insertion at this
# position.
State = tuple[int, int]
Cost = tuple[int, int, int]  # minus the number of gold edits, steps outside of them, other edits

OUTSIDE_EDIT = -1
BETA = 0.5
MAX_UNCHANGED = 2
METRICS = {"f05": Metric("max", 100.0, "M2 F0.5"),
           "precision": Metric("max", 100.0, "M2 precision"),
           "recall": Metric("max", 100.0, "M2 recall")}


@dataclass(frozen=True)
class EditCounts:
    """Numbers of correct, proposed and gold edits."""

    correct: int = 0
    proposed: int = 0
    gold: int = 0

    def __add__(self, other: EditCounts) -> EditCounts:
        return EditCounts(self.correct + other.correct, self.proposed + other.proposed,
                          self.gold + other.gold)

    @property
    def precision(self) -> float:
        """Share of proposed edits that are correct; 1 if none is proposed."""
        return self.correct / self.proposed if self.proposed else 1.0

    @property
    def recall(self) -> float:
        """Share of gold edits that are proposed; 1 without gold edits."""
        return self.correct / self.gold if self.gold else 1.0

    def f_score(self) -> float:
        """F measure; a smaller ``BETA`` gives precision more weight. 1 without any edit."""
        denominator = BETA**2 * self.gold + self.proposed
        return (1 + BETA**2) * self.correct / denominator if denominator else 1.0


def count_edits(sources: Sequence[str], hypotheses: Sequence[str],
                gold: Sequence[Sequence[Edits]]) -> EditCounts:
    """Count the edits of a text whose words are separated by blanks.

    Args:
        gold: for each sentence the edits of each annotator.
    """
    total = EditCounts()
    for source, hypothesis, annotators in zip(sources, hypotheses, gold, strict=True):
        words = hypothesis.split()
        lattice = alignment_lattice(source.split(), words)
        totals = [total + count_matches(lattice, words, edits) for edits in annotators]
        # Ties go to the first annotator, which max returns.
        total = max(totals,
                    key=lambda c: (c.f_score(), c.correct, -(c.proposed + BETA**2 * c.gold)))
    return total


def alignment_lattice(source: Sequence[str], hypothesis: Sequence[str]) -> Lattice:
    """Build the lattice of all shortest alignments; vertices are sorted."""
    end = len(source), len(hypothesis)
    steps: dict[Vertex, set[Step]] = {end: set()}
    for replacement_cost in (1, 2):
        distance = edit_distances(source, hypothesis, replacement_cost)
        stack = [end]
        visited = {end}
        while stack:
            i, j = stack.pop()
            predecessors = []  # vertex, cost of the step, whether it changes a word
            if i:
                predecessors.append(((i - 1, j), 1, True))
            if j:
                predecessors.append(((i, j - 1), 1, True))
            if i and j:
                is_changed = source[i - 1] != hypothesis[j - 1]
                predecessors.append(((i - 1, j - 1), replacement_cost * is_changed, is_changed))
            for previous, cost, changed in predecessors:
                if distance[previous[0]][previous[1]] + cost == distance[i][j]:
                    steps.setdefault(previous, set()).add(((i, j), changed))
                    if previous not in visited:
                        visited.add(previous)
                        stack.append(previous)
    return {vertex: sorted(steps[vertex]) for vertex in sorted(steps)}


def count_matches(lattice: Lattice, hypothesis: Sequence[str], gold: Edits) -> EditCounts:
    """Count the edits of one sentence against the edits of one annotator."""
    matched, _, others = _LatticeSearch(lattice, hypothesis, gold).find_best()
    return EditCounts(-matched, others - matched, len(gold))


class _LatticeSearch:
    """Shortest path through a lattice, by dynamic programming."""

    def __init__(self, lattice: Lattice, hypothesis: Sequence[str], gold: Edits) -> None:
        self.lattice = lattice
        self.hypothesis = hypothesis
        self.gold: dict[int, list[tuple[int, list[str]]]] = {}
        for edit in gold:
            self.gold.setdefault(edit.start,
                                 []).extend((edit.end, text.split()) for text in edit.corrections)
        # index of each correction among the edits at its start position
        self.rank: dict[int, list[int]] = {}
        counts: dict[int, int] = {}
        for edit in gold:
            rank = counts.get(edit.start, 0)
            self.rank.setdefault(edit.start, []).extend([rank] * len(edit.corrections))
            counts[edit.start] = rank + 1

    def find_best(self) -> Cost:
        """Return the lowest cost of a path."""
        costs: dict[Vertex,
                    dict[State, Cost]] = {next(iter(self.lattice)): {(OUTSIDE_EDIT, 0): (0, 0, 0)}}
        vertex_costs: dict[State, Cost] = {}
        for vertex in self.lattice:
            vertex_costs = costs.pop(vertex)
            for (unchanged, used), cost in list(vertex_costs.items()):
                if unchanged != OUTSIDE_EDIT:
                    _relax(vertex_costs, (OUTSIDE_EDIT, used), cost)  # an edit may end anywhere
            for state, cost in vertex_costs.items():
                for next_vertex, next_state, (matched, steps, edits) in self._moves(vertex, state):
                    next_cost = cost[0] + matched, cost[1] + steps, cost[2] + edits
                    _relax(costs.setdefault(next_vertex, {}), next_state, next_cost)
        return min(vertex_costs.values())

    def _moves(self, vertex: Vertex, state: State) -> Iterator[tuple[Vertex, State, Cost]]:
        """Yield successors by a step outside or inside an edit, or by a gold edit."""
        unchanged, used = state
        for next_vertex, changed in self.lattice[vertex]:
            next_used = used if next_vertex[0] == vertex[0] else 0
            next_unchanged = max(unchanged, 0) + (not changed)
            if next_unchanged <= MAX_UNCHANGED:
                yield next_vertex, (next_unchanged, next_used), (0, 1, unchanged == OUTSIDE_EDIT)
            if unchanged == OUTSIDE_EDIT and not changed:
                yield next_vertex, (OUTSIDE_EDIT, next_used), (0, 1, 0)
        if unchanged == OUTSIDE_EDIT:
            i, j = vertex
            for index, (end, words) in enumerate(self.gold.get(i, ())):
                next_vertex = end, j + len(words)
                rank = self.rank[i][index]  # insertions at the same place are in order
                if ((rank >= used or end != i)
                    and list(self.hypothesis[j : next_vertex[1]]) == words
                        and self._is_one_edit(vertex, next_vertex)):
                    next_used = rank + 1 if end == i else 0
                    yield next_vertex, (OUTSIDE_EDIT, next_used), (-1, 0, 0)

    def _is_one_edit(self, start: Vertex, end: Vertex) -> bool:
        """Whether one edit can lead from ``start`` to ``end`` through the lattice."""
        visited = {(start, 0, False)}
        stack = [(start, 0, False)]
        while stack:
            vertex, unchanged, has_change = stack.pop()
            if vertex == end and has_change:
                return True
            for next_vertex, changed in self.lattice[vertex]:
                state = next_vertex, unchanged + (not changed), has_change or changed
                if (next_vertex[0] <= end[0] and next_vertex[1] <= end[1]
                    and state[1] <= MAX_UNCHANGED and state not in visited):
                    visited.add(state)
                    stack.append(state)
        return False


def _relax(costs: dict[State, Cost], state: State, cost: Cost) -> None:
    if state not in costs or cost < costs[state]:
        costs[state] = cost


def m2_scores(hypotheses: Sequence[str], texts: Texts) -> dict[str, Any]:
    """Compute F0.5, precision and recall of edits in percent, with a signature.

    Without gold edits, edits are extracted from the references with :func:`extract_edits`.
    """
    gold = texts.gold_edits
    if gold is None:
        gold = [(extract_edits(source, reference),)
                for source, reference in zip(texts.source, texts.target)]
    counts = count_edits(texts.source, hypotheses, gold)
    values = {"f05": counts.f_score(), "precision": counts.precision, "recall": counts.recall}
    signature = (f"MaxMatch|beta:{BETA:g}|max unchanged:{MAX_UNCHANGED}"
                 f"|annotators:{max(map(len, gold))}"
                 f"|correct:{counts.correct}|proposed:{counts.proposed}|gold:{counts.gold}")
    return {**{name: 100 * value for name, value in values.items()}, "m2_signature": signature}


TASK = Task("correction", "corrections", METRICS,
            score=lambda hypotheses, texts, options: m2_scores(hypotheses, texts))
