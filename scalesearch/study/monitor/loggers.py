"""Loggers: a copy of every trained trial where another tool shows it, by the key ``loggers`` of a study file.

The study's own folder stays the truth: a trial that ended while no logger listened is logged when
the study goes on, and a tool that fails costs nothing but its copy.
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

ScalarPoint = tuple[str, float, int]  # name, value, step
MLFLOW_BATCH_SIZE = 100  # params that MLflow takes in one request


class Logger(Callback):
    """Base class of loggers: each trial that is complete is logged once, over all runs of the study.

    A logger of another tool says by ``has`` what it has already, and writes a trial whole or not at
    all.

    Args:
        study: loaded.
        report: takes a line for people where the tool fails.
    """

    def __init__(self, study: StudyDir, report: Callable[[str], object]) -> None:
        self.study = study
        self._report = report
        self._failed = False
        for trial in study.trials.with_state(State.COMPLETE):
            self.ended(trial)

    @abstractmethod
    def is_logged(self, trial: Trial) -> bool:
        """Whether the trial is logged."""

    @abstractmethod
    def write_trial(self, trial: Trial, params: dict[str, bool | int | float | str],
                    points: list[ScalarPoint]) -> None:
        """Logs a trial by its parameters and points of curves; a value at the end has step 0."""

    def ended(self, trial: Trial) -> None:
        """Logs a trial that is complete."""
        if self._failed or trial.state != State.COMPLETE:
            return
        try:
            if not self.is_logged(trial):
                plain = {name: value if isinstance(value, bool | int | float) else str(value)
                         for name, value in trial.params.items()}
                self.write_trial(trial, plain,
                                 list(scalar_points(trial, self.study.record(trial) or {})))
        except Exception as error:  # whatever another tool raises, training goes on
            self._failed = True
            self._report(f"{type(self).__name__}: "
                         f"{(str(error).splitlines() or [type(error).__name__])[0]}; what is not "
                         "logged now is once the study is resumed")


def scalar_points(trial: Trial, record: Record) -> Iterator[ScalarPoint]:
    """Values and costs of a trial, and the curves of its training."""
    for name, value in {**trial.costs, **(trial.values or {})}.items():
        yield name, float(value), 0
    for point in record.get("curve") or ():
        for name, value in point.items():
            if name != "step" and isinstance(value, int | float) and isfinite(value):
                yield name, float(value), int(point["step"])


class TensorBoard(Logger):
    """Writes ``tensorboard/`` in the study's folder, a run for each trial."""

    def __init__(self, study: StudyDir, report: Callable[[str], object]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter
        super().__init__(study, report)

    def is_logged(self, trial: Trial) -> bool:
        """Whether the trial is logged."""
        return (self.study.folder / "tensorboard" / trial.folder).is_dir()

    def write_trial(self, trial: Trial, params: dict[str, bool | int | float | str],
                    points: list[ScalarPoint]) -> None:
        """Logs a trial."""
        place = self.study.folder / "tensorboard" / trial.folder
        part = place.with_name(f".{place.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        with self._writer(str(part)) as writer:
            for name, value, step in points:
                writer.add_scalar(name, value, step)
            writer.add_hparams(params, {name: value for name, value, step in points if not step},
                               run_name=".")
        os.replace(part, place)


class MLflow(Logger):
    """Writes to the server of ``MLFLOW_TRACKING_URI``, else to ``mlflow.db`` in the study's folder, a run a trial."""

    def __init__(self, study: StudyDir, report: Callable[[str], object]) -> None:
        from mlflow import MlflowClient

        self._connect = partial(MlflowClient,
                                os.environ.get("MLFLOW_TRACKING_URI") or mlflow_uri(study))
        self._id = ""
        super().__init__(study, report)

    def is_logged(self, trial: Trial) -> bool:
        """Whether the trial is logged; of what a crash has cut off, nothing is left."""
        meta = self.study.meta
        if not self._id:
            self._client = self._connect()
            known = self._client.get_experiment_by_name(meta.name)
            self._id = known.experiment_id if known else self._client.create_experiment(meta.name)
        runs = self._client.search_runs(
            [self._id], f"tags.study = '{meta.id}' and tags.trial = " f"'{trial.number}'")
        for run in runs:
            if run.info.status != "FINISHED":
                self._client.delete_run(run.info.run_id)
        return any(run.info.status == "FINISHED" for run in runs)

    def write_trial(self, trial: Trial, params: dict[str, bool | int | float | str],
                    points: list[ScalarPoint]) -> None:
        """Logs a trial."""
        from mlflow.entities import Metric, Param

        tags = {"study": self.study.meta.id, "trial": str(trial.number),
                "architecture": str(trial.architecture)}
        run = self._client.create_run(self._id, tags=tags,
                                      run_name=f"trial {trial.number}").info.run_id
        named = [Param(_mlflow_name(name), str(value)) for name, value in params.items()]
        metrics = [Metric(_mlflow_name(name), value, 0, step) for name, value, step in points]
        for at in range(0, max(len(named), len(metrics)), MLFLOW_BATCH_SIZE):
            self._client.log_batch(run, metrics=metrics[at : at + MLFLOW_BATCH_SIZE],
                                   params=named[at : at + MLFLOW_BATCH_SIZE])
        self._client.set_terminated(run)


def mlflow_uri(study: StudyDir) -> str:
    """MLflow's database in the study's folder."""
    return f"sqlite:///{(study.folder / 'mlflow.db').resolve()}"


def _mlflow_name(text: str) -> str:
    """A name as MLflow takes it."""
    return re.sub(r"[^\w\-. :/]", "_", text)


LOGGER_CLASSES = {"tensorboard": TensorBoard, "mlflow": MLflow}


def make_loggers(names: Iterable[str], study: StudyDir,
                 report: Callable[[str], object]) -> list[Logger]:
    """The loggers of ``study``.

    Raises:
        UserError: the package of one of them is missing.
    """
    try:
        return [LOGGER_CLASSES[name](study, report) for name in names]
    except ImportError as error:
        raise UserError(f"loggers: {error}; {install_command('loggers')}", key="loggers",
                        code="package-missing") from None
