"""``scalesearch score``: score trained models on any text, and compare them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import distinct_names, option, print_json, search_options
from scalesearch.cli.translate import length_notes, translate_with_progress
from scalesearch.errors import UserError
from scalesearch.terminal import format_count, make_table, print_text

if TYPE_CHECKING:
    from scalesearch.export.translator import Translator

MIN_BREVITY_PENALTY = 0.975  # costs one point at BLEU 40


@click.command(name="score")
@click.argument("models", nargs=-1, required=True, type=click.Path(), metavar="MODEL...")
@click.option("--text", type=click.Path(path_type=Path), metavar="FILE",
              help="Text for language models, instead of --source and --target; may be compressed, "
              "or a table.")
@click.option("--source", type=click.Path(path_type=Path), metavar="FILE",
              help="Text to translate, one sentence per line; may be compressed (.gz, .xz or "
              ".zst), or a table (.tsv or .jsonl).")
@click.option("--target", "targets", multiple=True, metavar="FILE",
              type=click.Path(path_type=Path),
              help="Reference translations; may be the same table. Can be repeated for several "
              "references.")
@search_options
@option("threads", help="Number of threads.")
@click.option("--ensemble", is_flag=True,
              help="Also score the ensemble of all models (mean of their probabilities).")
@option("resamples", earlier=("--samples",), default=1000)
@option("json")
def command(models: tuple[str, ...], text: Path | None, source: Path | None,
            targets: tuple[Path, ...], search: dict[str, Any], threads: int, ensemble: bool,
            resamples: int, as_json: bool) -> None:
    """Score the trained or exported models in the folders MODEL on parallel files.

    Translations are scored by sacreBLEU with 95 % bootstrap intervals; its tokenizer is that of
    the data, or fits the language or script of the references. If there are several models,
    the difference of each to the first is printed with its 95 % interval and p-value, by paired
    bootstrap (Koehn 2004). Tokenized BLEU is added if the data of the models are tokenized. A note
    reports translations that are too short. Summaries, corrections and classes are scored by the
    metrics of their task, without intervals. Language models are scored on a --text, with the
    windows of their data. Masked language models are scored only when they are trained.

    \b
    Example: scalesearch score runs/a runs/b --source test.en --target test.de
    """
    if text is not None:
        if source or targets or ensemble:
            raise UserError("--text is for language models: remove --source, --target and "
                            "--ensemble", code="options-conflict")
        _score_text(models, text, threads, as_json)
        return
    if source is None or not targets:
        raise UserError("give --source and --target, or --text for language models",
                        code="option-missing")
    from scalesearch.export.translator import Translator, score_translations
    from scalesearch.tasks import METRICS

    translators = [Translator(model, **search, threads=threads) for model in models]
    if ensemble and len(models) > 1:
        translators.append(Translator(models, **search, threads=threads))
    first = translators[0]
    _check_comparable(translators)
    texts = first.read_texts(source, targets)
    text_notes = list(first.task.check_texts(texts, first.checkpoint.spec))
    n_lines = len(texts.source)
    translated = [list(translate_with_progress(translator, texts.source, n_lines))
                  for translator in translators]
    translations = [[line.translations[0].text for line in lines] for lines in translated]
    scores = score_translations(translators, translations, texts, resamples)
    notes = text_notes + [f"{translator.folder}: {note}"
                          for translator in translators for note in translator.notes]
    line_numbers = []  # of cropped sources, and of translations that reached the limit
    for translator, lines in zip(translators, translated):
        cropped = [number for number, line in enumerate(lines, 1) if line.is_cropped]
        reached_limit = [number for number, line in enumerate(lines, 1)
                         if line.translations[0].reached_limit]
        line_numbers.append({"cropped": cropped, "reached_limit": reached_limit})
        notes += (f"{translator.folder}: {note}"
                  for note in length_notes(translator, cropped, reached_limit))
    if first.task.name != "translation":
        metrics = " and ".join(METRICS[name].label for name in first.task.metrics)
        notes.insert(0, "No intervals and no tests: sacreBLEU resamples only BLEU and chrF, but "
                     f"the task {first.task.name} is scored by {metrics}")
    if as_json:
        names = list(map(str, targets))
        print_json({"source": str(source), "target": names[0] if len(names) == 1 else names,
                    "sentences": n_lines,
                    "lowercase": first.checkpoint.is_lowercase, "notes": notes,
                    "models": [{"model": translator.folder,
                                "decoding": translator.description,
                                "compute_type": translator.compute_type or None, **numbers,
                                **model_scores}
                               for translator, numbers, model_scores
                               in zip(translators, line_numbers, scores)]})
        return
    names = distinct_names(models)  # of the rows; the legend has the whole paths
    descriptions = [", ".join(filter(None, (translator.description,
                                            translator.compute_type)))
                    for translator in translators]
    legend = [f"{name}: {translator.folder} ({description})"
              for name, translator, description in zip(names, translators, descriptions)]
    if len(translators) > len(models):
        names.append(" + ".join(names))
        legend.append(f"{names[-1]}: ({descriptions[-1]})")
    if "p" in scores[0].get("bleu", {}) and len(scores) > 1:
        legend.append(f"difference: score minus the score of {names[0]}, with a 95 % interval by "
                      "paired bootstrap. p: of sacreBLEU's paired bootstrap test, which is close "
                      "to one-sided: it can be below 0.05 although the interval contains 0")
    _print_scores(names, scores, [*legend, *notes, *brevity_notes(names, scores, line_numbers)])


def _check_comparable(translators: Sequence[Translator]) -> None:
    """Check that the scores of all models have the same meaning.

    Raises:
        UserError: task, lowercasing or tokenization differ.
    """
    first = translators[0]
    for translator in translators[1:]:
        for name in ("task", "lowercase", "tokenized", "tokenize"):
            value = getattr(translator.checkpoint.spec, name)
            first_value = getattr(first.checkpoint.spec, name)
            if value != first_value:
                raise UserError(f"{translator.folder} has {name} {value}, but {first.folder} has "
                                f"{name} {first_value}: their scores are not comparable. Score "
                                "each model separately", code="models-incompatible")


def _print_scores(names: Sequence[str], scores: Sequence[Mapping[str, Any]],
                  notes: Sequence[str]) -> None:
    """Print a table with a row per model and metric, the signatures, and notes."""
    from scalesearch.tasks import METRICS, format_score

    rows = []
    for name, values in zip(names, scores):
        for metric, value in values.items():
            shown = {key: format_score(value[key], metric, "+" if key == "difference" else "-")
                     for key in ("score", "mean", "half", "difference", "difference_half")
                     if value.get(key) is not None}
            mean = f"{shown['mean']} ± {shown['half']}" if "half" in shown else ""
            compared = ["", ""]
            if value.get("p") is not None:
                compared = [f"{shown['difference']} ± {shown['difference_half']}",
                            f"{value['p']:.4f}"]
            rows.append((name, METRICS[metric].label, shown["score"], mean, *compared))
    headings = ["model", "metric", "score", "bootstrap mean ± 95 %", "difference ± 95 %", "p"]
    print_text(make_table(headings, rows, (0, 1)))
    signatures = dict.fromkeys(value["signature"] for value in scores[0].values())
    for line in (*signatures, *notes):
        print_text(line, style="dim")


def _score_text(models: Sequence[str], text: Path, threads: int, as_json: bool) -> None:
    """Print scores of language models on a text."""
    from scalesearch.data.files import read_lines, select_column
    from scalesearch.export.translator import read_language_model
    from scalesearch.tasks import METRICS
    from scalesearch.training.scoring.texts import TASK, score_text

    lines = select_column(read_lines(text), text, "text")
    scores = []
    notes: list[str] = []
    for model in models:
        trained, model_notes = read_language_model(model, threads)
        scores.append(score_text(trained, lines, threads))
        notes += (f"{model}: {note}" for note in model_notes)
    if as_json:
        print_json({"text": str(text), "lines": len(lines), "notes": notes,
                    "models": [{"model": model, **values}
                               for model, values in zip(models, scores)]})
        return
    metrics = [*TASK.metrics, "loss"]
    cells = [["-" if values[metric] is None else f"{values[metric]:.4f}" for metric in metrics]
             for values in scores]
    print_text(make_table(("model", *(METRICS[name].label for name in metrics)),
                          [(name, *row) for name, row in zip(distinct_names(models), cells)]))
    for name, values in zip(models, scores):
        unknown = values["unknown_tokens"]
        note = f"; {format_count(unknown, 'unknown token')}" if unknown else ""
        print_text(f"{name}: {values['perplexity_signature']}{note}", style="dim")
    for note in notes:
        print_text(note, style="dim")


def brevity_notes(names: Sequence[str], scores: Sequence[dict[str, Any]],
                  line_numbers: Sequence[dict[str, list[int]]]) -> Iterator[str]:
    """Describe the models whose translations are shorter than the references."""
    for name, row, numbers in zip(names, scores, line_numbers):
        bleu = row.get("bleu", {})
        if bleu.get("brevity_penalty", 1) < MIN_BREVITY_PENALTY:
            advice = ("Cropped sources and the length limit are a reason (see the notes)"
                      if any(numbers.values()) else
                      "With a beam, a higher --length-penalty gives longer translations")
            yield (f"{name}: {100 * (1 - bleu['length_ratio']):.1f} % shorter than the "
                   f"references; the brevity penalty of BLEU is "
                   f"{bleu['brevity_penalty']:.3f}. {advice}")
