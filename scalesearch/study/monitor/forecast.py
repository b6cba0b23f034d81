"""Forecast of what a study takes, and how it holds: written before anything is trained, compared with what was spent.

Times are sums over all trainings; further seeds for the front count as if all that are allowed were
used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scalesearch.files import try_read_json
from scalesearch.schedule.rungs import Rungs
from scalesearch.study.monitor.format import format_duration
from scalesearch.study.trials.trial import State
from scalesearch.study.trials.trials import Trials, completed_full_runs
from scalesearch.train.effort import SCORING, TRAINING_PARTS, Effort

FORECAST_FILE = "forecast.json"


@dataclass(frozen=True)
class StudyForecast:
    """What a study is expected to take.

    Attributes:
        efforts: part of a training (:class:`scalesearch.train.effort.TrainingTimer`) to its time,
            of all trainings together.
        wall_seconds: wall-clock time of the study.
        cpu_seconds_low, cpu_seconds_high: CPU-seconds: were its candidates as the cheaper, or
            dearer, quarter; ``cpu_seconds_low`` without seeds for the
            front.
        full_runs: full trainings' worth of updates. scored: trainings that come to their end.
        basis: what it rests on, in words.
    """

    efforts: dict[str, Effort]
    wall_seconds: float
    cpu_seconds_low: float
    cpu_seconds_high: float
    full_runs: float
    completed_runs: float
    basis: str

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all parts."""
        return total_effort(self.efforts).cpu_seconds


@dataclass(frozen=True)
class ForecastStatus:
    """A forecast, what is spent up to the last rung or the end of each training, and what is expected in all.

    ``wall_seconds`` and ``expected_wall_seconds`` are wall-clock time of the study, were its
    workers as busy as foretold.
    """

    forecast: StudyForecast
    spent: dict[str, Effort]
    expected: dict[str, Effort]
    wall_seconds: float
    expected_wall_seconds: float


def read_forecast(folder: Path) -> StudyForecast | None:
    """The forecast of the study in ``folder``; None where there is none."""
    return try_read_json(folder / FORECAST_FILE, StudyForecast)


def total_effort(efforts: Mapping[str, Effort]) -> Effort:
    """The sum of all parts."""
    return sum(efforts.values(), Effort())


def forecast_status(forecast: StudyForecast, trials: Trials, rungs: Rungs) -> ForecastStatus:
    """Compares ``forecast`` with what was spent; what is left goes at the pace so far, or as foretold without one."""
    own = [trial for trial in trials if trial.source is None and trial.efforts]
    spent = trials.efforts()
    done = {part: sum(completed_full_runs(trial, rungs) for trial in own)
            for part in TRAINING_PARTS}
    done[SCORING] = float(sum(trial.state == State.COMPLETE for trial in own))
    expected = {}
    for part in TRAINING_PARTS:
        wanted = forecast.completed_runs if part == SCORING else forecast.full_runs
        pace = spent[part] * (1 / done[part]) if done[part] else \
            forecast.efforts[part] * (1 / wanted if wanted else 0.0)
        expected[part] = spent[part] + pace * max(0.0, wanted - done[part])
    foretold = total_effort(forecast.efforts).seconds
    at_once = forecast.wall_seconds / foretold if foretold else 0.0
    return ForecastStatus(forecast, spent, expected, total_effort(spent).seconds * at_once,
                          total_effort(expected).seconds * at_once)


def describe_forecast(forecast: StudyForecast | str) -> list[str]:
    """Describes a forecast, or why there is none, in a few lines."""
    if not isinstance(forecast, StudyForecast):
        return [f"No forecast of the time: {forecast}"] if forecast else []
    parts = ", ".join(f"{part} {format_duration(effort.cpu_seconds)}"
                      for part, effort in forecast.efforts.items())
    return [f"Forecast: CPU time {format_duration(forecast.cpu_seconds)} "
            f"({format_duration(forecast.cpu_seconds_low)} to "
            f"{format_duration(forecast.cpu_seconds_high)}): {parts}",
            f"  about {format_duration(forecast.wall_seconds)} on the clock, "
            f"{forecast.full_runs:,.4g} full trainings' worth; by {forecast.basis}"]


def describe_forecast_status(budget: ForecastStatus) -> str:
    """Describes in a line how a forecast holds."""
    spent = total_effort(budget.spent).cpu_seconds
    expected = total_effort(budget.expected).cpu_seconds
    foretold = budget.forecast.cpu_seconds
    off = f" ({expected / foretold - 1:+.0%})" if foretold else ""
    return (f"CPU time: {format_duration(spent)} so far, {format_duration(expected)} expected in "
            f"the end, forecast {format_duration(foretold)}{off}")
