"""When a search ends by itself: what further trainings are expected to bring, kept for whoever looks at the study."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scalesearch.files import write_json
from scalesearch.samplers.candidate_sampler import CandidateSampler
from scalesearch.study.config.sections import Stop
from scalesearch.study.monitor.gain import FILE, Gain, describe_gain
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import State

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

USUAL = 10  # full trainings that are looked ahead where nothing is said


class Stopping:
    """Forecasts the gain after every training, and says when a search is to end.

    Args:
        sampler: forecasts, if it can.
        slots: trials in training at once, in which time passes.
    """

    def __init__(self, study: StudyDir, stop: Stop | None, sampler: Any, slots: int) -> None:
        self.study, self.stop, self.slots = study, stop, slots
        self.forecast = sampler.forecast_gain if isinstance(sampler, CandidateSampler) else None
        self._complete = -1
        self._reason = ""

    def reason(self, history: Sequence["FrozenTrial"]) -> str:
        """Why the search ends now; empty where it goes on."""
        complete = len(self.study.trials.having(State.COMPLETE))
        if self.forecast is not None and complete != self._complete:
            self._complete = complete
            self._reason = self._look(history)
        return self._reason

    def decided(self) -> bool:
        """Whether the search had ended by itself, for no larger gain: what came after it would change the forecast."""
        stopped = self.study.meta.stopped
        return self.stop is not None and stopped is not None and stopped <= self.stop.gain \
            and bool(self.study.trials.replicates())

    def _look(self, history: Sequence["FrozenTrial"]) -> str:
        trainings = self._trainings()
        found = self.forecast(history, trainings) if trainings else None
        if found is None:
            return ""
        gain = Gain(self._complete, found.n_runs, found.mean, found.low, found.high)
        write_json(self.study.folder / FILE, gain.to_json())
        if self.stop is None or found.mean >= self.stop.gain:
            return ""
        self.study.revise(stopped=self.stop.gain)
        return f"stopped, as less than {self.stop.gain:.3g} is expected: {describe_gain(gain)}"

    def _trainings(self) -> int:
        """Full trainings to look ahead; 0 before anything says how long one takes."""
        within = self.stop.within if self.stop else None
        if within is None or within.trainings:
            return within.trainings if within else USUAL
        times = [trial.wall_seconds for trial in self.study.trials.having(State.COMPLETE) if trial.wall_seconds]
        return max(1, int(within.seconds * self.slots / (sum(times) / len(times)))) if times else 0
