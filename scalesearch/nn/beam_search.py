"""Beam search over whole batches, with cached keys and values; see :mod:`scalesearch.nn.decode`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scalesearch.nn.decode import (
    BOS,
    EOS,
    NEG_INF,
    PAD,
    Hypotheses,
    blockwise_topk,
    length_limits,
    next_logits,
    with_cached_weights,
)
from scalesearch.nn.model import SourceGroups


@with_cached_weights
def beam_search(model: Any, source: Tensor, beam: int = 5, length_penalty: float = 1.0,
                max_length: int | Tensor | None = None, nbest: int = 1,
                eos: int = EOS) -> Hypotheses:
    """Beam search in which a finished hypothesis keeps its place: ``beam`` = 1 is greedy.

    Score: log P(y | x) / \\|y\\|^α, with EOS counted in \\|y\\| and α = ``length_penalty`` ≥ 0
    (fairseq's ``lenpen``; not GNMT's ((5 + \\|y\\|) / 6)^α). A sentence is done when all its places
    have ended, or as soon as no unfinished hypothesis can still reach its ``nbest``-th best: log P
    only falls, and the divisor is at most that of the greatest length. That bound changes no
    result.

    Args:
        model: in eval mode, on the device of ``source``.
        source: (B, S) ids, PAD = 0 at the end.
        max_length: tokens of a translation, or of each (B,), at most (:func:`longest` by default);
            EOS then follows.
        nbest: how many to return, at most ``beam``.
    """
    if not (beam >= nbest >= 1 and length_penalty >= 0):
        raise ValueError(f"beam {beam}, nbest {nbest}, penalty {length_penalty}: beam >= nbest >= "
                         "1, penalty >= 0")
    search = _BeamSearchState(source, beam, length_penalty,
                              length_limits(model, source, max_length), nbest, eos)
    sources = _SourceState(model, source)
    rows = search.first()
    token = source.new_full((len(source),), BOS)
    for step in range(int(search.limit.max()) + 1):
        logits, norm = next_logits(model, token, sources.memory, sources.cache)
        parents, sentences, token = search.advance(step, logits, norm, rows)
        if not len(parents):
            break
        sources.select(parents, sentences, torch.equal(sentences, rows // beam))
        rows = search.rows
    return search.result()


class _SourceState:
    """Memory and cache of a beam search, by sentence where the model can."""

    def __init__(self, model: Any, source: Tensor) -> None:
        self.memory = model.encode(source)
        self.cache = model.new_cache()
        self.first = self.memory  # of all sentences
        self.shared = getattr(model, "shares_sources", False)
        self.active_sources = torch.arange(len(source), device=source.device)

    def select(self, parents: Tensor, sentences: Tensor, same: bool) -> None:
        """Go on with rows that continue ``parents`` and belong to ``sentences``; ``same``: as they did before."""
        self.cache.select(parents, same or self.shared)
        if same:
            return
        if not self.shared:
            self.memory = self.first.select(sentences)
            return
        groups = SourceGroups.from_sources(sentences)
        kept = torch.searchsorted(self.active_sources, groups.sources)
        self.cache.group_by_source(groups, kept)
        self.memory = self.memory.select(kept)
        self.active_sources = groups.sources


class _BeamSearchState:
    """The state of a beam search: B · K places, of which ``rows`` are alive, and ended hypotheses.

    A step keeps, for each place, the place it came from and its token; translations are read
    backwards at the end.
    """

    def __init__(self, source: Tensor, beam: int, penalty: float, limit: Tensor, nbest: int,
                 eos: int) -> None:
        self.size = beam
        self.penalty = penalty
        self.limit = limit
        self.nbest = nbest
        self.eos = eos
        self.shortest = int(limit.min())
        shape = (len(source), beam)
        self.alive = torch.full(shape, NEG_INF, dtype=torch.float64, device=source.device)
        self.alive[:, 0] = 0.0
        # the last place takes what is written of those that do not end
        room = (len(source), beam + 1)
        self.scores = torch.full(room, NEG_INF, dtype=torch.float64, device=source.device)
        self.end_steps = source.new_zeros(room)  # the step at which each ended
        self.end_parents = source.new_zeros(room)  # the place that it had come to before
        self.num_ended = source.new_zeros(len(source))
        self.history: list[tuple[Tensor, Tensor]] = []

    def first(self) -> Tensor:
        """One row a sentence: all its beams are still the same."""
        self.rows = torch.arange(len(self.alive), device=self.alive.device) * self.size
        return self.rows

    def advance(self, step: int, logits: Tensor, norm: Tensor, rows: Tensor) -> tuple[
            Tensor, Tensor, Tensor]:
        """Advance by one step from logits (R, V): rows to continue, their sentences, their tokens."""
        scores, tokens = self._candidates(step, logits, norm, rows)  # (B, K · k) each
        best, place = scores.topk(self.size, 1)
        parent = place // (scores.shape[1] // self.size)
        token = tokens.gather(1, place)
        room = torch.arange(self.size, device=rows.device) < (self.size - self.num_ended)[:, None]
        valid = room & (best > NEG_INF)
        ending = valid & (token == self.eos)
        self._end(step, ending, best, parent)
        self.alive = best.masked_fill(~valid | ending, NEG_INF)
        self.alive.masked_fill_(self._finished_sentences()[:, None], NEG_INF)
        self.history.append((parent, token))
        return self._survivors(rows, parent, token)

    def _candidates(
            self, step: int, logits: Tensor, norm: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The best continuations of every place: those of a sentence are among the best of each of its places."""
        # before, nobody can be at the limit, and asking the device would wait for it
        if step >= self.shortest:
            last = step == self.limit[rows // self.size]
            only_eos = torch.full_like(logits, NEG_INF)
            only_eos[:, self.eos] = logits[:, self.eos]
            logits = torch.where(last[:, None], only_eos, logits)
        best, token = blockwise_topk(logits, self.size)
        shape = (self.alive.numel(), best.shape[1])
        total = self.alive.view(-1)[rows][:, None] + (best - norm)
        scores = total.new_full(shape, NEG_INF).index_copy(0, rows, total)
        tokens = token.new_zeros(shape).index_copy(0, rows, token)
        return scores.view(len(self.alive), -1), tokens.view(len(self.alive), -1)

    def _end(self, step: int, ending: Tensor, total: Tensor, parent: Tensor) -> None:
        """Note the hypotheses that end at this step, in the order in which they do, without asking which they are."""
        slot = torch.where(ending, self.num_ended[:, None] + ending.cumsum(1) - 1, self.size)
        self.scores.scatter_(1, slot, total / float(step + 1) ** self.penalty)
        self.scores[:, self.size] = NEG_INF
        self.end_steps.scatter_(1, slot, step)
        self.end_parents.scatter_(1, slot, parent)
        self.num_ended += ending.sum(1)

    def _finished_sentences(self) -> Tensor:
        """A mask (B,) of sentences of which no open hypothesis can reach the ``nbest`` best."""
        bound = self.alive.amax(1) / (self.limit + 1.0) ** self.penalty
        return self.scores.topk(self.nbest, 1).values[:, -1] >= bound

    def _survivors(
            self, rows: Tensor, parent: Tensor, token: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        place = (self.alive.view(-1) > NEG_INF).nonzero()[:, 0]
        sentence = place // self.size
        row_of = torch.empty(self.alive.numel(), dtype=torch.long, device=rows.device)
        row_of[rows] = torch.arange(len(rows), device=rows.device)
        self.rows = place
        came_from = row_of[sentence * self.size + parent.view(-1)[place]]
        return came_from, sentence, token.view(-1)[place]

    def result(self) -> Hypotheses:
        """The finished hypotheses, the best first, read backwards from each end."""
        scores, order = self.scores.topk(self.nbest, 1)
        there = scores > NEG_INF
        ends = self.end_steps.gather(1, order)
        place = self.end_parents.gather(1, order)
        tokens = ends.new_zeros((*ends.shape, len(self.history)))
        for step in range(len(self.history) - 1, -1, -1):
            parent, token = self.history[step]
            inside = there & (step < ends)
            tokens[..., step] = torch.where(inside, token.gather(1, place), PAD)
            place = torch.where(inside, parent.gather(1, place), place)
        return Hypotheses(tokens, torch.where(there, ends + 1, 0), scores)
