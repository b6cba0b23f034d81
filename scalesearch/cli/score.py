"""``scalesearch score MODEL... --source FILE --target FILE``: finished models on any text, compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import json_option, print_json
from scalesearch.cli.translate import search_options, translate_with_progress
from scalesearch.errors import UserError
from scalesearch.terminal import make_table, print_text

if TYPE_CHECKING:
    from scalesearch.export.translator import Translator
    from scalesearch.tasks import Task

MIN_BREVITY_PENALTY = 0.975  # brevity penalty that takes a point of BLEU 40


@click.command(name="score")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--source", required=True, type=click.Path(path_type=Path), metavar="FILE",
              help="Text to translate.")
@click.option("--target", required=True, type=click.Path(path_type=Path), metavar="FILE",
              help="Its references.")
@search_options
@click.option("--ensemble", is_flag=True,
              help="Score them together as well: the mean of their probabilities.")
@click.option("--resamples", "--samples", "resamples", default=1000, show_default=True, type=click.IntRange(10),
              help="Bootstrap resamples.")
@json_option
def command(models: tuple[str, ...], source: Path, target: Path, beam: int | None,
            length_penalty: float | None, batch: int, ensemble: bool, resamples: int,
            as_json: bool) -> None:
    """Score the trainings, or artifacts, in the folders MODEL on files whose lines translate each other; .gz as well.

    Translations are scored with sacreBLEU's 95 % intervals by bootstrap, and of several models,
    each is tested against the first by paired bootstrap (Koehn 2004), by tokenized BLEU as well
    where their data were tokenized. Translations that are too short are said to be. Other tasks are
    scored by their metrics, without intervals.
    """
    from scalesearch.data.sources import read_pairs
    from scalesearch.export.translator import Translator, score_translations

    opened = [Translator(model, beam, length_penalty, batch) for model in models]
    if ensemble and len(models) > 1:
        opened.append(Translator(models, beam, length_penalty, batch))
    _check_same_task(opened)
    pairs = read_pairs((source, target), "test", False)
    low = opened[0].checkpoint.is_lowercase
    texts = opened[0].normalize_texts(pairs.source, pairs.target)
    found = [
        [best
         for _, ((best, _), *_) in translate_with_progress(model, texts.source, len(texts.source))]
        for model in opened]
    rows = score_translations(opened, found, texts, resamples)
    notes = _without_intervals(opened[0].task)
    notes += [f"{model.folder}: {model.accuracy_note}" for model in opened if model.accuracy_note]
    if as_json:
        print_json({"source": str(source), "target": str(target), "sentences": len(texts.source),
                    "lowercase": low, "notes": notes,
                    "models": [{"model": model.folder, "decoding": model.decoding.description, **row}
                               for model, row in zip(opened, rows)]})
        return
    names = list(map(str, range(1, len(models) + 1)))
    names += [" + ".join(names)] * (len(opened) - len(models))
    # an ensemble has none of its own
    places = [*(f"{model.folder} " for model in opened[: len(models)]), ""]
    said = [f"{name}: {place}({model.decoding.description})"
            for name, place, model in zip(names, places, opened)]
    _show(names, rows, [*said, *notes, *_brevity(names, rows)])


def _check_same_task(opened: list[Translator]) -> None:
    """Checks that models can be scored against the same references. Raises UserError."""
    for model in opened[1:]:
        for what in ("task", "is_lowercase", "is_tokenized"):
            mine, first = (getattr(one.checkpoint, what) for one in (model, opened[0]))
            if mine != first:
                raise UserError(f"{model.folder}: its {what.removeprefix('is_')} is {mine}, and that of "
                                f"{opened[0].folder} is {first}: no score of one compares with the "
                                "other's; score them one at a time", code="models-incompatible")


def _without_intervals(task: Task) -> list[str]:
    """Line on why a task's scores have no intervals; none of translation, whose scores have them."""
    from scalesearch.tasks import METRICS

    metrics = " and ".join(METRICS[name].label for name in task.metrics)
    return [] if task.name == "translation" else [
        "No intervals and no tests: sacreBLEU resamples "
        f"BLEU and chrF alone, and {task.name} is scored " f"by {metrics}"]


def _brevity(names: list[str], rows: list[dict[str, Any]]) -> list[str]:
    """Lines on translations so short that BLEU's brevity penalty takes a point or so."""
    return [f"{name}: {1 - bleu['length_ratio']:.1%} shorter than the references, for which BLEU "
            f"has {bleu['brevity_penalty']:.3f} as a factor; with a beam, a higher "
            "--length-penalty makes them longer"
            for name, bleu in ((name, row.get("bleu", {})) for name, row in zip(names, rows))
            if bleu.get("brevity_penalty", 1) < MIN_BREVITY_PENALTY]


def _show(names: list[str], rows: list[dict[str, Any]], notes: list[str]) -> None:
    from scalesearch.tasks import METRICS

    headings = ["", *(METRICS[name].label for name in rows[0])]
    print_text(make_table(headings,
                          [(name, *map(_cell, row.values())) for name, row in zip(names, rows)]))
    for line in (*dict.fromkeys(value["signature"] for value in rows[0].values()), *notes):
        print_text(line, style="dim")


def _cell(value: dict[str, Any]) -> str:
    interval = f" (μ {value['mean']:.2f} ± {value['half']:.2f})" if "half" in value else ""
    tested = f", p = {value['p']:.4f}" if value.get("p") is not None else ""
    return f"{value['score']:.2f}{interval}{tested}"
