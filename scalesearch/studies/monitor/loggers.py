"""Loggers: copies of all trained trials for TensorBoard or MLflow.

The key ``loggers`` of a study file selects them. The study's folder stays the only source. A trial
that ended without a logger is logged when the study is resumed. If a tool fails, only its copy is
missing.
"""

import logging
import os
import re
import shutil
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import isfinite
from typing import Any

from scalesearch.errors import UserError, first_line
from scalesearch.library import install_command
from scalesearch.studies.trials.record import Record
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Callback, State, Trial

ScalarPoint = tuple[str, float, int]  # name, value, step
MLFLOW_BATCH_SIZE = 100  # maximum number of params in one request


class Logger(Callback):
    """Base class of loggers.

    Each complete trial is logged once, also if the study is resumed.

    Subclasses define :meth:`is_logged`, and :meth:`write_trial`, which writes a trial completely or
    not at all.

    Args:
        study: a loaded study.
        report: called with a message if the tool fails.
    """

    def __init__(self, study: StudyDir, report: Callable[[str], object]) -> None:
        self.study = study
        self._report = report
        self._failed = False
        for trial in study.trials.with_state(State.COMPLETE):
            self.ended(trial)

    @abstractmethod
    def is_logged(self, trial: Trial) -> bool:
        """Whether the trial was logged."""

    @abstractmethod
    def write_trial(self, trial: Trial, params: dict[str, bool | int | float | str],
                    points: list[ScalarPoint]) -> None:
        """Log the parameters of a trial and points of its curves.

        Final values have step 0.
        """

    def ended(self, trial: Trial) -> None:
        """Log a trial if it is complete."""
        if self._failed or trial.state != State.COMPLETE:
            return
        try:
            if not self.is_logged(trial):
                plain = {name: value if isinstance(value, bool | int | float) else str(value)
                         for name, value in trial.params.items()}
                self.write_trial(trial, plain,
                                 list(scalar_points(trial, self.study.record(trial) or {})))
        except Exception as error:  # training continues after any error of another tool
            self._failed = True
            self._report(f"{type(self).__name__}: {first_line(error)}; the missing trials are "
                         "logged when the study is resumed")


def scalar_points(trial: Trial, record: Record) -> Iterator[ScalarPoint]:
    """Iterate over values, costs and training curves of a trial."""
    for name, value in {**trial.costs, **(trial.values or {})}.items():
        yield name, float(value), 0
    for point in record.get("curve") or ():
        step: Any = point["step"]
        for name, number in point.items():
            if name != "step" and isinstance(number, int | float) and isfinite(number):
                yield name, float(number), int(step)


class TensorBoard(Logger):
    """Writes ``tensorboard/`` in the study's folder, one run per trial."""

    def __init__(self, study: StudyDir, report: Callable[[str], object]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter
        super().__init__(study, report)

    def is_logged(self, trial: Trial) -> bool:
        return (self.study.folder / "tensorboard" / trial.folder).is_dir()

    def write_trial(self, trial: Trial, params: dict[str, bool | int | float | str],
                    points: list[ScalarPoint]) -> None:
        folder = self.study.folder / "tensorboard" / trial.folder
        part = folder.with_name(f".{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        with self._writer(str(part)) as writer:
            for name, value, step in points:
                writer.add_scalar(name, value, step)
            writer.add_hparams(params, {name: value for name, value, step in points if not step},
                               run_name=".")
        os.replace(part, folder)


class MLflow(Logger):
    """Writes one MLflow run per trial.

    The server is ``MLFLOW_TRACKING_URI`` if set, otherwise ``mlflow.db`` in the study's folder.
    """

    def __init__(self, study: StudyDir, report: Callable[[str], object]) -> None:
        from mlflow import MlflowClient

        # it reports that it creates the tables of a new database
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        self._connect = partial(MlflowClient,
                                os.environ.get("MLFLOW_TRACKING_URI") or mlflow_uri(study))
        self._id = ""
        super().__init__(study, report)

    def is_logged(self, trial: Trial) -> bool:
        """Whether the trial was logged; incomplete runs of the trial are deleted."""
        meta = self.study.meta
        if not self._id:
            self._client = self._connect()
            experiment = self._client.get_experiment_by_name(meta.name)
            self._id = (experiment.experiment_id if experiment
                        else self._client.create_experiment(meta.name))
        runs = self._client.search_runs(
            [self._id], f"tags.study = '{meta.id}' and tags.trial = '{trial.number}'")
        for run in runs:
            if run.info.status != "FINISHED":
                self._client.delete_run(run.info.run_id)
        return any(run.info.status == "FINISHED" for run in runs)

    def write_trial(self, trial: Trial, params: dict[str, bool | int | float | str],
                    points: list[ScalarPoint]) -> None:
        from mlflow.entities import Metric, Param

        tags = {"study": self.study.meta.id, "trial": str(trial.number),
                "architecture": str(trial.architecture)}
        run = self._client.create_run(self._id, tags=tags,
                                      run_name=f"trial {trial.number}").info.run_id
        mlflow_params = [Param(_mlflow_name(name), str(value)) for name, value in params.items()]
        metrics = [Metric(_mlflow_name(name), value, 0, step) for name, value, step in points]
        for start in range(0, max(len(mlflow_params), len(metrics)), MLFLOW_BATCH_SIZE):
            batch = slice(start, start + MLFLOW_BATCH_SIZE)
            self._client.log_batch(run, metrics=metrics[batch], params=mlflow_params[batch])
        self._client.set_terminated(run)


def mlflow_uri(study: StudyDir) -> str:
    """Address of the MLflow database in the study's folder."""
    return f"sqlite:///{(study.folder / 'mlflow.db').resolve()}"


def _mlflow_name(text: str) -> str:
    """Replace characters that MLflow does not accept in names."""
    return re.sub(r"[^\w\-. :/]", "_", text)


LOGGER_CLASSES = {"tensorboard": TensorBoard, "mlflow": MLflow}


def make_loggers(names: Iterable[str], study: StudyDir,
                 report: Callable[[str], object]) -> list[Logger]:
    """Create the loggers of ``study``.

    Raises:
        UserError: the package of one of them is missing.
    """
    try:
        return [LOGGER_CLASSES[name](study, report) for name in names]
    except ImportError as error:
        raise UserError(f"loggers: {error}; {install_command('loggers')}", key="loggers",
                        code="package-missing") from None
