"""The page as a whole: its sections in order, in the template ``page.html`` with ``page.css`` and ``page.js``."""

from collections import Counter
from collections.abc import Callable

from jinja2 import Environment, PackageLoader, StrictUndefined

from scalesearch.report.labels import direction, heading
from scalesearch.report.table import summary
from scalesearch.study.results.page import accounts, cost_ledgers, curves, fair, front, importance, parallel, trials
from scalesearch.study.results.page.facts import Facts
from scalesearch.study.results.page.parts import Part, Section
from scalesearch.study.results.page.svg import picture
from scalesearch.study.trials.trial import State


def figures(facts: Facts) -> Section | None:
    """The figures that the study has of its own, such as a scaling study's laws; None where it has none."""
    parts: list[Part] = []
    for at, (title, figure, caption) in enumerate(facts.figures):
        parts += [("heading", title), picture(figure, f"own-{at}", f"{title}. {caption}", caption)]
    return Section("figures", "Figures of this study", parts) if parts else None


SECTIONS: tuple[Callable[[Facts], Section | None], ...] = (
    front.section, accounts.named, figures, trials.section, accounts.reliability, fair.section, front.growth,
    parallel.section, importance.section, curves.section, cost_ledgers.section, accounts.failures, accounts.provenance,
)
STATES = {State.COMPLETE: "complete", State.PENDING: "running or queued", State.PAUSED: "paused",
          State.FAILED: "failed", State.INFEASIBLE: "infeasible", State.DUPLICATE: "duplicates"}


def render(facts: Facts) -> str:
    """The whole file; every text in it is escaped."""
    loader = PackageLoader("scalesearch.study.results.page", "")
    templates = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True,
                            undefined=StrictUndefined, keep_trailing_newline=True)
    sections = [one for section in SECTIONS if (one := section(facts)) is not None]
    return templates.get_template("page.html").render(
        title=f"Study {facts.meta.name}", tiles=_tiles(facts), notes=[*_best(facts), *facts.results.notes()[:2]],
        sections=sections, unfinished=bool(facts.trials.having(State.PENDING)))


def _best(facts: Facts) -> list[str]:
    """The front's best member, its gain over the best reference, and the budget."""
    front, sign = facts.results.front, -1 if direction(facts.main) == "max" else 1
    lines = [f"Budget: {'; '.join(facts.meta.limits)}."] if facts.meta.limits else []
    if not len(front) or front[facts.main].isna().all():
        return lines
    row = front.loc[(sign * front[facts.main].astype(float)).idxmin()]
    shown = {name: heading(name) for name in dict.fromkeys([facts.main, *facts.results.objectives])}
    others = facts.done[facts.done["label"].notna() & (facts.done["trial"] != row["trial"])]
    gain = ""
    if len(others):
        other = others.loc[(sign * others[facts.main].astype(float)).idxmin()]
        gain = f"; {row[facts.main] - other[facts.main]:+.2f} over the best reference, {other['label']}"
    return [f"Best on the front: {summary(row, shown)}{gain}.", *lines]


def _tiles(facts: Facts) -> list[tuple[int, str]]:
    """What is counted at the head of the page."""
    counts = Counter(one.state for one in facts.own)
    tiles = [(counts[state], words) for state, words in STATES.items() if counts[state] or state == State.COMPLETE]
    replicates = sum(one.state == State.COMPLETE for one in facts.trials.replicates())
    members = [(len(facts.members), "on the front")] * facts.ranked
    return tiles + [(replicates, "replicates")] * (replicates > 0) + members
