"""Grammatical error correction by the MaxMatch (M2) score (Dahlmeier & Ng 2012): precision, recall, F0.5 of edits.

Which edits a system made is not in its output; many sets of edits lead from source to output.
MaxMatch takes the set that agrees best with the gold edits, among those that a shortest alignment
of words allows. As in the official scorer (release 3.2):

- The alignments: all of least cost when a replaced word costs 1, and all when it costs 2, in one lattice.
- An edit covers any stretch of the lattice with at least one change and at most ``max_unchanged`` words that do not
  change.
- The set chosen has the most gold edits, then the fewest steps of the lattice outside of them, then the fewest edits.
- Of several annotators of a sentence, the one counts that makes F of all sentences so far the highest; then the one
  with more correct edits; then the one with fewer edits in all.
- Edits that put in words at the same place agree with gold ones in their order only, and each gold edit counts once.

Where the official scorer finds the best set by rules of thumb (marking edges of insertions from
both ends), this one searches all of them. A gold edit that changes nothing counts as missed, as
there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from scalesearch.tasks.base import Metric, MetricOptions, Task, Texts
from scalesearch.tasks.edits import Edits, edit_distances, extract_edits

Vertex = tuple[int, int]  # words of the source and of the hypothesis behind it
Step = tuple[Vertex, bool]  # where to, and whether a word changes
Lattice = dict[Vertex, list[Step]]
# words unchanged in the edit that one is inside of, or OUTSIDE; the next gold insertion here
State = tuple[int, int]
Cost = tuple[int, int, int]  # minus gold edits, steps outside of them, other edits

OUTSIDE_EDIT = -1
BETA = 0.5
MAX_UNCHANGED = 2
METRICS = {"f05": Metric("max", 100.0, "M2 F0.5"),
           "precision": Metric("max", 100.0, "M2 precision"),
           "recall": Metric("max", 100.0, "M2 recall")}


@dataclass(frozen=True)
class EditCounts:
    """Numbers of edits: correct, proposed by the system, and gold."""

    correct: int = 0
    proposed: int = 0
    gold: int = 0

    def __add__(self, other: EditCounts) -> EditCounts:
        return EditCounts(self.correct + other.correct, self.proposed + other.proposed,
                          self.gold + other.gold)

    @property
    def precision(self) -> float:
        """Share of correct edits among those proposed; 1 where none was."""
        return self.correct / self.proposed if self.proposed else 1.0

    @property
    def recall(self) -> float:
        """Share of gold edits that were proposed; 1 where there are none."""
        return self.correct / self.gold if self.gold else 1.0

    def f_score(self, beta: float = BETA) -> float:
        """F measure; precision weighs more the smaller ``beta``. 1 without any edit."""
        below = beta**2 * self.gold + self.proposed
        return (1 + beta**2) * self.correct / below if below else 1.0


def count_edits(sources: Sequence[str], hypotheses: Sequence[str], gold: Sequence[Sequence[Edits]],
                beta: float = BETA, max_unchanged: int = MAX_UNCHANGED) -> EditCounts:
    """Counts of a whole text; ``gold`` holds each sentence's annotators.

    Words are apart by blanks.
    """
    total = EditCounts()
    for source, hypothesis, annotators in zip(sources, hypotheses, gold, strict=True):
        words = hypothesis.split()
        lattice = alignment_lattice(source.split(), words)
        totals = [total + count_matches(lattice, words, edits, max_unchanged)
                  for edits in annotators]
        # The first of equals, as max takes it.
        total = max(totals,
                    key=lambda c: (c.f_score(beta), c.correct, -(c.proposed + beta**2 * c.gold)))
    return total


def alignment_lattice(source: Sequence[str], hypothesis: Sequence[str]) -> Lattice:
    """Lattice of all shortest alignments: each vertex, in order, with its outgoing steps."""
    end = len(source), len(hypothesis)
    steps: dict[Vertex, set[Step]] = {end: set()}
    for replacing in (1, 2):
        distance = edit_distances(source, hypothesis, replacing)
        stack = [end]
        seen = {end}
        while stack:
            i, j = stack.pop()
            for before, cost, changed in _predecessors(i, j, source, hypothesis, replacing):
                if distance[before[0]][before[1]] + cost == distance[i][j]:
                    steps.setdefault(before, set()).add(((i, j), changed))
                    if before not in seen:
                        seen.add(before)
                        stack.append(before)
    return {vertex: sorted(steps[vertex]) for vertex in sorted(steps)}


def _predecessors(i: int, j: int, source: Sequence[str], hypothesis: Sequence[str],
          replacing: int) -> Iterator[tuple[Vertex, int, bool]]:
    """Predecessors of (i, j), the cost of each step, and whether it changes a word."""
    if i:
        yield (i - 1, j), 1, True
    if j:
        yield (i, j - 1), 1, True
    if i and j:
        changed = source[i - 1] != hypothesis[j - 1]
        yield (i - 1, j - 1), replacing * changed, changed


def count_matches(lattice: Lattice, hypothesis: Sequence[str], gold: Edits,
                  max_unchanged: int = MAX_UNCHANGED) -> EditCounts:
    """Counts of one sentence against one annotator's edits."""
    matched, _, others = _LatticeSearch(lattice, hypothesis, gold, max_unchanged).find_best()
    return EditCounts(-matched, others - matched, len(gold))


class _LatticeSearch:
    """Shortest path through a lattice, by dynamic programming from its first vertex to its last."""

    def __init__(self, lattice: Lattice, hypothesis: Sequence[str], gold: Edits,
                 max_unchanged: int) -> None:
        self.lattice = lattice
        self.hypothesis = hypothesis
        self.max_unchanged = max_unchanged
        self.gold: dict[int, list[tuple[int, list[str]]]] = {}
        for edit in gold:
            self.gold.setdefault(edit.start,
                                 []).extend((edit.end, text.split()) for text in edit.corrections)
        self.rank = _edit_ranks(gold)

    def find_best(self) -> Cost:
        costs: dict[Vertex,
                    dict[State, Cost]] = {next(iter(self.lattice)): {(OUTSIDE_EDIT, 0): (0, 0, 0)}}
        here: dict[State, Cost] = {}
        for vertex in self.lattice:
            here = costs.pop(vertex)
            for (unchanged, used), cost in list(here.items()):
                if unchanged != OUTSIDE_EDIT:
                    _relax(here, (OUTSIDE_EDIT, used), cost)  # an edit may end anywhere
            for state, cost in here.items():
                for after, then, (matched, steps, edits) in self._moves(vertex, state):
                    _relax(costs.setdefault(after, {}), then,
                           (cost[0] + matched, cost[1] + steps, cost[2] + edits))
        return min(here.values())

    def _moves(self, vertex: Vertex, state: State) -> Iterator[tuple[Vertex, State, Cost]]:
        """Successors of ``vertex``: by a step outside edits, inside one, or a whole gold edit."""
        unchanged, used = state
        for after, changed in self.lattice[vertex]:
            then = used if after[0] == vertex[0] else 0
            inside = max(unchanged, 0) + (not changed)
            if inside <= self.max_unchanged:
                yield after, (inside, then), (0, 1, unchanged == OUTSIDE_EDIT)
            if unchanged == OUTSIDE_EDIT and not changed:
                yield after, (OUTSIDE_EDIT, then), (0, 1, 0)
        if unchanged == OUTSIDE_EDIT:
            for after, then in self._over_gold(vertex, used):
                yield after, (OUTSIDE_EDIT, then), (-1, 0, 0)

    def _over_gold(self, vertex: Vertex, used: int) -> Iterator[tuple[Vertex, int]]:
        i, j = vertex
        for place, (end, words) in enumerate(self.gold.get(i, ())):
            after = (end, j + len(words))
            rank = self.rank[i][place]
            if (rank < used and end == i) or list(self.hypothesis[j : after[1]]) != words:
                continue
            if self._one_edit(vertex, after):
                yield after, rank + 1 if end == i else 0

    def _one_edit(self, start: Vertex, end: Vertex) -> bool:
        """Whether one edit can lead from ``start`` to ``end`` through the lattice."""
        seen = {(start, 0, False)}
        stack = [(start, 0, False)]
        while stack:
            vertex, unchanged, any_change = stack.pop()
            if vertex == end and any_change:
                return True
            for after, changed in self.lattice[vertex]:
                state = after, unchanged + (not changed), any_change or changed
                if after[0] <= end[0] and after[1] <= end[1] and state[
                        1] <= self.max_unchanged and state not in seen:
                    seen.add(state)
                    stack.append(state)
        return False


def _edit_ranks(gold: Edits) -> dict[int, list[int]]:
    """Index of the edit that each correction belongs to, by place and in order."""
    ranks: dict[int, list[int]] = {}
    counts: dict[int, int] = {}
    for edit in gold:
        rank = counts.get(edit.start, 0)
        ranks.setdefault(edit.start, []).extend([rank] * len(edit.corrections))
        counts[edit.start] = rank + 1
    return ranks


def _relax(costs: dict[State, Cost], state: State, cost: Cost) -> None:
    if state not in costs or cost < costs[state]:
        costs[state] = cost


def m2_scores(hypotheses: Sequence[str], texts: Texts) -> dict[str, Any]:
    """F0.5, precision and recall of edits in per cent, with a signature.

    Without gold edits, those of the references count:
    :func:`scalesearch.tasks.edits.extract_edits`.
    """
    gold = texts.gold_edits
    if gold is None:
        gold = [(extract_edits(old, new),) for old, new in zip(texts.source, texts.target)]
    counts = count_edits(texts.source, hypotheses, gold)
    values = {"f05": counts.f_score(), "precision": counts.precision, "recall": counts.recall}
    signature = (f"MaxMatch|beta:{BETA:g}|max unchanged:{MAX_UNCHANGED}|annotators:{max(map(len, gold))}"
                 f"|correct:{counts.correct}|proposed:{counts.proposed}|gold:{counts.gold}")
    return {**{name: 100 * value for name, value in values.items()}, "m2_signature": signature}


def _score(hypotheses: Sequence[str], texts: Texts, options: MetricOptions) -> dict[str, Any]:
    return m2_scores(hypotheses, texts)


TASK = Task("correction", "corrections", METRICS, score=_score)
