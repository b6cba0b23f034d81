"""What fits a budget, for people: counts as sentences, everything else as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalesearch.cost import Protocol
from scalesearch.feasible.answer import Feasibility, binned
from scalesearch.feasible.candidates import Candidate, Point, priced
from scalesearch.space.syntax.parameters import format_constant
from scalesearch.terminal import make_table

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from scalesearch.feasible.near import Near

ONCE = "macs.once"
COUNTS = ("exact", "why", "sheets", "sound", "fitting", "distinct", "distinct_fitting", "share", "low", "high", "draws",
          "strata", "notes", "front_whole", "least")
SHOWN_VALUES, SHOWN_LINES, SHOWN_FRONT = 60, 8, 12  # rows of values, of one parameter's, points of the front


def parts(found: Feasibility) -> Iterator[Table | str]:
    """Sentences and tables, in the order in which they are shown."""
    yield from _counts(found)
    yield from (_reasons(found), _values(found))
    if found.front:
        yield _front(found.front, found.front_whole)
    same = _common([*found.extremes.values()])
    for word, point in found.extremes.items():
        differing = ", ".join(f"{key}={text}" for key, text in _texts(point.answers.params).items() if key not in same)
        yield f"{word}: " + ", ".join(f"{name} {value:,}" for name, value in point.costs.items()) + f"  ({differing})"
    for name, value in found.least.items():
        yield f"Nothing fits. The least {name} that any candidate has is {value:,}: a budget must allow that much."
    yield from found.notes


def once(found: Feasibility, protocol: Protocol) -> list[str]:
    """What the candidates that are shown compute on weights alone, where any does."""
    points = [*spread(found.front), *found.extremes.values()]
    bills = priced([Candidate.of(point.answers) for point in points], protocol, [ONCE])
    return protocol.once(*(bill.costs[ONCE] for bill in bills if bill.costs))


def to_json(found: Feasibility, around: Sequence[Near] = ()) -> dict[str, Any]:
    """Counts, values, reasons, front, extremes and the nearest candidates as JSON values."""
    frames = {"values": found.values, "reasons": found.reasons}
    return {name: getattr(found, name) for name in COUNTS} | {
        **{name: frame.to_dict("records") for name, frame in frames.items()},
        "front": [p.costs for p in found.front],
        "front_answers": [_texts(p.answers.params) for p in found.front],
        "extremes": {word: {"costs": p.costs, "params": _texts(p.answers.params)}
                     for word, p in found.extremes.items()},
        "near": [{"changes": {k: [format_constant(a), format_constant(b)] for k, (a, b) in n.changes.items()}, "costs": dict(n.costs)}
                 for n in around],
    }


def front_table(found: Feasibility) -> pd.DataFrame:
    """The front's points, whole: a column for each cost and each parameter."""
    import pandas as pd

    return pd.DataFrame([{**point.costs, **_texts(point.answers.params)} for point in found.front])


def _texts(params: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as ``--set`` takes them."""
    return {name: format_constant(value) for name, value in params.items()}


def _counts(found: Feasibility) -> Iterator[str]:
    """How many there are, and how many fit."""
    if found.exact:
        assert found.sheets and found.sound is not None and found.distinct is not None
        yield (f"Answer sheets: {found.sheets:,}, exactly; {found.sound:,} can be built and meet the space's "
               f"constraints. Distinct networks: {found.distinct:,}.")
        share = (found.distinct_fitting or 0) / max(1, found.distinct)
        yield (f"Within budget: {found.fitting:,} sheets ({_percent(found.share)}), "
               f"{found.distinct_fitting:,} distinct networks ({_percent(share)}).")
        return
    size = f"Answer sheets: {found.sheets:,}, exactly" if found.sheets is not None else "Answer sheets not counted"
    yield f"{size}. Networks not counted: {found.why}."
    yield (f"Within budget: {_percent(found.share)} of {found.draws:,} draws, each parameter uniform ({found.strata}); "
           f"95 % interval {_percent(found.low)} to {_percent(found.high)}.")


def _percent(share: float) -> str:
    """A share to three digits, and never 0 or 100 where it is neither."""
    if 0 < share < 0.0005:
        return f"{100 * share:.2g} %"
    return "over 99.95 %" if 0.9995 < share < 1 else f"{100 * share:.3g} %"


def _reasons(found: Feasibility) -> Table:
    """What the candidates that do not fit violate."""
    headings = ("violates", "sheets" if found.exact else "draws",
                f"share of {found.sound:,}" if found.exact else "share")
    rows = [(_violated(row["broken"]), f"{row['count']:,}", _percent(row["share"]))
            for _, row in found.reasons.iterrows() if row["count"]]
    return make_table(headings, rows, title="What binds", has_box=True)


def _violated(broken: str) -> str:
    return f"only {broken}" if broken and " and " not in broken else broken or "nothing: fits"


def _values(found: Feasibility) -> Table:
    """The feasible share of each answer; neighbouring values of long ranges are put together."""
    share = "of its sheets" if found.exact else "share"  # of all, also those that break the space's own constraints
    noted = found.values["verdict"].any() or len(found.values) > SHOWN_VALUES  # else nothing stands beside the numbers
    rows: list[tuple[str, ...]] = []
    for name, group in found.values.groupby("parameter", sort=False):
        for at, (_, row) in enumerate(binned(group, SHOWN_LINES).iterrows()):
            rows.append((str(name) * (at == 0), str(row["answer"]), _percent(row["share"]), row["verdict"]))
        if len(rows) > SHOWN_VALUES:
            rows.append(("…", "", "", "the rest: --csv or --json"))
            break
    headings = ("parameter", "answer", share, "")
    title = f"Feasible share by answer ({'exact' if found.exact else 'of draws'})"
    return make_table(headings[: 3 + noted], [row[: 3 + noted] for row in rows], (0, 3), title, has_box=True)


def _front(points: list[Point], whole: bool) -> Table:
    """Points of the front, spread over it, with the answers in which they differ most."""
    names = list(points[0].costs)[:2]
    chosen = spread(points)
    same = _common(chosen)
    keys = [key for key in chosen[0].answers.params if key not in same and key.count(".") < 2][:6]
    rows = [(*(f"{point.costs[name]:,}" for name in names), *(texts.get(key, "") for key in keys))
            for point in chosen for texts in [_texts(point.answers.params)]]
    title = f"Most {names[0]} for the {names[1]}: {len(chosen)} of {len(points):,} points (exact)"
    table = make_table((*names, *keys), rows, (), title, has_box=True)
    if not whole:
        table.caption = "there are more, which only the budget puts there"
    return table


def spread(points: list[Point]) -> list[Point]:
    """As many of a front's points as are shown, spread over it."""
    shown = min(SHOWN_FRONT, len(points))
    step = (len(points) - 1) / max(1, shown - 1)
    return [points[round(at * step)] for at in range(shown)]


def _common(points: list[Point]) -> set[str]:
    """Parameters that have one value in all points."""
    sheets = [dict(point.answers.params) for point in points]
    return {key for key in (sheets[0] if sheets else ()) if all(sheet.get(key) == sheets[0][key] for sheet in sheets)}


def neighbours(found: list[Near], name: str) -> Table:
    """The nearest candidates that fit."""
    names = [name for name in (found[0].costs if found else ()) if any(near.costs[name] for near in found)]
    changes = [[f"{key}: {format_constant(old)} → {format_constant(new)}" for key, (old, new) in near.changes.items()] for near in found]
    rows = [(", ".join(listed) or "none: it fits", *(f"{near.costs[cost]:,}" for cost in names))
            for near, listed in zip(found, changes)]
    return make_table(("change", *names), rows or [("none within four changed answers",)],
                      title=f"Nearest to {name} that fit", has_box=True)
