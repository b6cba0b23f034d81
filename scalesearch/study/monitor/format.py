"""Numbers and times as people read them."""

import time
from datetime import timedelta

MAX_SECONDS = 1e10  # that a damaged file says; nothing takes longer


def format_number(value: float) -> str:
    """A number in few characters: 27.31, 1.24M, 0.0021."""
    # once it is rounded
    for least, unit, letter in ((999.5e6, 1e9, "G"), (999.5e3, 1e6, "M"), (9999.5, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.4g}"


def format_duration(seconds: float) -> str:
    """A length of time, to the second."""
    return str(timedelta(seconds=round(max(0, seconds)))) if seconds < MAX_SECONDS else "centuries"


def format_ago(seconds: float) -> str:
    """Formats a time ago, in one unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(0, seconds):.0f} s ago"


def format_clock(when: float) -> str:
    """Formats a time of this machine's clock, with its day unless it was within the last one."""
    form = "%H:%M:%S" if time.time() - when < 86400 else "%d %b %H:%M"
    return time.strftime(form, time.localtime(when))
