"""Forecast of the time of a study, compared with the time that was spent.

The forecast is written before training starts. Times are sums over all training runs. The forecast
assumes that all allowed further seeds of the front are used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scalesearch.files import try_read_json
from scalesearch.schedule.rungs import Rungs
from scalesearch.studies.monitor.format import format_duration, format_percent
from scalesearch.studies.trials.trial import State
from scalesearch.studies.trials.trials import Trials, completed_full_runs
from scalesearch.training.effort import SCORING, TRAINING_PARTS, Effort

FORECAST_FILE = "forecast.json"


@dataclass(frozen=True)
class StudyForecast:
    """Forecast of the time of a study.

    Attributes:
        efforts: part of a training run (see :class:`scalesearch.training.effort.TrainingTimer`) to its
            time, summed over all runs.
        wall_seconds: wall-clock time of the study.
        cpu_seconds_low: CPU seconds if all candidates cost as much as the cheapest quarter, without
            further seeds of the front.
        cpu_seconds_high: CPU seconds if all candidates cost as much as the most expensive quarter.
        full_runs: updates of all runs, in full-budget runs.
        completed_runs: number of runs that are trained to the end and scored.
        basis: what the forecast is based on, in words.
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
    """A forecast, the time spent so far, and the expected time at the end.

    Attributes:
        spent: time of each part up to the last rung or the end of each run.
        expected: expected time of each part at the end of the study.
        wall_seconds, expected_wall_seconds: the same as wall-clock time, if the workers are as busy
            as predicted.
    """

    forecast: StudyForecast
    spent: dict[str, Effort]
    expected: dict[str, Effort]
    wall_seconds: float
    expected_wall_seconds: float


def read_forecast(folder: Path) -> StudyForecast | None:
    """Read the forecast of the study in ``folder``; None if it is missing."""
    return try_read_json(folder / FORECAST_FILE, StudyForecast)


def total_effort(efforts: Mapping[str, Effort]) -> Effort:
    """Sum the efforts of all parts."""
    return sum(efforts.values(), Effort())


def forecast_status(forecast: StudyForecast, trials: Trials, rungs: Rungs) -> ForecastStatus:
    """Compare ``forecast`` with the time spent so far.

    The remaining runs are expected to take the mean time of the runs so far. For parts without a
    run so far, the forecast is used.
    """
    own_trials = [trial for trial in trials if trial.source is None and trial.efforts]
    spent = trials.efforts()
    runs = {part: sum(completed_full_runs(trial, rungs) for trial in own_trials)
            for part in TRAINING_PARTS}
    runs[SCORING] = float(sum(trial.state == State.COMPLETE for trial in own_trials))
    expected = {}
    for part in TRAINING_PARTS:
        planned = forecast.completed_runs if part == SCORING else forecast.full_runs
        if runs[part]:
            effort_per_run = spent[part] * (1 / runs[part])
        else:
            effort_per_run = forecast.efforts[part] * (1 / planned if planned else 0.0)
        expected[part] = spent[part] + effort_per_run * max(0.0, planned - runs[part])
    predicted_seconds = total_effort(forecast.efforts).seconds
    wall_share = forecast.wall_seconds / predicted_seconds if predicted_seconds else 0.0
    return ForecastStatus(forecast, spent, expected, total_effort(spent).seconds * wall_share,
                          total_effort(expected).seconds * wall_share)


def describe_forecast(forecast: StudyForecast | str) -> list[str]:
    """Describe a forecast in two lines; a string is the reason why it is missing."""
    if not isinstance(forecast, StudyForecast):
        return [f"No forecast of the time: {forecast}"] if forecast else []
    parts = ", ".join(f"{part} {format_duration(effort.cpu_seconds)}"
                      for part, effort in forecast.efforts.items())
    return [f"Forecast: CPU time {format_duration(forecast.cpu_seconds)} "
            f"({format_duration(forecast.cpu_seconds_low)} to "
            f"{format_duration(forecast.cpu_seconds_high)}): {parts}",
            f"  about {format_duration(forecast.wall_seconds)} wall-clock time, "
            f"{forecast.full_runs:,.4g} full-budget runs; based on {forecast.basis}"]


def describe_forecast_status(status: ForecastStatus) -> str:
    """Describe in one line how the spent time compares with the forecast."""
    spent = total_effort(status.spent).cpu_seconds
    expected = total_effort(status.expected).cpu_seconds
    predicted = status.forecast.cpu_seconds
    deviation = f" ({format_percent(expected / predicted - 1, sign='+')})" if predicted else ""
    return (f"CPU time: {format_duration(spent)} so far, {format_duration(expected)} expected at "
            f"the end, forecast {format_duration(predicted)}{deviation}")
