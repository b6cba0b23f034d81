"""Batched beam search with a cache; see :mod:`scalesearch.nn.decode`.

Notation: B sentences, K beams per sentence, R active rows of the model, V tokens in the vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scalesearch.blocks.core import BOS, EOS, PAD
from scalesearch.nn.decode import (
    NEG_INF,
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
                eos: int = EOS, allow_unk: bool = False) -> Hypotheses:
    """Translate by beam search; a finished hypothesis keeps its beam.

    The score is log P(y | x) / \\|y\\|^α; \\|y\\| includes EOS, and α = ``length_penalty`` ≥ 0 (as
    ``lenpen`` of fairseq, not ((5 + \\|y\\|) / 6)^α of GNMT). The search of a sentence ends if all
    its beams are finished, or if no unfinished hypothesis can become better than the ``nbest``-th
    finished one. The second condition does not change results: log P only decreases, and the
    divisor is at most that of the greatest length.

    Args:
        model: model in eval mode, on the device of ``source``.
        source: token ids (B, S), padded with 0 at the end.
        beam: K; 1 is greedy search.
        length_penalty: α.
        max_length: largest number of tokens of a translation, without EOS, or of each (B,); by
            default :func:`~scalesearch.nn.decode.default_max_lengths`.
        nbest: number of hypotheses to return, at most ``beam``.
        eos: id of the end-of-sentence token.
        allow_unk: whether a translation may contain UNK.
    """
    if not (beam >= nbest >= 1 and length_penalty >= 0):
        raise ValueError(f"beam {beam}, nbest {nbest}, length penalty {length_penalty}: needs "
                         "beam >= nbest >= 1 and length penalty >= 0")
    limit = length_limits(model, source, max_length)
    shortest = int(limit.min())
    longest = int(limit.max())
    search = BeamSearchState(source, beam, length_penalty, limit, nbest, eos, longest + 1)
    sources = _SourceState(model, source)
    rows = search.first()
    token = source.new_full((len(source),), BOS)
    for step in range(longest + 1):
        logits, norm = next_logits(model, token, sources.memory, sources.cache, allow_unk)
        # no sentence reaches its limit before; the test waits for a GPU
        parent, token = search.update(logits, norm, rows, step >= shortest)
        parents, next_rows, token = search.survivors(rows, parent, token)
        if not len(next_rows):
            break
        sentences = next_rows // beam
        sources.select(parents, sentences, torch.equal(sentences, rows // beam))
        rows = next_rows
    return search.result(step + 1)


class _SourceState:
    """Encoder memory and cache of a beam search.

    They are stored per sentence if the model supports it.
    """

    def __init__(self, model: Any, source: Tensor) -> None:
        self.memory = model.encode(source)
        self.cache = model.new_cache()
        self.first = self.memory  # memory of all sentences
        self.shared = getattr(model, "shares_sources", False)
        self.active_sources = torch.arange(len(source), device=source.device)

    def select(self, parents: Tensor, sentences: Tensor, same: bool) -> None:
        """Select the rows of the next step.

        Args:
            parents: (R,) rows that they continue.
            sentences: (R,) their sentences.
            same: whether the sentence of each row is unchanged.
        """
        self.cache.select(parents, same or self.shared)
        if same:
            return
        if not self.shared:
            self.memory = self.first.select(sentences)
            return
        groups = SourceGroups.from_sources(sentences)
        selected = torch.searchsorted(self.active_sources, groups.sources)
        self.cache.group_by_source(groups, selected)
        self.memory = self.memory.select(selected)
        self.active_sources = groups.sources


class BeamSearchState:
    """The state of a beam search: active and finished hypotheses.

    Each step stores the parent beam and the token of each beam; hypotheses are read backwards from
    their end. All tensors keep their addresses and shapes.

    Attributes:
        alive: (B, K) log-probabilities of active hypotheses; minus infinity for inactive beams.
        scores: (B, K + 1) scores of finished hypotheses; the last column is overwritten by beams
            that do not end.
        end_steps: (B, K + 1) steps at which they ended.
        end_parents: (B, K + 1) beams at the step before.
        num_ended: (B,) numbers of finished hypotheses.
        step: (1,) index of the step.
        parents, tokens: (steps, B, K) parent beams and tokens.
    """

    def __init__(self, source: Tensor, beam: int, penalty: float, limit: Tensor, nbest: int,
                 eos: int, max_steps: int) -> None:
        self.size = beam
        self.penalty = penalty
        self.limit = limit
        self.nbest = nbest
        self.eos = eos
        shape = (len(source), beam)
        self.alive = torch.full(shape, NEG_INF, dtype=torch.float64, device=source.device)
        self.alive[:, 0] = 0.0
        self.step = source.new_zeros(1)
        self.parents = source.new_zeros((max_steps, *shape))
        self.tokens = source.new_zeros((max_steps, *shape))
        shape = (len(source), beam + 1)
        self.scores = torch.full(shape, NEG_INF, dtype=torch.float64, device=source.device)
        self.end_steps = source.new_zeros(shape)
        self.end_parents = source.new_zeros(shape)
        self.num_ended = source.new_zeros(len(source))

    def load(self, other: BeamSearchState) -> None:
        """Copy the tensors of another state of the same shape."""
        for name, value in vars(other).items():
            if isinstance(value, Tensor):
                getattr(self, name).copy_(value)

    def first(self) -> Tensor:
        """Return one row per sentence, because all its beams are still equal."""
        return torch.arange(len(self.alive), device=self.alive.device) * self.size

    def update(self, logits: Tensor, norm: Tensor, rows: Tensor,
               may_reach_limit: bool = True) -> tuple[Tensor, Tensor]:
        """Advance by one step, without shapes that depend on data.

        Args:
            logits: (R, V).
            norm: (R, 1) log-partition of the logits.
            rows: (R,) indices of the beams among B · K, all active ones included.
            may_reach_limit: False if no sentence reaches its limit at this step.

        Returns:
            Parent beam and token of each beam (B, K).
        """
        if may_reach_limit:
            last = self.step == self.limit[rows // self.size]
            only_eos = torch.full_like(logits, NEG_INF)
            only_eos[:, self.eos] = logits[:, self.eos]
            logits = torch.where(last[:, None], only_eos, logits)
        scores, tokens = self._candidates(logits, norm, rows)  # (B, K · k) each
        best, index = scores.topk(self.size, 1)
        parent = index // (scores.shape[1] // self.size)
        token = tokens.gather(1, index)
        is_free = torch.arange(self.size, device=rows.device) < (
            self.size - self.num_ended)[:, None]
        valid = is_free & (best > NEG_INF)
        ending = valid & (token == self.eos)
        self._end(ending, best, parent)
        self.alive.copy_(best.masked_fill(~valid | ending, NEG_INF))
        bound = self.alive.amax(1) / (self.limit + 1.0) ** self.penalty
        is_final = self.scores.topk(self.nbest, 1).values[:, -1] >= bound  # the nbest hypotheses
        self.alive.masked_fill_(is_final[:, None], NEG_INF)
        self.parents.index_copy_(0, self.step, parent[None])
        self.tokens.index_copy_(0, self.step, token[None])
        self.step += 1
        return parent, token

    def _candidates(self, logits: Tensor, norm: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best k continuations of each beam.

        Returns log-probabilities and tokens, (B, K · k). They include the best K
        continuations of each sentence.
        """
        best, token = blockwise_topk(logits, self.size)
        shape = (self.alive.numel(), best.shape[1])
        before = self.alive.view(-1)[rows][:, None]
        total = (before + (best - norm)).masked_fill(before == NEG_INF, NEG_INF)
        scores = total.new_full(shape, NEG_INF).index_copy(0, rows, total)
        tokens = token.new_zeros(shape).index_copy(0, rows, token)
        return scores.view(len(self.alive), -1), tokens.view(len(self.alive), -1)

    def _end(self, ending: Tensor, total: Tensor, parent: Tensor) -> None:
        """Store the hypotheses that end at this step.

        Args:
            ending: (B, K) mask of the hypotheses.
            total: (B, K) log-probabilities.
            parent: (B, K) parent beams.
        """
        slot = torch.where(ending, self.num_ended[:, None] + ending.cumsum(1) - 1, self.size)
        self.scores.scatter_(1, slot, total / (self.step + 1.0) ** self.penalty)
        self.scores[:, self.size] = NEG_INF
        self.end_steps.scatter_(1, slot, self.step.expand_as(slot))
        self.end_parents.scatter_(1, slot, parent)
        self.num_ended += ending.sum(1)

    def survivors(
            self, rows: Tensor, parent: Tensor, token: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return parent rows, indices among B · K and tokens of the active beams.

        Args:
            rows: (R,) indices of the beams before the step.
            parent: (B, K) parent beams.
            token: (B, K) tokens.
        """
        beam = (self.alive.view(-1) > NEG_INF).nonzero()[:, 0]
        row_of_beam = torch.empty(self.alive.numel(), dtype=torch.long, device=rows.device)
        row_of_beam[rows] = torch.arange(len(rows), device=rows.device)
        parent_beam = beam // self.size * self.size + parent.view(-1)[beam]
        return row_of_beam[parent_beam], beam, token.view(-1)[beam]

    def result(self, steps: int) -> Hypotheses:
        """Return the finished hypotheses after ``steps`` steps, the best first."""
        scores, order = self.scores.topk(self.nbest, 1)
        exists = scores > NEG_INF
        ends = self.end_steps.gather(1, order)
        beam = self.end_parents.gather(1, order)
        tokens = ends.new_zeros((*ends.shape, steps))
        for step in range(steps - 1, -1, -1):
            is_inside = exists & (step < ends)
            tokens[..., step] = torch.where(is_inside, self.tokens[step].gather(1, beam), PAD)
            beam = torch.where(is_inside, self.parents[step].gather(1, beam), beam)
        return Hypotheses(tokens, torch.where(exists, ends + 1, 0), scores)
