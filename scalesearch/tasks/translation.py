"""Translation: BLEU and chrF of detokenised text (sacreBLEU), tokenised BLEU, and COMET where it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from scalesearch.errors import UserError
from scalesearch.tasks.base import Asked, Metric, Task, Texts

METRICS = {"bleu": Metric("max", 100.0, "BLEU"), "chrf": Metric("max", 100.0, "chrF")}
TOKENISED = {"tokenised_bleu": Metric("max", 100.0, "Tokenised BLEU")}
COMET = {"comet": Metric("max", 1.0, "COMET")}
MULTI_BLEU = "c:mixed|tok:none|smooth:none, as multi-bleu.perl"


def scores(hypotheses: Sequence[str], references: Sequence[str], tokenised: bool = False) -> dict[str, Any]:
    """sacreBLEU's BLEU and chrF2 of detokenised text, with signatures (Post 2018; Popović 2015).

    Of text that is ``tokenised`` as it comes, the same numbers without the library's warning, and beside them
    :func:`tokenised_bleu`.
    """
    from sacrebleu.metrics import BLEU, CHRF

    bleu, chrf = BLEU(force=tokenised), CHRF()
    found: dict[str, Any] = {"bleu": bleu.corpus_score(list(hypotheses), [list(references)]).score,
                             "chrf": chrf.corpus_score(list(hypotheses), [list(references)]).score}
    found |= {"bleu_signature": str(bleu.get_signature()), "chrf_signature": str(chrf.get_signature())}
    if tokenised:
        found |= {"tokenised_bleu": tokenised_bleu(hypotheses, references), "tokenised_bleu_signature": MULTI_BLEU}
    return found


def tokenised_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """BLEU of text as it is tokenised (words apart by blanks), as multi-bleu.perl: to compare with papers only.

    Without smoothing, as there: a corpus without a single matching 4-gram scores 0.
    """
    from sacrebleu.metrics import BLEU

    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    return float(metric.corpus_score(list(hypotheses), [list(references)]).score)


def comet(hypotheses: Sequence[str], texts: Texts, model: str) -> float:
    """The system score of a COMET model: a name that the library knows, or a checkpoint's path (Rei et al. 2020)."""
    from comet import download_model, load_from_checkpoint  # type: ignore[import-not-found]

    path = model if model.endswith(".ckpt") else download_model(model)
    rows = [{"src": source, "mt": said, "ref": right}
            for source, said, right in zip(texts.source, hypotheses, texts.target)]
    return float(load_from_checkpoint(path).predict(rows, batch_size=8, gpus=0).system_score)


def _score(hypotheses: Sequence[str], texts: Texts, asked: Asked) -> dict[str, Any]:
    found = scores(hypotheses, texts.target, asked.tokenised)
    if asked.comet:
        found |= {"comet": comet(hypotheses, texts, asked.comet), "comet_signature": f"model:{asked.comet}"}
    return found


def _optional(asked: Asked) -> Mapping[str, Metric]:
    return (TOKENISED if asked.tokenised else {}) | ({} if asked.comet is None else COMET)


def _refuse(asked: Asked) -> None:
    """Raises UserError where COMET is asked for and not installed."""
    if asked.comet and importlib.util.find_spec("comet") is None:
        raise UserError("data: comet: the package that computes COMET is not installed here. Install it with "
                        "`pip install unbabel-comet`, or leave `comet` out")


TASK = Task("translation", "pairs", METRICS, ("tokenised", "comet"), _optional, _score, refuse=_refuse)
