"""Summarization: ROUGE-1, ROUGE-2, ROUGE-L F1 (Lin 2004) by rouge-score."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from scalesearch.errors import UserError
from scalesearch.library import install_command
from scalesearch.tasks.base import Metric, MetricOptions, Task, Texts

ROUGE_NAMES = ("rougeL", "rouge1", "rouge2")
METRICS = {name: Metric("max", 100.0, f"ROUGE-{name[5:]} F1") for name in ROUGE_NAMES}


class _WhitespaceTokenizer:
    """Tokenizer that splits at blanks, for tokenized or non-Latin text."""

    def tokenize(self, text: str) -> list[str]:
        return text.split()


def rouge_scores(hypotheses: Sequence[str], references: Sequence[Sequence[str]],
                 is_tokenized: bool = False) -> dict[str, Any]:
    """Compute the mean ROUGE F1 of summaries in percent, with a signature (Lin 2004).

    ``references`` holds one or more references, each with a line per summary; the best F1 counts.

    By default, words are runs of a-z and 0-9, lower-cased and stemmed (Porter); other letters are
    not part of a word. With ``is_tokenized``, words are separated by blanks, and neither
    lower-cased nor stemmed. ROUGE-L treats a summary as one sentence.

    Raises:
        UserError: a reference has no word, so nothing can match it.
    """
    from rouge_score import rouge_scorer

    scorer = rouge_scorer.RougeScorer(sorted(ROUGE_NAMES), use_stemmer=not is_tokenized,
                                      tokenizer=_WhitespaceTokenizer() if is_tokenized else None)
    total = dict.fromkeys(ROUGE_NAMES, 0.0)
    for hypothesis, *choices in zip(hypotheses, *references, strict=True):
        for name, score in scorer.score_multi(choices, hypothesis).items():
            total[name] += 100 * score.fmeasure
    values: dict[str, Any] = {name: value / len(hypotheses) for name, value in total.items()}
    mean = "F1, mean" if len(references) == 1 else f"F1, mean|best of {len(references)} references"
    words = ("stemmer:no|words:blanks" if is_tokenized
             else "stemmer:porter|words:a-z0-9, lower-cased")
    return values | {"rouge_signature": f"{mean}|{words}|rouge-score:{version('rouge-score')}"}


def _score(hypotheses: Sequence[str], texts: Texts, options: MetricOptions) -> dict[str, Any]:
    _check_texts(texts, options)
    return rouge_scores(hypotheses, texts.references, options.tokenized)


def _check_texts(texts: Texts, options: MetricOptions) -> Sequence[str]:
    """Check that most letters of the references are a to z, which the package supports.

    Raises:
        UserError: most letters are others, and the text is not tokenized.
    """
    letters = [letter for lines in texts.references for line in lines
               for letter in line.lower() if letter.isalpha()]
    if (not options.tokenized and 2 * sum(letter.isascii() for letter in letters) < len(letters)):
        raise UserError("data: ROUGE only supports words of the letters a to z, and most letters "
                        "of the references are others: separate the words by blanks and set "
                        "`tokenized: true`", key="data", code="rouge-not-latin")
    return ()


def _check(options: MetricOptions) -> None:
    """Check that the package rouge-score is installed.

    Raises:
        UserError: it is not.
    """
    if importlib.util.find_spec("rouge_score") is None:
        raise UserError("data: task: summarization needs the package rouge-score, which is not "
                        f"installed. Install it with `{install_command('tasks')}`", key="data.task",
                        code="package-missing")


TASK = Task("summarization", "pairs", METRICS, ("tokenized",), score=_score, check_options=_check,
            check_texts=_check_texts)
