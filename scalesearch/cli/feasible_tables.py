"""What ``scalesearch feasible`` shows: counts as sentences, everything else as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table

MOST_LINES = 8  # of one question

if TYPE_CHECKING:
    from scalesearch.feasible.answer import Feasibility
    from scalesearch.feasible.extremes import Point
    from scalesearch.feasible.near import Near


def counts(found: Feasibility) -> Iterator[str]:
    """How many there are, and how many fit."""
    if found.exact:
        assert found.sheets and found.sound is not None and found.distinct is not None
        yield (f"Answer sheets: {found.sheets:,}, exactly; {found.sound:,} can be built and meet the space's "
               f"constraints. Distinct networks: {found.distinct:,}.")
        share = (found.distinct_fitting or 0) / max(1, found.distinct)
        yield (f"Within budget: {found.fitting:,} sheets ({percent(found.share)}), {found.distinct_fitting:,} distinct "
               f"networks ({percent(share)}).")
        return
    size = f"Answer sheets: {found.sheets:,}, exactly" if found.sheets is not None else "Answer sheets not counted"
    yield f"{size}. Networks not counted: {found.why}."
    yield (f"Within budget: {percent(found.share)} of {found.draws:,} draws, each question uniform ({found.strata}); "
           f"95 % interval {percent(found.low)} to {percent(found.high)}.")


def percent(share: float) -> str:
    """A share to three digits, and never 0 or 100 where it is neither."""
    if 0 < share < 0.0005:
        return f"{100 * share:.2g} %"
    return "over 99.95 %" if 0.9995 < share < 1 else f"{100 * share:.3g} %"


def reasons(found: Feasibility) -> Table:
    """What the candidates that do not fit violate."""
    what = "sheets" if found.exact else "draws"
    table = Table(title="What binds", title_justify="left")
    table.add_column("violates")
    table.add_column(what, justify="right")
    table.add_column(f"share of {found.sound:,}" if found.exact else "share", justify="right")
    for _, row in found.reasons.iterrows():
        if row["count"]:
            table.add_row(f"only {row['broken']}" if row["broken"] and " and " not in row["broken"] else
                          row["broken"] or "nothing: fits", f"{row['count']:,}", percent(row["share"]))
    return table


def values(found: Feasibility, most: int) -> Table:
    """The feasible share of each answer; neighbouring values of long ranges are put together."""
    from scalesearch.feasible.answer import binned

    table = Table(title=f"Feasible share by answer ({'exact' if found.exact else 'of draws'})", title_justify="left")
    share = "of its sheets" if found.exact else "share"  # of all, also those that break the space's own constraints
    said = found.values["verdict"].any() or len(found.values) > most  # else nothing stands beside the numbers
    for heading in ("question", "answer", share, *([""] if said else [])):
        table.add_column(heading, justify="right" if heading in ("answer", share) else "left")
    shown = 0
    for name, rows in found.values.groupby("question", sort=False):
        kept = binned(rows, MOST_LINES)
        for at, (_, row) in enumerate(kept.iterrows()):
            table.add_row(str(name) if at == 0 else "", str(row["answer"]), percent(row["share"]),
                          *([row["verdict"]] if said else []))
        shown += len(kept)
        if shown > most:
            table.add_row("…", "", "", "the rest: --csv or --json")
            break
    return table


def extremes(found: Feasibility) -> Iterator[str]:
    """The cheapest and the dearest that fit, with all their answers."""
    points = list(found.extremes.values())
    same = _common(points)
    for word, point in found.extremes.items():
        asked = ", ".join(f"{key}={value}" for key, value in point.answers.params.items() if key not in same)
        yield f"{word}: " + ", ".join(f"{name} {value:,}" for name, value in point.costs.items()) + f"  ({asked})"


def front(found: Feasibility, most: int) -> Table:
    """Points of the front, spread over it, with the answers in which they differ most."""
    names = list(found.front[0].costs)[:2]
    step = (len(found.front) - 1) / max(1, most - 1)
    chosen = [found.front[round(at * step)] for at in range(min(most, len(found.front)))]
    same = _common(chosen)
    keys = [key for key in chosen[0].answers.params if key not in same and key.count(".") < 2][:6]
    table = Table(title=f"Most {names[0]} for the {names[1]}: {len(chosen)} of {len(found.front):,} points (exact)",
                  title_justify="left")
    for heading in (*names, *keys):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in chosen:
        asked = point.answers.params
        table.add_row(*(f"{point.costs[name]:,}" for name in names), *(str(asked.get(key, "")) for key in keys))
    if not found.front_whole:
        table.caption = "there are more, which only the budget puts there"
    return table


def _common(points: list[Point]) -> set[str]:
    """Questions that all points answer alike."""
    sheets = [dict(point.answers.params) for point in points]
    return {key for key in (sheets[0] if sheets else ()) if all(sheet.get(key) == sheets[0][key] for sheet in sheets)}


def relaxed(found: Feasibility) -> Iterator[str]:
    """What a budget that nothing meets would have to allow."""
    for name, value in found.least.items():
        yield f"Nothing fits. The least {name} that any candidate has is {value:,}: a budget must allow that much."


def neighbours(found: list[Near], name: str) -> Table:
    """The nearest candidates that fit."""
    table = Table(title=f"Nearest to {name} that fit", title_justify="left")
    table.add_column("change")
    names = list(found[0].costs) if found else []
    for cost in names:
        table.add_column(cost, justify="right")
    for near in found:
        changes = ", ".join(f"{key}: {old} → {new}" for key, (old, new) in near.changes.items()) or "none: it fits"
        table.add_row(changes, *(f"{near.costs[cost]:,}" for cost in names))
    if not found:
        table.add_row("none within four changed answers")
    return table
