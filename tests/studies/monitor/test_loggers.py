"""Contract of all loggers: complete trials are logged once, and a failing tool is harmless."""

import json

import pytest

from scalesearch.studies.monitor.loggers import (
    Logger,
    MLflow,
    TensorBoard,
    make_loggers,
    mlflow_uri,
)
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import State
from tests.errors import refuses
from tests.studies.fakes import make_driver, make_plan


class Files(Logger):
    """Simple logger: one file per trial."""

    def file(self, trial):
        return self.study.folder / "files" / f"{trial.number}.json"

    def is_logged(self, trial):
        return self.file(trial).exists()

    def write_trial(self, trial, params, points):
        assert not self.is_logged(trial), "the trial was logged before"
        self.file(trial).parent.mkdir(exist_ok=True)
        self.file(trial).write_text(json.dumps([params, points]))


def read_files(study):
    return {int(file.stem): json.loads(file.read_text())
            for file in (study.folder / "files").glob("*.json")}


def read_tensorboard(study):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    logged = {}
    for folder in (study.folder / "tensorboard").iterdir():
        events = EventAccumulator(str(folder)).Reload()
        points = {(name, point.value, point.step) for name in events.Tags()["scalars"]
                  for point in events.Scalars(name)}
        start = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
        params = HParamsPluginData.FromString(start).session_start_info.hparams
        values = {name: getattr(value, value.WhichOneof("kind")) for name, value in params.items()}
        logged[int(folder.name.partition("-")[0])] = values, points
    return logged


def read_mlflow(study):
    from mlflow import MlflowClient

    client = MlflowClient(mlflow_uri(study))
    logged = {}
    for run in client.search_runs([client.get_experiment_by_name(study.meta.name).experiment_id]):
        points = [(name, point.value, point.step) for name in run.data.metrics
                  for point in client.get_metric_history(run.info.run_id, name)]
        assert run.info.status == "FINISHED" and int(run.data.tags["trial"]) not in logged
        logged[int(run.data.tags["trial"])] = run.data.params, points
    return logged


@pytest.mark.full
@pytest.mark.parametrize(("logger_class", "package", "read"),
                         [(Files, "json", read_files),
                          (TensorBoard, "tensorboard", read_tensorboard),
                          (MLflow, "mlflow", read_mlflow)])
def test_complete_trials_are_logged_once(
        tmp_path, monkeypatch, capfd, logger_class, package, read):
    pytest.importorskip(package)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    make_driver(tmp_path, make_plan(2)).run()  # without a logger
    for trials in (3, 4, 4):
        logger = logger_class(StudyDir(tmp_path).load(), pytest.fail)
        make_driver(tmp_path, make_plan(trials), view=logger).run()
    assert "INFO" not in capfd.readouterr().err  # of mlflow
    logged = read(logger.study)
    done = StudyDir(tmp_path).load().trials.with_state(State.COMPLETE)
    assert sorted(logged) == [trial.number for trial in done] and len(done) == 4
    for trial in done:
        params, points = logged[trial.number]
        values = {name: value for name, value, step in points if step == 0}
        assert {name: str(value) for name, value in params.items()} == {
            name: str(float(value) if logger_class is TensorBoard and not isinstance(value, str)
                      else value)
            for name, value in trial.params.items()}
        assert values["bleu"] == pytest.approx(trial.values["bleu"])
        assert values["params.total"] == trial.costs["params.total"]
        assert ("validation_loss", 2.0, 1) in [tuple(point) for point in points]


def test_failing_logger_is_reported_once_and_resumed(tmp_path):
    class Broken(Files):
        def write_trial(self, trial, params, points):
            raise ConnectionError("the server\nis away")

    messages = []
    make_driver(tmp_path, make_plan(3), view=Broken(make_study(tmp_path), messages.append)).run()
    assert len(messages) == 1 and "the server" in messages[0] and len(
        StudyDir(tmp_path).load().trials.with_state("complete")) == 3
    logger = Files(StudyDir(tmp_path).load(), pytest.fail)
    assert len(read_files(logger.study)) == 3


def make_study(folder):
    """Create a study without events."""
    return make_driver(folder, make_plan(0)).study


def test_missing_package_names_extra(tmp_path, monkeypatch):
    for name in ("tensorboard", "mlflow", "torch.utils.tensorboard"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    for name in ("tensorboard", "mlflow"):
        with refuses("package-missing", "[loggers]", key="loggers"):
            make_loggers([name], make_study(tmp_path), print)
    assert make_loggers([], make_study(tmp_path), print) == []
