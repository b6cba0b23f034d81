"""The page as a whole: its sections in order, in the template ``page.html`` with ``page.css`` and ``page.js``."""

from collections import Counter
from collections.abc import Callable

from jinja2 import Environment, PackageLoader, StrictUndefined

from scalesearch.report.page.facts import Facts
from scalesearch.report.page.parts import Part, Section
from scalesearch.report.page.sections import (
    cost_ledgers,
    curves,
    failures,
    hypervolume_history,
    importance,
    named,
    parallel,
    provenance,
    reliability,
    tradeoffs,
    trials,
)
from scalesearch.report.page.svg import picture


def figures(facts: Facts) -> Section | None:
    """The figures that the study has of its own, such as a scaling study's laws; None where it has none."""
    parts: list[Part] = []
    for at, (title, figure, caption) in enumerate(facts.figures):
        parts += [("heading", title), picture(figure, f"own-{at}", f"{title}. {caption}", caption)]
    return Section("figures", "Figures of this study", parts) if parts else None


SECTIONS: tuple[Callable[[Facts], Section | None], ...] = (
    tradeoffs.section, named.section, figures, trials.section, reliability.section, hypervolume_history.section,
    parallel.section, importance.section, curves.section, cost_ledgers.section, failures.section, provenance.section,
)
STATES = {"complete": "complete", "pending": "running or queued", "paused": "paused", "failed": "failed",
          "infeasible": "infeasible", "duplicate": "duplicates"}


def render(facts: Facts) -> str:
    """The whole file; every text in it is escaped."""
    loader = PackageLoader("scalesearch.report.page", "")
    templates = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True,
                            undefined=StrictUndefined, keep_trailing_newline=True)
    sections = [one for section in SECTIONS if (one := section(facts)) is not None]
    return templates.get_template("page.html").render(
        title=f"Study {facts.name}", tiles=_tiles(facts), notes=facts.notes[:2], sections=sections,
        unfinished=any(one.state == "pending" for one in facts.trials.values()))


def _tiles(facts: Facts) -> list[tuple[int, str]]:
    """What is counted at the head of the page."""
    counts = Counter(one.state for one in facts.own)
    tiles = [(counts[state], words) for state, words in STATES.items() if counts[state] or state == "complete"]
    replicates = sum(one.replicate and one.state == "complete" for one in facts.trials.values())
    return tiles + [(replicates, "replicates")] * (replicates > 0) + [(len(facts.front), "on the front")] * facts.ranked
