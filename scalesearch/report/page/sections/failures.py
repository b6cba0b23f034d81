"""What was not finished, and why: failed trainings, infeasible proposals, duplicates."""

from collections import Counter

from scalesearch.report.page.facts import Facts, TrialFacts
from scalesearch.report.page.parts import Cell, Part, Section, table, text
from scalesearch.report.page.sections.trials import links_of


def section(facts: Facts) -> Section:
    """Failed trainings one by one, infeasible proposals by the constraint that they violate."""
    every = list(facts.trials.values())
    failed, infeasible = ([one for one in every if one.state == state] for state in ("failed", "infeasible"))
    duplicates = sum(one.state == "duplicate" for one in every)
    parts = [_failed(facts, failed) if failed else text("No training has failed.")]
    if infeasible or facts.searched:
        parts.append(_infeasible(infeasible) if infeasible else text("No proposal was infeasible."))
    if duplicates:
        what = ("proposal" if facts.searched else "named architecture") + "s" * (duplicates > 1)
        parts.append(text(f"{duplicates} {what} duplicated an architecture that was there already; it was not trained "
                          "again."))
    title = "Failures and infeasible proposals" if infeasible or facts.searched else "Failures"
    return Section("failures", title, parts, "Failures")


def _failed(facts: Facts, failed: list[TrialFacts]) -> Part:
    rows = [[Cell(one.name, one.number, left=True), Cell(one.reason or "the reason is not known", css="failed"),
             Cell("", links=links_of(facts, one.number))] for one in failed]
    return table(["trial", "reason", "files"], rows, f"{len(failed)} failed trainings.", "failures-table")


def _infeasible(infeasible: list[TrialFacts]) -> Part:
    counts = Counter(name for one in infeasible for name in one.violated or (one.reason or "could not be built",))
    caption = (f"{len(infeasible):,} proposals were infeasible by their exact costs, before any training. One that "
               "violates several constraints counts for each.")
    return table(["constraint", "proposals that violate it"], counts.most_common(), caption, "infeasible-table")
