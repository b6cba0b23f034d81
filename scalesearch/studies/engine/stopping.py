"""Early stopping of a search.

It ends when further runs are expected to improve the front little.

The sampler forecasts the expected gain of the hypervolume after every completed trial. The last
forecast is kept in ``gain.json``, which ``study status`` and ``study watch`` print.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

import msgspec

from scalesearch.files import write_json
from scalesearch.samplers.candidate_sampler import CandidateSampler
from scalesearch.studies.config.sections import StopSpec
from scalesearch.studies.config.values import ComputeAmount
from scalesearch.studies.forecast import GAIN_FILE, ExpectedGain
from scalesearch.studies.monitor.format import describe_gain
from scalesearch.studies.optuna_sync.attributes import TRIAL_NUMBER_ATTR
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import State

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

DEFAULT_HORIZON = 10  # full-budget runs of the forecast, if the study file sets none


class EarlyStopping:
    """Forecast the expected gain after every completed trial.

    Decide when the search stops.

    Args:
        study: loaded.
        stop_spec: the study's early stopping rule. Without a rule, the gain is forecast only.
        sampler: forecasts, if it is a :class:`CandidateSampler`.
        slots: number of trials in training at once, by which a horizon in seconds is divided.
    """

    def __init__(self, study: StudyDir, stop_spec: StopSpec | None, sampler: object,
                 slots: int) -> None:
        self.study = study
        self.stop_spec = stop_spec
        self.slots = slots
        self.sampler = sampler if isinstance(sampler, CandidateSampler) else None
        self._completed = -1
        self._reason = ""

    def reason(self, history: Sequence["FrozenTrial"]) -> str:
        """Return why the search stops now; empty if it continues."""
        completed = [trial for trial in self.study.trials.candidates()
                     if trial.state == State.COMPLETE]
        if self.sampler is None or len(completed) == self._completed:
            return self._reason
        self._completed = len(completed)
        self._reason = ""
        horizon = self.stop_spec.horizon if self.stop_spec else ComputeAmount(DEFAULT_HORIZON)
        n_runs = horizon.full_runs
        seconds = [trial.wall_seconds for trial in completed if trial.wall_seconds]
        if not n_runs and seconds:
            n_runs = max(1, int(horizon.seconds * self.slots / fmean(seconds)))
        forecast = self.sampler.forecast_gain(history, n_runs) if n_runs else None
        if forecast is None:
            return ""
        values = (self.sampler.acquisition_values(history)
                  if self.study.meta.rungs.n_pauses else None)
        gain = ExpectedGain(self._completed, forecast.n_runs, forecast.mean, forecast.low,
                            forecast.high, values.new if values else None,
                            {str(trial.user_attrs[TRIAL_NUMBER_ATTR]): values.paused[trial.number]
                             for trial in history if values and trial.number in values.paused},
                            self.sampler.proxy_note)
        write_json(self.study.folder / GAIN_FILE, msgspec.to_builtins(gain))
        if self.stop_spec is not None and forecast.mean < self.stop_spec.gain:
            self.study.update_meta(stopped_at_gain=self.stop_spec.gain)
            self._reason = (f"stopped, because the expected gain is less than "
                            f"{self.stop_spec.gain:.3g}: {describe_gain(gain)}")
        return self._reason

    def has_stopped(self) -> bool:
        """Whether the search stopped before, at a gain that is not larger than the rule's.

        Replicates have been trained since. They would change the forecast, so it is not repeated.
        """
        stopped_at = self.study.meta.stopped_at_gain
        return (self.stop_spec is not None and stopped_at is not None
                and stopped_at <= self.stop_spec.gain and bool(self.study.trials.replicates()))
