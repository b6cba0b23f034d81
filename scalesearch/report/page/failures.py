"""What was not finished, and why: failed trainings, refused proposals, repetitions."""

from collections import Counter
from typing import Any

from scalesearch.report.page.candidates import links_of
from scalesearch.report.page.facts import Candidate, Facts
from scalesearch.report.page.html import Cell, Section, join, table, tag

WITHOUT_LIMIT = "could not be built"


def section(facts: Facts) -> Section:
    """Failures one by one, refusals by the limit that they missed."""
    every = list(facts.candidates.values())
    failed = [one for one in every if one.state == "failed"]
    refused = [one for one in every if one.state == "infeasible"]
    again = sum(one.state == "duplicate" for one in every)
    body: list[Any] = [_failed(facts, failed) if failed else tag("p", "No training has failed.")]
    if refused or facts.searched:
        body.append(_refused(refused) if refused else tag("p", "No proposal was refused for its cost."))
    if again:
        which = ("proposal" if facts.searched else "named architecture") + "s" * (again > 1)
        body.append(tag("p", f"{again} {which} repeated an architecture that was there already; it was not trained "
                             "again."))
    title = "Failures and refusals" if refused or facts.searched else "Failures"
    return Section("failures", title, join(body), "Failures")


def _failed(facts: Facts, failed: list[Candidate]) -> Any:
    rows = [[Cell(one.name, one.number, words=True), tag("span", one.reason or "no reason is known", class_="failed"),
             Cell(links_of(facts, one.number))] for one in failed]
    return table(["candidate", "reason", "files"], rows, f"{len(failed)} failed trainings.", "failures-table")


def _refused(refused: list[Candidate]) -> Any:
    counts = Counter(limit for one in refused for limit in one.limits or (one.reason or WITHOUT_LIMIT,))
    rows = [[limit, Cell(f"{count:,}", count)] for limit, count in counts.most_common()]
    caption = (f"{len(refused):,} proposals were refused by their bill, before any training. One that misses several "
               "limits counts for each.")
    return table(["limit", "proposals that miss it"], rows, caption, "refusals-table")
