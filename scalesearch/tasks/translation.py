"""Translation: BLEU and chrF by sacreBLEU, tokenised BLEU, and COMET where it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from scalesearch.errors import UserError
from scalesearch.tasks.base import Metric, MetricOptions, Task, Texts

METRICS = {"bleu": Metric("max", 100.0, "BLEU"), "chrf": Metric("max", 100.0, "chrF")}
OPTIONAL_METRICS = {"tokenised_bleu": (Metric("max", 100.0, "Tokenised BLEU"), "tokenised"),
            "comet": (Metric("max", 1.0, "COMET"), "comet")}
MULTI_BLEU_SIGNATURE = "c:mixed|tok:none|smooth:none, as multi-bleu.perl"


def bleu_chrf_scores(hypotheses: Sequence[str], references: Sequence[str],
                     is_tokenized: bool = False) -> dict[str, Any]:
    """BLEU and chrF2 of detokenised text by sacreBLEU, with signatures (Post 2018; Popović 2015).

    Of ``is_tokenized`` text :func:`tokenized_bleu` as well. Whether text looks tokenised the corpus
    says, once. ``length_ratio`` is that of hypotheses to references, in tokens of BLEU.
    """
    from sacrebleu.metrics import BLEU, CHRF

    bleu = BLEU(force=True)
    chrf = CHRF()
    found = bleu.corpus_score(list(hypotheses), [list(references)])
    values: dict[str, Any] = {"bleu": found.score,
                              "length_ratio": found.sys_len / max(1, found.ref_len),
                              "chrf": chrf.corpus_score(list(hypotheses), [list(references)]).score}
    values |= {"bleu_signature": str(bleu.get_signature()),
               "chrf_signature": str(chrf.get_signature())}
    if is_tokenized:
        values |= {"tokenised_bleu": tokenized_bleu(hypotheses, references),
                   "tokenised_bleu_signature": MULTI_BLEU_SIGNATURE}
    return values


def compare_systems(systems: Sequence[Sequence[str]], references: Sequence[str], n_resamples: int,
                    is_tokenized: bool = False) -> list[dict[str, Any]]:
    """BLEU and chrF2 of each system with sacreBLEU's bootstrap, and a paired test against the first (Koehn 2004).

    Of ``is_tokenized`` text tokenised BLEU as well.

    Returns:
        a mapping each, of ``bleu``, ``chrf`` and ``tokenised_bleu``: ``score``, ``mean`` of the
        resamples, ``half``
        width of their 95 % interval, ``p`` of the difference to the first system (None of the
        first) and ``signature``;
        of ``bleu`` also ``brevity_penalty``, the factor that it has for hypotheses shorter than
        references, and
        ``length_ratio``.
    """
    from sacrebleu.metrics import BLEU, CHRF

    metrics = {"bleu": BLEU(force=True),
               "chrf": CHRF()} | ({"tokenised_bleu": _multi_bleu()} if is_tokenized else {})
    tests = {name: _paired_test(systems, references, metric, n_resamples)
             for name, metric in metrics.items()}
    rows = [{name: results[at] for name, results in tests.items()} for at in range(len(systems))]
    for row, system in zip(rows, systems):
        whole = metrics["bleu"].corpus_score(list(system), [list(references)])
        row["bleu"] |= {"brevity_penalty": whole.bp,
                        "length_ratio": whole.sys_len / max(1, whole.ref_len)}
    return rows


def _paired_test(systems: Sequence[Sequence[str]], references: Sequence[str], metric: Any,
                 samples: int) -> list[dict[str, Any]]:
    from sacrebleu.significance import PairedTest

    named = [(str(number), list(system)) for number, system in enumerate(systems)]
    # A test of one metric: sacreBLEU tells metrics apart by their names, and BLEU's is the same
    # whatever its tokens.
    signatures, found = PairedTest(named, {"metric": metric}, [list(references)], "bs", samples)()
    [(name, signature)] = signatures.items()
    first, *others = found[name]
    values = [{"score": one.score, "mean": float(one.mean), "half": float(one.ci), "p": one.p_value,
               "signature": str(signature)} for one in (first, *others)]
    # sacreBLEU counts what differs by more, so that what differs in nothing would be significant.
    return [values[0],
            *(row | ({"p": 1.0} if row["score"] == first.score else {}) for row in values[1:])]


def _multi_bleu() -> Any:
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize="none", smooth_method="none", force=True)


def tokenized_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """BLEU of tokenised text (words apart by blanks), as multi-bleu.perl; to compare with papers only.

    Without smoothing, as there: a corpus without a single matching 4-gram scores 0.
    """
    return float(_multi_bleu().corpus_score(list(hypotheses), [list(references)]).score)


def comet_score(hypotheses: Sequence[str], texts: Texts, model: str) -> float:
    """System score of a COMET model, given by name or checkpoint file (Rei et al. 2020)."""
    from comet import download_model, load_from_checkpoint  # type: ignore[import-not-found]

    path = model if model.endswith(".ckpt") else download_model(model)
    rows = [{"src": source, "mt": hypothesis, "ref": reference}
            for source, hypothesis, reference in zip(texts.source, hypotheses, texts.target)]
    return float(load_from_checkpoint(path).predict(rows, batch_size=8, gpus=0).system_score)


def _score(hypotheses: Sequence[str], texts: Texts, options: MetricOptions) -> dict[str, Any]:
    values = bleu_chrf_scores(hypotheses, texts.target, options.tokenized)
    if options.comet:
        values |= {"comet": comet_score(hypotheses, texts, options.comet),
                   "comet_signature": f"model:{options.comet}"}
    return values


def _check(options: MetricOptions) -> None:
    """Checks that COMET, where it is asked for, is installed. Raises UserError."""
    if options.comet and importlib.util.find_spec("comet") is None:
        raise UserError("data: comet: the package that computes COMET is not installed here. "
                        "Install it with `pip install unbabel-comet`, or leave `comet` out",
                        key="data.comet", code="package-missing")


TASK = Task("translation", "pairs", METRICS, ("tokenised", "comet"), OPTIONAL_METRICS, _score,
            check_options=_check)
