"""Expected gain by further training runs, as the driver stores it in a file."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from scalesearch.files import try_read_json
from scalesearch.studies.monitor.format import format_percent

GAIN_FILE = "gain.json"


@dataclass(frozen=True)
class ExpectedGain:
    """Expected growth of the front's hypervolume, relative to its present value.

    Attributes:
        completed_trials: number of complete trials when the forecast was computed.
        full_runs: number of further full-budget runs that the forecast assumes.
        mean, low, high: expected growth and its 90 % interval.
    """

    completed_trials: int
    full_runs: int
    mean: float
    low: float
    high: float

    def to_json(self) -> dict[str, object]:
        """Return all fields as JSON values."""
        fields: dict[str, object] = msgspec.to_builtins(self)
        return fields


def read_gain(folder: Path) -> ExpectedGain | None:
    """Read the latest forecast of the study in ``folder``; None if it is missing."""
    return try_read_json(folder / GAIN_FILE, ExpectedGain)


def describe_gain(gain: ExpectedGain) -> str:
    """Describe the forecast in one sentence without a capital letter and period."""
    runs = (f"{gain.full_runs} more training runs are" if gain.full_runs > 1
            else "one more training run is")
    return (f"{runs} expected to increase the hypervolume by "
            f"{format_percent(gain.mean, 2)} (90 % interval {format_percent(gain.low, 2)} to "
            f"{format_percent(gain.high, 2)}, after {gain.completed_trials} trials)")
