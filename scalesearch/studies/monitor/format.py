"""Numbers, shares, times and forecasts as text."""

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta

from scalesearch.spaces.schema.cost_names import BYTE_COSTS, COST_UNITS
from scalesearch.studies.forecast import ExpectedGain, ForecastStatus, StudyForecast, total_effort
from scalesearch.studies.trials.trial import State
from scalesearch.terminal import decimals_for_digits, format_bytes, format_share, format_sizes

# states in the order of display, with their words on the report page
STATE_WORDS = {State.COMPLETE: "complete", State.PENDING: "unfinished",
               State.PAUSED: "paused", State.FAILED: "failed", State.INFEASIBLE: "infeasible",
               State.DUPLICATE: "duplicates"}
MAX_SECONDS = 1e10  # longer times come from damaged files


def format_number(value: float) -> str:
    """Format a number in few characters: 27.31, 1.24M, 0.0021."""
    # The thresholds are the smallest values that are rounded up to the next unit.
    for threshold, unit, suffix in ((999.5e6, 1e9, "G"), (999.5e3, 1e6, "M"), (9999.5, 1e3, "k")):
        if abs(value) >= threshold:
            return f"{value / unit:.3g}{suffix}"
    return f"{value:.4g}"


def format_value(value: float, name: str) -> str:
    """Format the score or cost ``name`` in few characters: ``12.3 KiB``, ``1.2 ms``."""
    if name in BYTE_COSTS:
        return format_bytes(value)
    return f"{format_number(value)} {COST_UNITS.get(name, '')}".rstrip()


def format_column(values: Sequence[float | None], name: str = "") -> list[str]:
    """Format the numbers of a column with one unit and equal decimals; None as an empty text.

    Costs ``name`` in bytes have their own units.
    """
    if name in BYTE_COSTS:
        return ["" if value is None else format_bytes(value) for value in values]
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    if largest >= 9999.5:
        sizes, letter = format_sizes(values)
        return [size and size + letter for size in sizes]
    is_integer = all(value is None or float(value).is_integer() for value in values)
    decimals = 0 if is_integer else decimals_for_digits(largest, 4)
    return ["" if value is None else f"{value:.{decimals}f}" for value in values]


def format_percent(share: float, decimals: int = 0, sign: str = "-") -> str:
    """Format a share, such as 0.786, as ``79 %``.

    ``sign`` is ``+`` to print the sign always.
    """
    return f"{100 * share:{sign}.{decimals}f} %"


def format_duration(seconds: float) -> str:
    """Format a duration, to the second."""
    return str(timedelta(seconds=round(max(0, seconds)))) if seconds < MAX_SECONDS else "centuries"


def format_phases(phases: Mapping[str, float]) -> dict[str, str]:
    """Format the time of each phase of a training run and its share, without zeros."""
    total = sum(phases.values())
    return {phase: f"{format_seconds(seconds)} ({format_percent(seconds / total)})"
            for phase, seconds in phases.items() if seconds} | {"total": format_seconds(total)}


def format_seconds(seconds: float) -> str:
    """Format a time in seconds: ``0.76 s``, ``143 s``."""
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:,.0f} s"


def format_ago(seconds: float) -> str:
    """Format a duration before now in one unit: ``3 min ago``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(0, seconds):.0f} s ago"


def format_clock(time_stamp: float) -> str:
    """Format a time (seconds since the epoch) as local time.

    The day is included if the time is more than a day ago.
    """
    form = "%H:%M:%S" if time.time() - time_stamp < 86400 else "%d %b %H:%M"
    return time.strftime(form, time.localtime(time_stamp))


def describe_forecast(forecast: StudyForecast | str, title: str = "Forecast") -> list[str]:
    """Describe a forecast in two lines; a string is the reason why it is missing."""
    if not isinstance(forecast, StudyForecast):
        return [f"No forecast of the time: {forecast}"] if forecast else []
    parts = ", ".join(f"{part} {format_duration(effort.cpu_seconds)}"
                      for part, effort in forecast.efforts.items())
    span = describe_range(forecast)
    total = format_duration(forecast.cpu_seconds) + (f" ({span})" if span else "")
    return [f"{title}: CPU time {total}: {parts}",
            f"  about {format_duration(forecast.wall_seconds)} wall-clock time, "
            f"{forecast.full_runs:,.4g} full-budget run{'' if forecast.full_runs == 1 else 's'}; "
            f"based on {forecast.basis}"]


def describe_range(forecast: StudyForecast) -> str:
    """Describe the range of the CPU time; empty if its bounds are equal."""
    low = format_duration(forecast.cpu_seconds_low)
    high = format_duration(forecast.cpu_seconds_high)
    return f"{low} to {high}, depending on the models that are trained" if low != high else ""


def describe_forecast_status(status: ForecastStatus, if_resumed: str = "") -> str:
    """Describe in one line how the spent time compares with the forecast.

    ``if_resumed`` qualifies the expected time of a study that has stopped.
    """
    spent = total_effort(status.spent).cpu_seconds
    expected = total_effort(status.expected).cpu_seconds
    predicted = status.forecast.cpu_seconds
    deviation = f" ({format_percent(expected / predicted - 1, sign='+')})" if predicted else ""
    parts = [f"CPU time: {format_duration(spent)}"]
    if expected != spent:
        parts[0] += " so far"
        parts.append(f"{format_duration(expected)} expected at the end{if_resumed}")
    return ", ".join([*parts, f"forecast {format_duration(predicted)}{deviation}"])


def describe_gain(gain: ExpectedGain) -> str:
    """Describe an expected gain in one sentence without a capital letter and period."""
    runs = (f"{gain.full_runs} more training runs are" if gain.full_runs > 1
            else "one more training run is")
    proxy = f"; {gain.proxy_note}" if gain.proxy_note else ""
    return (f"{runs} expected to increase the hypervolume, up to the largest cost of the space, by "
            f"{format_share(gain.mean)} (90 % interval {format_share(gain.low)} to "
            f"{format_share(gain.high)}, after {gain.completed_trials} complete trials){proxy}")
