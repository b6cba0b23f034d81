"""Forecast of what a study takes, and how it holds: written before anything is trained, compared with what was spent.

Times are sums over all trainings; further seeds for the front count as if all that are allowed were used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scalesearch.files import try_read_json
from scalesearch.schedule.rungs import Rungs
from scalesearch.study.monitor.format import span
from scalesearch.study.trials.trial import State
from scalesearch.study.trials.trials import Trials, trained_share
from scalesearch.train.effort import SCORING, TRAINING_PARTS, Effort

FILE = "forecast.json"


@dataclass(frozen=True)
class Forecast:
    """What a study is expected to take.

    Attributes:
        efforts: part of a training (:class:`scalesearch.train.effort.TrainingTimer`) to its time, of all trainings together.
        seconds: wall-clock time of the study.
        low, high: CPU-seconds: were its candidates as the cheaper, or dearer, quarter; ``low`` without seeds for the
            front.
        worth: full trainings' worth of updates. scored: trainings that come to their end.
        basis: what it rests on, in words.
    """

    efforts: dict[str, Effort]
    seconds: float
    low: float
    high: float
    worth: float
    scored: float
    basis: str

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all parts."""
        return total(self.efforts).cpu_seconds


@dataclass(frozen=True)
class Budget:
    """A forecast, what is spent up to the last rung or the end of each training, and what is expected in all.

    ``seconds`` and ``expected_seconds`` are wall-clock time of the study, were its workers as busy as foretold.
    """

    forecast: Forecast
    spent: dict[str, Effort]
    expected: dict[str, Effort]
    seconds: float
    expected_seconds: float


def read_forecast(folder: Path) -> Forecast | None:
    """The forecast of the study in ``folder``; None where there is none."""
    return try_read_json(folder / FILE, Forecast)


def total(efforts: Mapping[str, Effort]) -> Effort:
    """The sum of all parts."""
    return sum(efforts.values(), Effort())


def budget_of(forecast: Forecast, trials: Trials, rungs: Rungs) -> Budget:
    """Compares ``forecast`` with what was spent; what is left goes at the pace so far, or as foretold without one."""
    own = [trial for trial in trials if trial.source is None and trial.efforts]
    spent = trials.efforts()
    done = {part: sum(trained_share(trial, rungs) for trial in own) for part in TRAINING_PARTS}
    done[SCORING] = float(sum(trial.state == State.COMPLETE for trial in own))
    expected = {}
    for part in TRAINING_PARTS:
        wanted = forecast.scored if part == SCORING else forecast.worth
        pace = spent[part] * (1 / done[part]) if done[part] else \
            forecast.efforts[part] * (1 / wanted if wanted else 0.0)
        expected[part] = spent[part] + pace * max(0.0, wanted - done[part])
    foretold = total(forecast.efforts).seconds
    at_once = forecast.seconds / foretold if foretold else 0.0
    return Budget(forecast, spent, expected, total(spent).seconds * at_once, total(expected).seconds * at_once)


def describe_forecast(forecast: Forecast | str) -> list[str]:
    """Describes a forecast, or why there is none, in a few lines."""
    if not isinstance(forecast, Forecast):
        return [f"No forecast of the time: {forecast}"] if forecast else []
    parts = ", ".join(f"{part} {span(effort.cpu_seconds)}" for part, effort in forecast.efforts.items())
    return [f"Forecast: CPU time {span(forecast.cpu_seconds)} ({span(forecast.low)} to {span(forecast.high)}): {parts}",
            f"  about {span(forecast.seconds)} on the clock, {forecast.worth:,.4g} full trainings' worth; by "
            f"{forecast.basis}"]


def describe_budget(budget: Budget) -> str:
    """Describes in a line how a forecast holds."""
    spent, expected = total(budget.spent).cpu_seconds, total(budget.expected).cpu_seconds
    foretold = budget.forecast.cpu_seconds
    off = f" ({expected / foretold - 1:+.0%})" if foretold else ""
    return (f"CPU time: {span(spent)} so far, {span(expected)} expected in the end, forecast {span(foretold)}{off}")
