"""Rendering of the report page from ``page.html``, ``page.css`` and ``page.js``."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from scalesearch.errors import UserError, option
from scalesearch.files import write_text
from scalesearch.report.labels import better_direction, column_heading
from scalesearch.report.table import summarize_trial
from scalesearch.studies.config.fixed_architectures import COMPRESS, SCALING
from scalesearch.studies.monitor.format import STATE_WORDS
from scalesearch.studies.results.page import front, hyperparameters, tables
from scalesearch.studies.results.page.elements import PageSection, Part, picture
from scalesearch.studies.results.page.facts import PageFacts
from scalesearch.studies.results.results import Results
from scalesearch.studies.trials.trial import State
from scalesearch.tasks import format_score


def study_figures_section(facts: PageFacts) -> PageSection | None:
    """Create the section with figures for this type of study, such as power laws.

    The result is None if empty.
    """
    parts: list[Part] = []
    for index, (title, figure, caption) in enumerate(facts.figures):
        parts += [("heading", title),
                  picture(figure, f"own-{index}", f"{title}. {caption}", caption)]
    return PageSection("figures", "Figures of this study", parts) if parts else None


PAGE_SECTIONS: tuple[Callable[[PageFacts], PageSection | None], ...] = (
    front.front_section, tables.named_architectures_section, study_figures_section,
    tables.trials_section, tables.reliability_section, tables.fairness_section,
    front.hypervolume_section, hyperparameters.parallel_section, hyperparameters.importance_section,
    front.curves_section, tables.cost_section, tables.failures_section, tables.provenance_section)


def render(facts: PageFacts) -> str:
    """Render the whole page; all texts are escaped."""
    loader = PackageLoader("scalesearch.studies.results.page", "")
    templates = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True,
                            undefined=StrictUndefined, keep_trailing_newline=True)
    counts = Counter(trial.state for trial in facts.candidates)
    tiles = [(counts[state], words)
             for state, words in STATE_WORDS.items() if counts[state] or state == State.COMPLETE]
    replicates = sum(trial.state == State.COMPLETE for trial in facts.trials.replicates())
    if replicates:
        tiles.append((replicates, "replicates"))
    if facts.has_front:
        tiles.append((len(facts.front_members), "on the front"))
    sections = [section for section in (make_section(facts) for make_section in PAGE_SECTIONS)
                if section is not None]
    return templates.get_template("page.html").render(
        title=f"Study {facts.meta.name}", tiles=tiles,
        notes=[*_best_member_lines(facts), *facts.results.notes()[:2]], sections=sections,
        unfinished=bool(facts.trials.with_state(State.PENDING)))


def _best_member_lines(facts: PageFacts) -> list[str]:
    """Describe the best member of the front, its gain over references, and the budget."""
    front = facts.results.front
    main = facts.main_metric
    sign = -1 if better_direction(main) == "max" else 1
    limits = re.sub(r"(?<![\w.])\d{4,}(?![\w.])", lambda match: f"{int(match[0]):,}",
                    "; ".join(facts.meta.limits))
    lines = [f"Budget: {limits}."] if limits else []
    if not len(front) or front[main].isna().all():
        return lines
    row = front.loc[(sign * front[main].astype(float)).idxmin()]
    shown = {name: column_heading(name, facts.meta.protocol)
             for name in dict.fromkeys([main, *facts.meta.directions])}
    rows = facts.finished_rows
    others = rows[rows["label"].notna() & (rows["trial"] != row["trial"])]
    gain = ""
    if len(others):
        other = others.loc[(sign * others[main].astype(float)).idxmin()]
        gain = (f"; difference to the best {facts.meta.architecture_noun} ({other['label']}): "
                f"{format_score(row[main] - other[main], main, '+')}")
    return [f"Best on the front: {summarize_trial(row, shown)}{gain}.", *lines]


def study_figures(results: Results) -> tuple[tuple[str, Figure, str], ...]:
    """Title, figure and caption of the figures of a scaling study or a compression.

    Empty for other studies and without finished trials.
    """
    if results.study.meta.type == COMPRESS:
        return _compression_figures(results)
    if results.study.meta.type != SCALING:
        return ()
    # Imported here because other studies do not need them.
    from scalesearch.report.scaling.figures import plot_laws, plot_means
    from scalesearch.report.scaling.tables import scaling_tables
    from scalesearch.studies.results.publish import scaling_of

    try:
        study = scaling_of(results)
    except UserError:  # no finished trials
        return ()
    recommendation = " ".join(line for rule_table in scaling_tables(study)
                              for line in rule_table.footnotes)
    figures = [("Scores by size", plot_means(study), recommendation)]
    figures += [(f"Power laws over {cost}", plot_laws(study, cost),
                 "One power law per rule, with its interval up to the next size. Ring: score at "
                 "the largest size; black bar: prediction from the other sizes.")
                for cost in study.costs]
    return tuple((title, figure, caption)
                 for title, figure, caption in figures if figure is not None)


def _compression_figures(results: Results) -> tuple[tuple[str, Figure, str], ...]:
    # Imported here because other studies do not need them.
    from scalesearch.compression.alternatives import evaluate_combination
    from scalesearch.compression.front import read_library
    from scalesearch.cost import load_protocol
    from scalesearch.report.figures.compression import (
        additivity_table,
        describe_additivity,
        plot_additivity,
        plot_scores,
    )

    try:
        parent, library = read_library(results.study.folder)
    except UserError:  # not scored yet
        return ()
    figures = [("Scores of replacements", plot_scores(library),
                f"Rise of the validation loss with one block replaced; the parent has "
                f"{library.parent_loss:.4f} nats per character.")]
    if library.measured:
        protocol = load_protocol(results.study.meta.protocol)
        params = [evaluate_combination(parent, measured.alternatives, ["params.total"], protocol)[0]
                  for measured in library.measured]
        table = additivity_table(library, params)
        figures.append(("Do the rises add up?", plot_additivity(table, library),
                        describe_additivity(table)))
    return tuple(figures)


def write_page(results: Results, to: Path, alone: bool = False) -> Path:
    """Write the page of ``results`` to the file ``to``; return ``to``.

    Args:
        alone: without links to other files, for a page that is moved or sent.

    Raises:
        UserError: ``to`` is a folder.
    """
    if to.is_dir():
        raise UserError(f"{option('to', to)}: this is a folder; give a file name, such as "
                        f"{to / 'report.html'}", code="is-a-folder")
    write_text(to, render(PageFacts(results, None if alone else to.parent, study_figures(results))))
    return to
