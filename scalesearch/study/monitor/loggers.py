"""Loggers: a copy of every trained trial where another tool shows it, by the key ``loggers`` of a study file.

The study's own folder stays the truth: a trial that ended while no logger listened is logged when the study goes on,
and a tool that fails costs nothing but its copy.
"""

import os
import re
import shutil
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import isfinite

from scalesearch.errors import UserError
from scalesearch.library import install_command
from scalesearch.study.trials.callback import Callback
from scalesearch.study.trials.record import Record
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import State, Trial

Point = tuple[str, float, int]  # name, value, step
AT_ONCE = 100  # params that MLflow takes in one request


class Logger(Callback):
    """Base class of loggers: each trial that is complete is logged once, over all runs of the study.

    A logger of another tool says by ``has`` what it has already, and writes a trial whole or not at all.

    Args:
        study: loaded.
        tell: takes a line for people where the tool fails.
    """

    def __init__(self, study: StudyDir, tell: Callable[[str], object]) -> None:
        self.study, self._tell, self._failed = study, tell, False
        for trial in study.trials.having(State.COMPLETE):
            self.ended(trial)

    @abstractmethod
    def has(self, trial: Trial) -> bool:
        """Whether the trial is logged."""

    @abstractmethod
    def write(self, trial: Trial, params: dict[str, bool | int | float | str], points: list[Point]) -> None:
        """Logs a trial by its parameters and points of curves; a value at the end has step 0."""

    def ended(self, trial: Trial) -> None:
        """Logs a trial that is complete."""
        if self._failed or trial.state != State.COMPLETE:
            return
        try:
            if not self.has(trial):
                plain = {name: value if isinstance(value, bool | int | float) else str(value)
                         for name, value in trial.params.items()}
                self.write(trial, plain, list(points_of(trial, self.study.record(trial) or {})))
        except Exception as error:  # whatever another tool raises, training goes on
            self._failed = True
            self._tell(f"{type(self).__name__}: {(str(error).splitlines() or [type(error).__name__])[0]}; what is not "
                       "logged now is once the study is resumed")


def points_of(trial: Trial, record: Record) -> Iterator[Point]:
    """Values and costs of a trial, and the curves of its training."""
    for name, value in {**trial.costs, **(trial.values or {})}.items():
        yield name, float(value), 0
    for point in record.get("curve") or ():
        for name, value in point.items():
            if name != "step" and isinstance(value, int | float) and isfinite(value):
                yield name, float(value), int(point["step"])


class TensorBoard(Logger):
    """Writes ``tensorboard/`` in the study's folder, a run for each trial."""

    def __init__(self, study: StudyDir, tell: Callable[[str], object]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter
        super().__init__(study, tell)

    def has(self, trial: Trial) -> bool:
        """Whether the trial is logged."""
        return (self.study.folder / "tensorboard" / trial.folder).is_dir()

    def write(self, trial: Trial, params: dict[str, bool | int | float | str], points: list[Point]) -> None:
        """Logs a trial."""
        place = self.study.folder / "tensorboard" / trial.folder
        part = place.with_name(f".{place.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        with self._writer(str(part)) as writer:
            for name, value, step in points:
                writer.add_scalar(name, value, step)
            writer.add_hparams(params, {name: value for name, value, step in points if not step}, run_name=".")
        os.replace(part, place)


class MLflow(Logger):
    """Writes to the server of ``MLFLOW_TRACKING_URI``, else to ``mlflow.db`` in the study's folder, a run a trial."""

    def __init__(self, study: StudyDir, tell: Callable[[str], object]) -> None:
        from mlflow import MlflowClient

        self._connect = partial(MlflowClient, os.environ.get("MLFLOW_TRACKING_URI") or own_uri(study))
        self._id = ""
        super().__init__(study, tell)

    def has(self, trial: Trial) -> bool:
        """Whether the trial is logged; of what a crash has cut off, nothing is left."""
        meta = self.study.meta
        if not self._id:
            self._client = self._connect()
            known = self._client.get_experiment_by_name(meta.name)
            self._id = known.experiment_id if known else self._client.create_experiment(meta.name)
        runs = self._client.search_runs([self._id], f"tags.study = '{meta.id}' and tags.trial = '{trial.number}'")
        for run in runs:
            if run.info.status != "FINISHED":
                self._client.delete_run(run.info.run_id)
        return any(run.info.status == "FINISHED" for run in runs)

    def write(self, trial: Trial, params: dict[str, bool | int | float | str], points: list[Point]) -> None:
        """Logs a trial."""
        from mlflow.entities import Metric, Param

        tags = {"study": self.study.meta.id, "trial": str(trial.number), "architecture": str(trial.architecture)}
        run = self._client.create_run(self._id, tags=tags, run_name=f"trial {trial.number}").info.run_id
        named = [Param(_name(name), str(value)) for name, value in params.items()]
        metrics = [Metric(_name(name), value, 0, step) for name, value, step in points]
        for at in range(0, max(len(named), len(metrics)), AT_ONCE):
            self._client.log_batch(run, metrics=metrics[at : at + AT_ONCE], params=named[at : at + AT_ONCE])
        self._client.set_terminated(run)


def own_uri(study: StudyDir) -> str:
    """MLflow's database in the study's folder."""
    return f"sqlite:///{(study.folder / 'mlflow.db').resolve()}"


def _name(text: str) -> str:
    """A name as MLflow takes it."""
    return re.sub(r"[^\w\-. :/]", "_", text)


LOGGERS = {"tensorboard": TensorBoard, "mlflow": MLflow}


def make_loggers(names: Iterable[str], study: StudyDir, tell: Callable[[str], object]) -> list[Logger]:
    """The loggers of ``study``.

    Raises:
        UserError: the package of one of them is missing.
    """
    try:
        return [LOGGERS[name](study, tell) for name in names]
    except ImportError as error:
        raise UserError(f"loggers: {error}; {install_command('loggers')}", key="loggers",
                        code="package-missing") from None
