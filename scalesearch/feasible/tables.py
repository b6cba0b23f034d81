"""Feasibility reports for the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalesearch.feasible.costed_candidates import IndexedCandidate, SampledCandidate
from scalesearch.feasible.limits import split_limits
from scalesearch.feasible.report import (
    ESTIMATORS,
    FeasibilityReport,
    bin_values,
    select_spread_points,
    shorten_fraction,
)
from scalesearch.spaces.parameters.param_values import SCHEDULE_PREFIXES
from scalesearch.spaces.schema.builtin import named_config
from scalesearch.spaces.syntax.lexer import split_parameter_name
from scalesearch.spaces.syntax.parameters import format_constant
from scalesearch.terminal import format_count, format_share, make_fitting_table, make_table

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from scalesearch.feasible.nearest import NearbyCandidate
    from scalesearch.spaces.parameters.param_values import ParamValues

# JSON key to field of the report.
REPORT_JSON_FIELDS = {"exact": "exact", "estimator": "estimator",
                      "inexact_reason": "inexact_reason", "candidates": "n_candidates",
                      "valid": "n_valid", "feasible": "n_feasible",
                      "distinct": "n_distinct", "distinct_feasible": "n_distinct_feasible",
                      "share": "share", "low": "share_low", "high": "share_high",
                      "samples": "n_samples", "strata": "strata", "notes": "notes",
                      "front_complete": "is_front_complete", "min_costs": "min_costs",
                      "max_costs": "max_costs"}
MAX_VALUE_ROWS = 60  # of the table of values
MAX_ROWS_PER_PARAMETER = 8
MAX_FRONT_PARAMS = 6  # columns of parameters that differ between candidates of the front
MAX_SHARED_PARAMS = 4  # of the candidates of a front table, in its title


def render_report(report: FeasibilityReport) -> Iterator[Table | str]:
    """Yield sentences and tables, in the order in which they are printed."""
    yield from _counts(report)
    headings = ("violates", "configurations" if report.exact else "samples",
                f"share of {report.n_valid:,}" if report.exact else "share")
    rows = []
    for _, row in report.violations.iterrows():
        if row["count"]:
            limits = split_limits(row["violated"])
            violated = "\nand ".join(limits) if len(limits) > 1 else f"only {limits[0]}"
            rows.append((violated if row["violated"] else "none (feasible)", f"{row['count']:,}",
                         format_share(row["share"])))
    yield make_table(headings, rows, title="Violated constraints", has_box=True)
    if report.share:
        yield _value_table(report)
    if report.share and (conditional := _conditional_params(report.value_shares)):
        yield ("Rows of these parameters only count configurations in which they are a choice: "
               f"{', '.join(conditional)}.")
    if report.front:
        names = list(report.front[0].costs)[:2]
        selected = select_spread_points(report.front)
        equal_params = _shared_params(selected)
        texts_by_point = [{key: shorten_fraction(text) for key, text
                           in _format_config(point.param_values).items()
                           if key not in equal_params} for point in selected]
        keys = list(dict.fromkeys(key for texts in texts_by_point for key in texts))
        # parameters of a variant follow its name
        columns = [key for key in keys if not any(key.startswith(f"{other}.") for other in keys)]
        front_rows = [(*(f"{point.costs[name]:,}" for name in names),
                       *(_with_inner_params(key, texts) for key in columns))
                      for point, texts in zip(selected, texts_by_point)]
        headings = [name.replace(".", ".\n", 1) for name in (*names, *columns)]
        basis = "exact" if report.exact else f"of {report.n_samples:,} samples"
        title = (f"Largest {names[0]} by {names[1]}: {len(selected)} of {len(report.front):,} "
                 f"candidates on the front ({basis})")
        if 0 < len(equal_params) <= MAX_SHARED_PARAMS:
            title += f"; all have {_shared_text(equal_params, selected[0])}"
        table, n_columns = make_fitting_table(headings, front_rows, title,
                                              n_required=len(names) + 1,
                                              n_most=len(names) + MAX_FRONT_PARAMS)
        omitted = columns[n_columns - len(names):]
        if report.exact and not report.is_front_complete:
            table.caption = "the front has more candidates at the limit of the budget"
        yield table
        if len(equal_params) > MAX_SHARED_PARAMS:
            yield f"All of these have {_shared_text(equal_params, selected[0])}."
        if omitted:
            yield f"Not shown: {', '.join(omitted)}. Use --csv or --json."
    shared = _shared_params([*report.extremes.values()])
    if shared:
        first = next(iter(report.extremes.values()))
        yield f"The candidates below have {_shared_text(shared, first)}."
    for label, candidate in report.extremes.items():
        params = ", ".join(f"{key}={text}"
                           for key, text in _format_config(candidate.param_values).items()
                           if key not in shared)
        costs = ", ".join(f"{name} {value:,}" for name, value in candidate.costs.items())
        yield f"{label}: {costs}  ({params})"
    for word, costs, limit in (("smallest", report.min_costs, "budget must be at least"),
                               ("largest", report.max_costs, "lower limit must be at most")):
        for name, value in costs.items():
            yield (f"No candidate fits. The {word} {name} of any candidate is {value:,}; the "
                   f"{limit} as large." if report.exact else
                   f"No sample fits. The {word} {name} of any sample is {value:,}.")
    if report.n_feasible == 0 and report.n_valid and not (report.min_costs or report.max_costs):
        yield ("No candidate fits: each limit is met by some candidates, but not all limits "
               "together.")
    if report.n_valid == 0:
        yield ("No candidate is valid: `scalesearch check` shows which constraints of the space "
               "fail.")
    yield from report.notes


def report_to_json(report: FeasibilityReport,
                   nearest: Sequence[NearbyCandidate] = ()) -> dict[str, Any]:
    """Convert a report and the nearest candidates to JSON values."""
    frames = {"values": report.value_shares, "violations": report.violations}
    return {key: getattr(report, name) for key, name in REPORT_JSON_FIELDS.items()} | {
        **{name: frame.to_dict("records") for name, frame in frames.items()},
        "front": [candidate.costs for candidate in report.front],
        "front_params": [_format_params(candidate.param_values.params)
                         for candidate in report.front],
        "extremes": {label: {"costs": candidate.costs,
                             "params": _format_params(candidate.param_values.params)}
                     for label, candidate in report.extremes.items()},
        "near": [{"changes": {name: [None if old is None else format_constant(old),
                                     format_constant(new)]
                              for name, (old, new) in candidate.changes.items()},
                  "costs": dict(candidate.costs)}
                 for candidate in nearest]}


def report_frames(report: FeasibilityReport) -> dict[str, pd.DataFrame]:
    """Tables of a report by name; the front has a column per cost and per parameter."""
    import pandas as pd

    frames = {"values": report.value_shares, "violations": report.violations,
              "sample": report.sample}
    if report.front:
        frames["front"] = pd.DataFrame([
            {**candidate.costs, **_format_params(candidate.param_values.params)}
            for candidate in report.front])
    return frames


def _shared_text(names: Collection[str], candidate: IndexedCandidate | SampledCandidate) -> str:
    """Format the parameters ``names``, which have the same values in several candidates."""
    texts = _format_config(candidate.param_values)
    return ", ".join(f"{name}={texts[name]}" for name in sorted(names))


def _format_params(params: Mapping[str, Any]) -> dict[str, str]:
    """Parameter values as texts for ``--set``."""
    return {name: format_constant(value) for name, value in params.items()}


def _format_config(values: ParamValues) -> dict[str, str]:
    """Parameter values for the terminal: sizes in place of the ranges and formulas they are in."""
    config = named_config(values)
    texts = {}
    for name, value in values.params.items():
        key, inner = split_parameter_name(name)
        size = config.get(key)
        is_size = isinstance(size, int | float) and not key.startswith(SCHEDULE_PREFIXES)
        if is_size and (inner or isinstance(value, str)):
            texts[key] = format_constant(size)
        else:
            texts[name] = format_constant(value)
    return texts


def _with_inner_params(key: str, texts: Mapping[str, str]) -> str:
    """Format the value of a parameter, followed by the parameters of that variant."""
    inner = [f"{name.rpartition('.')[2]}={text}" for name, text in texts.items()
             if name.startswith(f"{key}.")]
    return ", ".join([texts.get(key, ""), *inner])


def _counts(report: FeasibilityReport) -> Iterator[str]:
    """Sentences about the numbers of candidates and of feasible ones."""
    if report.exact:
        assert report.n_candidates and report.n_valid is not None and report.n_distinct is not None
        yield (f"Configurations: {report.n_candidates:,} (exact); {report.n_valid:,} can be built "
               f"and meet the space's constraints. Distinct networks: {report.n_distinct:,}.")
        valid_share = (report.n_feasible or 0) / max(1, report.n_valid)
        share = (report.n_distinct_feasible or 0) / max(1, report.n_distinct)
        networks = format_count(report.n_distinct_feasible or 0, "distinct network")
        yield (f"Within budget: {format_count(report.n_feasible or 0, 'configuration')} "
               f"({format_share(report.share)} of all, {format_share(valid_share)} of those that "
               f"are valid), {networks} ({format_share(share)}).")
        return
    size = (f"Configurations: {report.n_candidates:,} (exact)" if report.n_candidates is not None
            else "Configurations not counted")
    yield f"{size}. Networks not counted: {report.inexact_reason}."
    yield (f"Within budget: {format_share(report.share)} of all configurations; 95 % interval "
           f"{format_share(report.share_low)} to {format_share(report.share_high)} "
           f"({report.n_samples:,} {ESTIMATORS[report.estimator]}; {report.strata}).")


def _value_table(report: FeasibilityReport) -> Table:
    """Table of the feasible share of each value; long ranges are shortened."""
    has_verdicts = report.value_shares["verdict"].any() or len(report.value_shares) > MAX_VALUE_ROWS
    n_columns = 4 if has_verdicts else 3
    rows: list[tuple[str, ...]] = []
    for name, group in report.value_shares.groupby("parameter", sort=False):
        for index, (_, row) in enumerate(bin_values(group, MAX_ROWS_PER_PARAMETER).iterrows()):
            rows.append((str(name) if index == 0 else "", str(row["value"]),
                         format_share(row["share"]), row["verdict"]))
        if len(rows) > MAX_VALUE_ROWS:
            rows.append(("…", "", "", "see --csv or --json for all"))
            break
    headings = ("parameter", "value", "share", "")
    title = ("Feasible share among valid configurations by parameter value "
             f"({'exact' if report.exact else 'estimated'})")
    return make_table(headings[:n_columns], [row[:n_columns] for row in rows], (0, 3), title,
                      has_box=True)


def _conditional_params(values: pd.DataFrame) -> list[str]:
    """Parameters that have a single value in some configurations; not those of a variant."""
    if values.empty:
        return []
    counts = values.groupby("parameter", sort=False)["candidates"].sum()
    names = list(map(str, counts.index))
    return [name for name, count in zip(names, counts) if count < 0.9999 * counts.max()
            and not any(name.startswith(f"{other}.") for other in names)]


def _shared_params(candidates: Sequence[IndexedCandidate | SampledCandidate]) -> set[str]:
    """Parameters that have the same value in all candidates."""
    if not candidates:
        return set()
    first, *others = [_format_config(candidate.param_values) for candidate in candidates]
    return {key for key in first if all(params.get(key) == first[key] for params in others)}


def nearest_table(nearest: list[NearbyCandidate], name: str) -> Table:
    """Table of the feasible candidates that are nearest to the architecture ``name``."""
    costs = [cost for cost in (nearest[0].costs if nearest else ())
             if any(candidate.costs[cost] for candidate in nearest)]
    rows = []
    for candidate in nearest:
        changes = [f"{key}: {'-' if old is None else format_constant(old)} → "
                   f"{format_constant(new)}" for key, (old, new) in candidate.changes.items()]
        rows.append((", ".join(changes) or "none (feasible)",
                     *(f"{candidate.costs[cost]:,}" for cost in costs)))
    return make_table(("change", *costs), rows or [("none within four changed parameters",)],
                      title=f"Nearest feasible candidates to {name}", has_box=True)
