"""Numbers, shares and times as text."""

import time
from datetime import timedelta

MAX_SECONDS = 1e10  # longer times come from damaged files


def format_number(value: float) -> str:
    """Format a number in few characters: 27.31, 1.24M, 0.0021."""
    # The thresholds are the smallest values that are rounded up to the next unit.
    for threshold, unit, suffix in ((999.5e6, 1e9, "G"), (999.5e3, 1e6, "M"), (9999.5, 1e3, "k")):
        if abs(value) >= threshold:
            return f"{value / unit:.3g}{suffix}"
    return f"{value:.4g}"


def format_percent(share: float, decimals: int = 0, sign: str = "-") -> str:
    """Format a share, such as 0.786, as ``79 %``.

    ``sign`` is ``+`` to print the sign always.
    """
    return f"{100 * share:{sign}.{decimals}f} %"


def format_duration(seconds: float) -> str:
    """Format a duration, to the second."""
    return str(timedelta(seconds=round(max(0, seconds)))) if seconds < MAX_SECONDS else "centuries"


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
