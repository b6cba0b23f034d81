"""A study on several Ray nodes on one machine: nodes that differ, leave and join."""

import json
import os
import time
from itertools import combinations
from pathlib import Path

import optuna
import pytest

from scalesearch.studies.config.sections import Resources
from scalesearch.studies.executors import local
from scalesearch.studies.executors.base import JobDone, TrainingJob, machine_fingerprint
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Callback, State
from scalesearch.training.gpus import Gpu
from tests.corpora import write_text
from tests.errors import refuses
from tests.processes import call, wait_until
from tests.studies.engine.test_driver import trained
from tests.studies.engine.test_end_to_end import STUDY
from tests.studies.executors.test_executors import run_jobs
from tests.studies.fakes import fake_work, make_driver, make_plan
from tests.studies.optuna_sync.test_export import same
from tests.studies.postgres import running

pytestmark = pytest.mark.ray
SMALL = {"object_store_memory": 80 * 2**20}


@pytest.fixture(scope="module")
def cluster():
    """A head with one CPU, a node with a fake GPU, and a node with a rare resource."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True,
                    head_node_args={"num_cpus": 1, "include_dashboard": False, **SMALL})
    cluster.add_node(num_cpus=2, num_gpus=1, **SMALL)
    cluster.add_node(num_cpus=2, resources={"rare": 1}, **SMALL)
    yield cluster
    cluster.shutdown()


@pytest.fixture
def make_runner(cluster):
    """Function that makes runners on the cluster; they stop at the end of the test."""
    runners = []

    def make(work, workers=2, **more):
        resources = Resources(address=cluster.address, **more)
        runners.append(local.make_runner("ray", workers, resources, work))
        return runners[-1]

    yield make
    for runner in runners:
        runner.stop(grace=1)


def job(tmp_path, number):
    folder = tmp_path / str(number)
    folder.mkdir()
    return TrainingJob(number, folder)


def stamped(folder):
    """Write node, start and end of the job to its folder."""
    import ray

    note = {"node": ray.get_runtime_context().get_node_id(), "from": time.time()}
    time.sleep(1.5)
    (Path(folder) / "note.json").write_text(json.dumps({**note, "to": time.time()}))


def notes(jobs):
    return [json.loads((job.folder / "note.json").read_text()) for job in jobs]


def at_once(intervals):
    return sum(a["from"] < b["to"] and b["from"] < a["to"] for a, b in combinations(intervals, 2))


@pytest.mark.slow
def test_worker_runs_on_node_with_its_resources(make_runner, tmp_path):
    runner = make_runner(stamped, workers=3, custom={"rare": 0.5})
    assert runner.describe().endswith("1 CPU each; 2 fit at a time now")
    jobs = [job(tmp_path, number) for number in range(3)]
    assert all(isinstance(end, JobDone) for end in run_jobs(runner, jobs).values())
    assert len({note["node"] for note in notes(jobs)}) == 1
    with refuses("too-few-resources", "1 CPU, 0 GPU and 2 rare", "1 rare", key="resources"):
        make_runner(stamped, custom={"rare": 2})
    with refuses("too-few-resources", "3 CPU and 0 GPU", key="resources"):
        make_runner(stamped, cpus_per_trial=3)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "together"), [(0.5, 1), (0.51, 0)])
def test_gpu_is_shared_by_shares_that_fit(make_runner, tmp_path, share, together):
    jobs = [job(tmp_path, number) for number in range(2)]
    run_jobs(make_runner(stamped, gpus_per_trial=share), jobs)
    assert at_once(notes(jobs)) == together


def meet(folder):
    """Wait for the other job to start."""
    Path(folder, "started").touch()
    wait_until(lambda: len(list(Path(folder).parent.glob("*/started"))) == 2)


@pytest.mark.slow
@pytest.mark.parametrize(("needs", "together"), [((20, 20), True), ((50, 50), False),
                                                 ((1, 500), False)])
def test_gpu_is_shared_by_trials_whose_predicted_memory_fits(make_runner, tmp_path, monkeypatch,
                                                            needs, together):
    monkeypatch.setattr("scalesearch.studies.executors.ray.find_cluster_gpus",
                        lambda: [Gpu("GPU-a", 80 * 2**30)])
    monkeypatch.setattr("scalesearch.studies.executors.ray.predict_memory",
                        lambda folder: needs[int(folder.name)] * 2**30)
    jobs = [job(tmp_path, number) for number in range(2)]
    runner = make_runner(meet if together else stamped)
    assert runner.shares_gpus
    assert all(isinstance(end, JobDone) for end in run_jobs(runner, jobs).values())
    if not together:
        assert not at_once(notes(jobs))


@pytest.mark.slow
def test_nodes_are_compared_with_this_machine_before_start(make_runner, tmp_path, monkeypatch):
    runner = make_runner(stamped, cpus_per_trial=2)
    (tmp_path / "study.json").write_text('{"id": "1"}')
    data = {"builtin": "grammar", "pairs": 300, "vocab": 300}
    runner.check(lambda: machine_fingerprint(str(tmp_path), data))
    monkeypatch.setenv("ONLY_HERE", "yes")
    nowhere = str(tmp_path / "nowhere")

    def look():
        return machine_fingerprint(str(tmp_path) if "ONLY_HERE" in os.environ else nowhere,
                                   data) | {"folder": "it is there"}

    def fail():
        if "ONLY_HERE" not in os.environ:
            raise ValueError("it cannot look")
        return {}

    with refuses(
        "incompatible-nodes", "node ", f"{tmp_path}: None, and here study 1", key="ray"
    ) as error:
        runner.check(look)
    # the head has no room for a worker, and is not asked
    assert str(error.value).count("node 1") == 2
    with refuses("incompatible-nodes", "node "):
        runner.check(fail)


def elsewhere(folder):
    """Fail like a machine that has the package, but not the study's folder."""
    fake_work(folder.replace("/shared/", "/not-shared/"))


def test_worker_without_study_folder_stops_the_study(make_runner, tmp_path):
    folder = tmp_path / "shared" / "study"
    with refuses("not-shared", "job.json"):
        make_driver(folder, make_plan(3), runner=make_runner(elsewhere, workers=1)).run()
    trials = StudyDir(folder).load().trials
    waiting, = trials.with_state(State.PENDING)
    assert (waiting.attempts, waiting.crashes) == (1, 0) and not (tmp_path / "not-shared").exists()
    assert make_driver(folder, make_plan(3), work=fake_work).run() == "3 candidates trained"


def placed(folder):
    """Append the node to a file; wait there until ``hold`` next to the study is deleted."""
    import ray

    place = Path(folder)
    with (place / "nodes").open("a") as file:
        file.write(ray.get_runtime_context().get_node_id() + "\n")
    while (place.parents[2] / "hold").exists():
        time.sleep(0.05)
    fake_work(folder)


class Changing(Callback):
    """Add a node while candidates train, then remove the node of the first candidate.

    Candidates wait until that one has started on the new node: its first worker may survive its
    node for a moment, and must not finish then.
    """

    def __init__(self, cluster, leaving, folder):
        self.cluster = cluster
        self.leaving = leaving
        self.folder = folder
        self.joined = None
        self.messages = []

    def message(self, text):
        self.messages.append(text)

    def update(self):
        running = {file.parent.name: nodes[-1] for file in self.folder.rglob("nodes")
                   if (nodes := file.read_text().split())}  # it is empty for a moment
        if running and self.joined is None:
            self.joined = self.cluster.add_node(num_cpus=4, resources={"moving": 3}, **SMALL)
        elif self.joined and self.leaving and self.joined.node_id in running.values():
            self.cluster.remove_node(self.leaving)
            self.leaving = None
        elif self.leaving is None and set(running.values()) == {self.joined.node_id}:
            (self.folder.parent / "hold").unlink(missing_ok=True)


@pytest.mark.full
def test_joining_node_is_used_and_job_of_leaving_node_moves(cluster, make_runner, tmp_path):
    leaving = cluster.add_node(num_cpus=2, resources={"moving": 1}, **SMALL)
    folder = tmp_path / "study"
    (tmp_path / "hold").touch()
    runner = make_runner(placed, workers=3, custom={"moving": 1})
    view = Changing(cluster, leaving, folder)
    assert "1 fit at a time now" in runner.describe()
    driver = make_driver(folder, make_plan(5), runner=runner, view=view)
    assert driver.run() == "5 candidates trained"
    done = driver.trials.with_state(State.COMPLETE)
    nodes = {trial.number: (driver.study.trial_folder(trial) / "nodes").read_text().split()
             for trial in done}
    moved, = (number for number, node_ids in nodes.items() if leaving.node_id in node_ids)
    assert nodes.pop(moved) == [leaving.node_id, view.joined.node_id]
    assert all(node_ids == [view.joined.node_id] for node_ids in nodes.values())
    attempts = {trial.number: trial.attempts for trial in done}
    assert attempts.pop(moved) == 2 and set(attempts.values()) == {1}
    assert set(trained(folder).values()) == {1}
    assert [text for text in view.messages if text.startswith(f"trial {moved}: its worker died")]
    cluster.remove_node(view.joined)


@pytest.mark.slow
def test_study_on_cluster_exports_to_postgresql(cluster, tmp_path):
    """On the command line: two of three workers fit at a time."""
    with running() as server:
        write_text(tmp_path)
        (tmp_path / "tiny.yaml").write_text(
            STUDY
            + (f"ray: {{ address: '{cluster.address}' }}\nworkers: 3\nresources: {{ "
               f"cpus_per_trial: 2 }}\nstorage: {server.url}\n"))
        output = call(tmp_path, "study", "run", "tiny.yaml")
        assert (
            "3 Ray workers on the cluster at" in output
            and "2 CPU each; 2 fit at a time now" in output
        )
        assert "2 candidates trained" in output and "secret" not in output
        url = server.url.replace("postgresql:", "postgresql+psycopg:")
        same(StudyDir(tmp_path / "found").load().trials,
             optuna.load_study(study_name="tiny", storage=url),
             ("loss", "bleu", "params.total", "macs.total"))
