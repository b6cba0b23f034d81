"""Grammatical error correction: MaxMatch F0.5, precision and recall of edits; see :mod:`scalesearch.tasks.maxmatch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scalesearch.tasks.base import Metric, MetricOptions, Task, Texts
from scalesearch.tasks.edits import edits_between
from scalesearch.tasks.maxmatch import BETA, MAX_UNCHANGED, score

METRICS = {"f05": Metric("max", 100.0, "M2 F0.5"), "precision": Metric("max", 100.0, "M2 precision"),
           "recall": Metric("max", 100.0, "M2 recall")}


def m2(hypotheses: Sequence[str], texts: Texts) -> dict[str, Any]:
    """F0.5, precision and recall of edits in per cent, with a signature.

    Without gold edits, those of the references count: :func:`scalesearch.tasks.edits.edits_between`.
    """
    gold = texts.gold
    if gold is None:
        gold = [(edits_between(old, new),) for old, new in zip(texts.source, texts.target)]
    counts = score(texts.source, hypotheses, gold)
    values = {"f05": counts.f(), "precision": counts.precision, "recall": counts.recall}
    signature = (f"MaxMatch|beta:{BETA:g}|max unchanged:{MAX_UNCHANGED}|annotators:{max(map(len, gold))}"
                 f"|correct:{counts.correct}|proposed:{counts.proposed}|gold:{counts.gold}")
    return {**{name: 100 * value for name, value in values.items()}, "m2_signature": signature}


def _score(hypotheses: Sequence[str], texts: Texts, options: MetricOptions) -> dict[str, Any]:
    return m2(hypotheses, texts)


TASK = Task("correction", "corrections", METRICS, score=_score)
