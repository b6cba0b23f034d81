"""What further trainings of a study are expected to bring, as its driver has last written it down."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from scalesearch.files import try_read_json

GAIN_FILE = "gain.json"


@dataclass(frozen=True)
class ExpectedGain:
    """Expected growth of the front's hypervolume, a share of what it is.

    Attributes:
        completed_trials: trials that had been trained to their end.
        full_runs: so many more, each to its end. mean, low, high: growth by them, and its 90 %
            interval.
    """

    completed_trials: int
    full_runs: int
    mean: float
    low: float
    high: float

    def to_json(self) -> dict[str, object]:
        """JSON of all fields."""
        return msgspec.to_builtins(self)


def read_gain(folder: Path) -> ExpectedGain | None:
    """The latest forecast; None where there is none."""
    return try_read_json(folder / GAIN_FILE, ExpectedGain)


def describe_gain(gain: ExpectedGain) -> str:
    """The forecast in words."""
    more = f"{gain.full_runs} more trainings are" if gain.full_runs > 1 else "one more training is"
    return (f"{more} expected to enlarge the hypervolume by {gain.mean:.2%} (90 % interval "
            f"{gain.low:.2%} to {gain.high:.2%}, after {gain.completed_trials} trials)")
