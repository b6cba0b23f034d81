"""Translation: BLEU and chrF by sacreBLEU, tokenized BLEU, and COMET."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from scalesearch.errors import UserError
from scalesearch.tasks.base import Metric, MetricOptions, Task, Texts

METRICS = {"bleu": Metric("max", 100.0, "BLEU"), "chrf": Metric("max", 100.0, "chrF")}
OPTIONAL_METRICS = {"tokenized_bleu": (Metric("max", 100.0, "Tokenized BLEU"), "tokenized"),
                    "comet": (Metric("max", 1.0, "COMET"), "comet")}
MULTI_BLEU_SIGNATURE = "c:mixed|tok:none|smooth:none, as multi-bleu.perl"


def bleu_chrf_scores(hypotheses: Sequence[str], references: Sequence[str],
                     is_tokenized: bool = False) -> dict[str, Any]:
    """Compute BLEU (Post 2018) and chrF2 (Popović 2015) with sacreBLEU.

    Args:
        is_tokenized: also compute :func:`tokenized_bleu`.

    Returns:
        The metrics, their signatures and ``length_ratio``, tokens of hypotheses to tokens of
        references.
    """
    from sacrebleu.metrics import BLEU, CHRF

    # force=True: sacreBLEU does not warn about tokenized text; the corpus reports it once.
    bleu = BLEU(force=True)
    chrf = CHRF()
    bleu_score = bleu.corpus_score(list(hypotheses), [list(references)])
    values: dict[str, Any] = {"bleu": bleu_score.score,
                              "length_ratio": bleu_score.sys_len / max(1, bleu_score.ref_len),
                              "chrf": chrf.corpus_score(list(hypotheses), [list(references)]).score}
    values |= {"bleu_signature": str(bleu.get_signature()),
               "chrf_signature": str(chrf.get_signature())}
    if is_tokenized:
        values |= {"tokenized_bleu": tokenized_bleu(hypotheses, references),
                   "tokenized_bleu_signature": MULTI_BLEU_SIGNATURE}
    return values


def compare_systems(systems: Sequence[Sequence[str]], references: Sequence[str], n_resamples: int,
                    is_tokenized: bool = False) -> list[dict[str, Any]]:
    """Compute BLEU and chrF2 of each system with a paired bootstrap test (Koehn 2004).

    Args:
        n_resamples: number of bootstrap resamples.
        is_tokenized: also compute tokenized BLEU.

    Returns:
        For each system a mapping of ``bleu``, ``chrf`` and ``tokenized_bleu`` to: ``score``,
        ``mean`` of the resamples,
        ``half`` width of their 95 % interval, ``p`` of the difference to the first system (None for
        the first) and
        ``signature``. ``bleu`` also has ``brevity_penalty`` and ``length_ratio``.
    """
    from sacrebleu.metrics import BLEU, CHRF

    metrics = {"bleu": BLEU(force=True),
               "chrf": CHRF()} | ({"tokenized_bleu": _multi_bleu()} if is_tokenized else {})
    tests = {name: _paired_test(systems, references, metric, n_resamples)
             for name, metric in metrics.items()}
    rows = [{name: results[index] for name, results in tests.items()}
            for index in range(len(systems))]
    for row, system in zip(rows, systems):
        bleu_score = metrics["bleu"].corpus_score(list(system), [list(references)])
        row["bleu"] |= {"brevity_penalty": bleu_score.bp,
                        "length_ratio": bleu_score.sys_len / max(1, bleu_score.ref_len)}
    return rows


def _paired_test(systems: Sequence[Sequence[str]], references: Sequence[str], metric: Any,
                 n_resamples: int) -> list[dict[str, Any]]:
    from sacrebleu.significance import PairedTest

    named_systems = [(str(number), list(system)) for number, system in enumerate(systems)]
    # One test per metric: sacreBLEU distinguishes metrics by name, and all variants of BLEU have
    # the same name.
    test = PairedTest(named_systems, {"metric": metric}, [list(references)], "bs", n_resamples)
    signatures, results = test()
    [(name, signature)] = signatures.items()
    rows = [{"score": result.score, "mean": float(result.mean), "half": float(result.ci),
             "p": result.p_value, "signature": str(signature)} for result in results[name]]
    # sacreBLEU counts strictly larger differences, so two equal systems would differ significantly.
    for row in rows[1:]:
        if row["score"] == rows[0]["score"]:
            row["p"] = 1.0
    return rows


def _multi_bleu() -> Any:
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize="none", smooth_method="none", force=True)


def tokenized_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Compute BLEU of text with blanks between tokens, as multi-bleu.perl does.

    Use it only to compare with papers. It has no smoothing: a corpus without a matching 4-gram
    scores 0.
    """
    return float(_multi_bleu().corpus_score(list(hypotheses), [list(references)]).score)


def comet_score(hypotheses: Sequence[str], texts: Texts, model: str) -> float:
    """Compute the system score of a COMET model (Rei et al. 2020).

    Args:
        model: its name or checkpoint file.
    """
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
    """Check that COMET is installed if the spec enables it.

    Raises:
        UserError: it is not.
    """
    if options.comet and importlib.util.find_spec("comet") is None:
        raise UserError("data: comet: the package unbabel-comet is not installed. Install it with "
                        "`pip install unbabel-comet`, or remove `comet`", key="data.comet",
                        code="package-missing")


TASK = Task("translation", "pairs", METRICS, ("tokenized", "comet"), OPTIONAL_METRICS, _score,
            check_options=_check)
