"""What fits a budget, for people: counts as sentences, everything else as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalesearch.cost import Protocol
from scalesearch.feasible.costed_candidates import CostedCandidate, IndexedCandidate, evaluate_costs
from scalesearch.feasible.report import FeasibilityReport, bin_values
from scalesearch.space.syntax.parameters import format_constant
from scalesearch.terminal import make_table

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from scalesearch.feasible.nearest import NearbyCandidate

WEIGHT_WORK_COST = "macs.once"
# JSON key to the field of the report.
REPORT_JSON_FIELDS = {"exact": "exact", "inexact_reason": "inexact_reason",
                      "candidates": "n_candidates", "valid": "n_valid", "feasible": "n_feasible",
                      "distinct": "n_distinct", "distinct_feasible": "n_distinct_feasible",
                      "share": "share", "low": "share_low", "high": "share_high",
                      "samples": "n_samples", "strata": "strata", "notes": "notes",
                      "front_complete": "is_front_complete", "min_costs": "min_costs"}
MAX_VALUE_ROWS = 60
MAX_ROWS_PER_PARAMETER = 8
MAX_FRONT_ROWS = 12  # rows of values, of one parameter's, points of the front


def render_report(report: FeasibilityReport) -> Iterator[Table | str]:
    """Sentences and tables, in the order in which they are shown."""
    yield from _counts(report)
    yield from (_reasons(report), _values(report))
    if report.front:
        yield _front(report.front, report.is_front_complete)
    same = _shared_params([*report.extremes.values()])
    for word, point in report.extremes.items():
        differing = ", ".join(f"{key}={text}"
                              for key, text in _format_params(point.param_values.params).items()
                              if key not in same)
        yield f"{word}: " + ", ".join(f"{name} {value:,}"
                                      for name, value in point.costs.items()) + f"  ({differing})"
    for name, value in report.min_costs.items():
        yield f"Nothing fits. The least {name} that any candidate has is {value:,}: a budget must allow that much."
    yield from report.notes


def weight_work_lines(report: FeasibilityReport, protocol: Protocol) -> list[str]:
    """What the candidates that are shown compute on weights alone, where any does."""
    points = [*select_spread_points(report.front), *report.extremes.values()]
    bills = evaluate_costs([CostedCandidate.from_param_values(point.param_values)
                            for point in points], protocol, [WEIGHT_WORK_COST])
    return protocol.weight_work_lines(*(bill.costs[WEIGHT_WORK_COST]
                                        for bill in bills if bill.costs))


def to_json(report: FeasibilityReport, nearest: Sequence[NearbyCandidate] = ()) -> dict[str, Any]:
    """Counts, values, reasons, front, extremes and the nearest candidates as JSON values."""
    frames = {"values": report.value_shares, "violations": report.violations}
    return {key: getattr(report, name) for key, name in REPORT_JSON_FIELDS.items()} | {
        **{name: frame.to_dict("records") for name, frame in frames.items()},
        "front": [p.costs for p in report.front],
        "front_params": [_format_params(p.param_values.params) for p in report.front],
        "extremes": {word: {"costs": p.costs, "params": _format_params(p.param_values.params)}
                     for word, p in report.extremes.items()},
        "near": [{"changes": {k: [format_constant(a), format_constant(b)]
                              for k, (a, b) in n.changes.items()}, "costs": dict(n.costs)}
                 for n in nearest]}


def front_table(report: FeasibilityReport) -> pd.DataFrame:
    """The front's points, whole: a column for each cost and each parameter."""
    import pandas as pd

    return pd.DataFrame([{**point.costs, **_format_params(point.param_values.params)}
                         for point in report.front])


def _format_params(params: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as ``--set`` takes them."""
    return {name: format_constant(value) for name, value in params.items()}


def _counts(report: FeasibilityReport) -> Iterator[str]:
    """How many there are, and how many fit."""
    if report.exact:
        assert report.n_candidates and report.n_valid is not None and report.n_distinct is not None
        yield (f"Answer sheets: {report.n_candidates:,}, exactly; {report.n_valid:,} can be built "
               f"and meet the space's constraints. Distinct networks: {report.n_distinct:,}.")
        share = (report.n_distinct_feasible or 0) / max(1, report.n_distinct)
        yield (f"Within budget: {report.n_feasible:,} sheets ({_percent(report.share)}), "
               f"{report.n_distinct_feasible:,} distinct networks ({_percent(share)}).")
        return
    size = (f"Answer sheets: {report.n_candidates:,}, exactly" if report.n_candidates is not None
            else "Answer sheets not counted")
    yield f"{size}. Networks not counted: {report.inexact_reason}."
    yield (f"Within budget: {_percent(report.share)} of {report.n_samples:,} draws, each parameter "
           f"uniform ({report.strata}); 95 % interval {_percent(report.share_low)} to "
           f"{_percent(report.share_high)}.")


def _percent(share: float) -> str:
    """A share to three digits, and never 0 or 100 where it is neither."""
    if 0 < share < 0.0005:
        return f"{100 * share:.2g} %"
    return "over 99.95 %" if 0.9995 < share < 1 else f"{100 * share:.3g} %"


def _reasons(report: FeasibilityReport) -> Table:
    """What the candidates that do not fit violate."""
    headings = ("violates", "sheets" if report.exact else "draws",
                f"share of {report.n_valid:,}" if report.exact else "share")
    rows = [(_format_violation(row["violated"]), f"{row['count']:,}", _percent(row["share"]))
            for _, row in report.violations.iterrows() if row["count"]]
    return make_table(headings, rows, title="What binds", has_box=True)


def _format_violation(broken: str) -> str:
    return f"only {broken}" if broken and " and " not in broken else broken or "nothing: fits"


def _values(report: FeasibilityReport) -> Table:
    """The feasible share of each answer; neighboring values of long ranges are put together."""
    # of all, also those that break the space's own constraints
    share = "of its sheets" if report.exact else "share"
    # else nothing stands beside the numbers
    noted = report.value_shares["verdict"].any() or len(report.value_shares) > MAX_VALUE_ROWS
    rows: list[tuple[str, ...]] = []
    for name, group in report.value_shares.groupby("parameter", sort=False):
        for at, (_, row) in enumerate(bin_values(group, MAX_ROWS_PER_PARAMETER).iterrows()):
            rows.append((str(name) * (at == 0), str(row["value"]), _percent(row["share"]),
                         row["verdict"]))
        if len(rows) > MAX_VALUE_ROWS:
            rows.append(("…", "", "", "the rest: --csv or --json"))
            break
    headings = ("parameter", "answer", share, "")
    title = f"Feasible share by answer ({'exact' if report.exact else 'of draws'})"
    return make_table(headings[: 3 + noted], [row[: 3 + noted] for row in rows], (0, 3), title,
                      has_box=True)


def _front(points: list[IndexedCandidate], whole: bool) -> Table:
    """Points of the front, spread over it, with the answers in which they differ most."""
    names = list(points[0].costs)[:2]
    chosen = select_spread_points(points)
    same = _shared_params(chosen)
    keys = [key
            for key in chosen[0].param_values.params if key not in same and key.count(".") < 2][:6]
    rows = [(*(f"{point.costs[name]:,}" for name in names), *(texts.get(key, "") for key in keys))
            for point in chosen for texts in [_format_params(point.param_values.params)]]
    title = f"Most {names[0]} for the {names[1]}: {len(chosen)} of {len(points):,} points (exact)"
    table = make_table((*names, *keys), rows, (), title, has_box=True)
    if not whole:
        table.caption = "there are more, which only the budget puts there"
    return table


def select_spread_points(points: list[IndexedCandidate]) -> list[IndexedCandidate]:
    """As many of a front's points as are shown, spread over it."""
    shown = min(MAX_FRONT_ROWS, len(points))
    step = (len(points) - 1) / max(1, shown - 1)
    return [points[round(at * step)] for at in range(shown)]


def _shared_params(points: list[IndexedCandidate]) -> set[str]:
    """Parameters that have one value in all points."""
    sheets = [dict(point.param_values.params) for point in points]
    return {key
            for key in (sheets[0] if sheets else ())
            if all(sheet.get(key) == sheets[0][key] for sheet in sheets)}


def nearest_table(nearest: list[NearbyCandidate], name: str) -> Table:
    """The nearest candidates that fit."""
    names = [name
             for name in (nearest[0].costs if nearest else ())
             if any(near.costs[name] for near in nearest)]
    changes = [[f"{key}: {format_constant(old)} → {format_constant(new)}"
                for key, (old, new) in near.changes.items()] for near in nearest]
    rows = [(", ".join(listed) or "none: it fits", *(f"{near.costs[cost]:,}" for cost in names))
            for near, listed in zip(nearest, changes)]
    return make_table(("change", *names), rows or [("none within four changed answers",)],
                      title=f"Nearest to {name} that fit", has_box=True)
