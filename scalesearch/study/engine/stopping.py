"""When a search ends by itself: what further trainings are expected to bring, kept for whoever looks at the study."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scalesearch.files import write_json
from scalesearch.samplers.candidate_sampler import CandidateSampler
from scalesearch.study.config.sections import StopSpec
from scalesearch.study.monitor.expected_gain import GAIN_FILE, ExpectedGain, describe_gain
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import State

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

DEFAULT_HORIZON = 10  # full trainings that are looked ahead where nothing is said


class EarlyStopping:
    """Forecasts the gain after every training, and says when a search is to end.

    Args:
        sampler: forecasts, if it can.
        slots: trials in training at once, in which time passes.
    """

    def __init__(self, study: StudyDir, stop: StopSpec | None, sampler: Any, slots: int) -> None:
        self.study = study
        self.stop_spec = stop
        self.slots = slots
        self.forecast = sampler.forecast_gain if isinstance(sampler, CandidateSampler) else None
        self._completed = -1
        self._reason = ""

    def reason(self, history: Sequence["FrozenTrial"]) -> str:
        """Why the search ends now; empty where it goes on."""
        complete = len(self.study.trials.with_state(State.COMPLETE))
        if self.forecast is not None and complete != self._completed:
            self._completed = complete
            self._reason = self._forecast_reason(history)
        return self._reason

    def has_stopped(self) -> bool:
        """Whether the search had ended by itself, for no larger gain: what came after it would change the forecast."""
        stopped = self.study.meta.stopped_at_gain
        return (self.stop_spec is not None and stopped is not None
                and stopped <= self.stop_spec.gain and bool(self.study.trials.replicates()))

    def _forecast_reason(self, history: Sequence["FrozenTrial"]) -> str:
        trainings = self._horizon_runs()
        found = self.forecast(history, trainings) if trainings else None
        if found is None:
            return ""
        gain = ExpectedGain(self._completed, found.n_runs, found.mean, found.low, found.high)
        write_json(self.study.folder / GAIN_FILE, gain.to_json())
        if self.stop_spec is None or found.mean >= self.stop_spec.gain:
            return ""
        self.study.update_meta(stopped_at_gain=self.stop_spec.gain)
        return f"stopped, as less than {self.stop_spec.gain:.3g} is expected: {describe_gain(gain)}"

    def _horizon_runs(self) -> int:
        """Full trainings to look ahead; 0 before anything says how long one takes."""
        within = self.stop_spec.horizon if self.stop_spec else None
        if within is None or within.full_runs:
            return within.full_runs if within else DEFAULT_HORIZON
        times = [trial.wall_seconds
                 for trial in self.study.trials.with_state(State.COMPLETE) if trial.wall_seconds]
        return max(1, int(within.seconds * self.slots / (sum(times) / len(times)))) if times else 0
