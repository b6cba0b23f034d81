"""What ``scalesearch feasible`` shows: counts as sentences, everything else as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scalesearch.terminal import make_table

MOST_LINES = 8  # of one parameter

if TYPE_CHECKING:
    from rich.table import Table

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
    yield (f"Within budget: {percent(found.share)} of {found.draws:,} draws, each parameter uniform ({found.strata}); "
           f"95 % interval {percent(found.low)} to {percent(found.high)}.")


def percent(share: float) -> str:
    """A share to three digits, and never 0 or 100 where it is neither."""
    if 0 < share < 0.0005:
        return f"{100 * share:.2g} %"
    return "over 99.95 %" if 0.9995 < share < 1 else f"{100 * share:.3g} %"


def reasons(found: Feasibility) -> Table:
    """What the candidates that do not fit violate."""
    headings = ("violates", "sheets" if found.exact else "draws",
                f"share of {found.sound:,}" if found.exact else "share")
    rows = [(_violated(row["broken"]), f"{row['count']:,}", percent(row["share"]))
            for _, row in found.reasons.iterrows() if row["count"]]
    return make_table(headings, rows, title="What binds", lines=True)


def _violated(broken: str) -> str:
    return f"only {broken}" if broken and " and " not in broken else broken or "nothing: fits"


def values(found: Feasibility, most: int) -> Table:
    """The feasible share of each answer; neighbouring values of long ranges are put together."""
    from scalesearch.feasible.answer import binned

    share = "of its sheets" if found.exact else "share"  # of all, also those that break the space's own constraints
    noted = found.values["verdict"].any() or len(found.values) > most  # else nothing stands beside the numbers
    rows: list[tuple[str, ...]] = []
    for name, group in found.values.groupby("parameter", sort=False):
        for at, (_, row) in enumerate(binned(group, MOST_LINES).iterrows()):
            rows.append((str(name) * (at == 0), str(row["answer"]), percent(row["share"]), row["verdict"]))
        if len(rows) > most:
            rows.append(("…", "", "", "the rest: --csv or --json"))
            break
    headings = ("parameter", "answer", share, "")
    title = f"Feasible share by answer ({'exact' if found.exact else 'of draws'})"
    return make_table(headings[: 3 + noted], [row[: 3 + noted] for row in rows], (0, 3), title, lines=True)


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
    rows = [(*(f"{point.costs[name]:,}" for name in names), *(str(point.answers.params.get(key, "")) for key in keys))
            for point in chosen]
    title = f"Most {names[0]} for the {names[1]}: {len(chosen)} of {len(found.front):,} points (exact)"
    table = make_table((*names, *keys), rows, (), title, lines=True)
    if not found.front_whole:
        table.caption = "there are more, which only the budget puts there"
    return table


def _common(points: list[Point]) -> set[str]:
    """Parameters that have one value in all points."""
    sheets = [dict(point.answers.params) for point in points]
    return {key for key in (sheets[0] if sheets else ()) if all(sheet.get(key) == sheets[0][key] for sheet in sheets)}


def relaxed(found: Feasibility) -> Iterator[str]:
    """What a budget that nothing meets would have to allow."""
    for name, value in found.least.items():
        yield f"Nothing fits. The least {name} that any candidate has is {value:,}: a budget must allow that much."


def neighbours(found: list[Near], name: str) -> Table:
    """The nearest candidates that fit."""
    names = list(found[0].costs) if found else []
    rows = [(", ".join(f"{key}: {old} → {new}" for key, (old, new) in near.changes.items()) or "none: it fits",
             *(f"{near.costs[cost]:,}" for cost in names)) for near in found]
    return make_table(("change", *names), rows or [("none within four changed answers",)],
                      title=f"Nearest to {name} that fit", lines=True)
