"""Export of a study to Optuna: its trials, PostgreSQL, and storages that become unavailable."""

import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Event

import optuna
import pytest
from sqlalchemy.exc import OperationalError

from scalesearch.studies.config.storage_url import mask_passwords
from scalesearch.studies.monitor.console import LineConsole
from scalesearch.studies.optuna_sync.attributes import (
    OPTUNA_STATES,
    TRIAL_NUMBER_ATTR,
    TrialExporter,
)
from scalesearch.studies.optuna_sync.export import MAX_WAIT, MIN_WAIT, OptunaExport
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Origin, State
from tests.errors import refuses
from tests.studies.engine.test_driver import trained
from tests.studies.event_study import EventStudy
from tests.studies.fakes import (
    META,
    OBJECTIVES,
    FakeSpace,
    exported,
    fake_work,
    make_driver,
    make_plan,
)
from tests.studies.postgres import running


@pytest.fixture(scope="module")
def server():
    with running() as postgres:
        yield postgres


def name_of(folder, name, identity=None):
    """Create a study of that name, since all tests share one database."""
    meta = replace(META, name=name, id=identity or f"id of {name}")
    StudyDir(folder).create(meta, "width: 8\n")
    return folder


def same(trials, study, names=tuple(objective.name for objective in OBJECTIVES)):
    """Check parameters, states, values and constraints of exported trials."""
    exported_trials = {trial.user_attrs[TRIAL_NUMBER_ATTR]: trial for trial in study.trials}
    assert len(exported_trials) == len(study.trials) and sorted(exported_trials) == [
        trial.number for trial in trials
    ]
    for trial in trials:
        exported_trial = exported_trials[trial.number]
        is_trained = trial.state not in (State.INFEASIBLE, State.DUPLICATE)
        assert exported_trial.state == OPTUNA_STATES[trial.state if is_trained
                                                     else State.INFEASIBLE]
        assert dict(exported_trial.constraints) == trial.constraints and set(
            exported_trial.params
        ) == set(trial.params)
        if trial.state == State.COMPLETE:
            assert exported_trial.values == [trial.values[name] for name in names]
            seconds = exported_trial.duration.total_seconds()
            assert seconds == pytest.approx(trial.wall_seconds or 0.0, abs=1e-3)


@pytest.mark.full
def test_study_in_postgresql_can_be_resumed(server, tmp_path):
    folder = name_of(tmp_path / "a", "resumed")
    make_driver(folder, make_plan(4), storage=server.url).run()
    driver = make_driver(folder, make_plan(8), storage=server.url)
    assert driver.run() == "8 candidates trained"
    same(StudyDir(folder).load().trials, load(server, "resumed"))
    assert set(trained(folder).values()) == {1} and not (folder / "optuna.journal").exists()


@pytest.mark.full
def test_no_connection_is_open_between_trials(server, tmp_path):
    before = connections(server)
    driver = make_driver(name_of(tmp_path / "a", "idle"), make_plan(3), storage=server.url)
    driver.run()
    assert connections(server) <= before


def connections(server):
    """Number of other connections."""
    psycopg = pytest.importorskip("psycopg")
    count = ("select count(*) from pg_stat_activity where usename = 'ann' and pid <> "
             "pg_backend_pid()")
    with psycopg.connect(server.url) as connection:
        return connection.execute(count).fetchone()[0]


def load(server, name):
    """Load a study of the server with Optuna."""
    return optuna.load_study(study_name=name,
                             storage=server.url.replace("postgresql:", "postgresql+psycopg:"))


@pytest.mark.full
def test_study_moves_between_journal_and_postgresql(server, tmp_path):
    folder = name_of(tmp_path / "a", "fake")
    for trials, storage in ((3, None), (5, server.url), (7, None)):
        driver = make_driver(folder, make_plan(trials), storage=storage)
        driver.run()
        same(driver.trials, load(server, "fake") if storage else exported(driver))


@pytest.mark.full
def test_studies_share_a_database_but_not_a_name(server, tmp_path):
    drivers = [make_driver(name_of(tmp_path / name, name), make_plan(3), storage=server.url,
                           seed=seed) for seed, name in enumerate(("one", "two"))]
    for driver in drivers:
        driver.run()
    for driver in drivers:
        same(driver.trials, load(server, driver.study.meta.name))
    other = name_of(tmp_path / "other", "one", "another identity")
    with refuses("storage-taken", "one"):
        make_driver(other, make_plan(3), storage=server.url)
    same(drivers[0].trials, load(server, "one"))


class Log(LineConsole):
    """A console that keeps its lines."""

    def __init__(self):
        self.text = []
        super().__init__(self.text.append)

    def having(self, words):
        return [line for line in self.text if words in line]


    def wait_for(self, words):
        until = time.monotonic() + 60
        while not self.having(words) and time.monotonic() < until:
            time.sleep(0.01)


@pytest.mark.full
def test_server_restart_does_not_interrupt_training(server, tmp_path):
    folder = name_of(tmp_path / "a", "outage")
    log = Log()
    calls = []

    def work(place):
        calls.append(place)
        if len(calls) == 3:
            server.stop()
        if len(calls) == 4:
            log.wait_for("the study continues without it")
        if len(calls) == 6:
            server.start()
        if len(calls) == 8:
            log.wait_for("responds again")
        fake_work(place)

    driver = make_driver(folder, make_plan(9), work, storage=server.url, view=log)
    driver.export._clock = iter(range(0, 10**6, int(MAX_WAIT))).__next__
    assert driver.run() == "9 candidates trained"
    assert len(calls) == 9 and set(trained(folder).values()) == {1}
    lost, = log.having("the study continues without it, and brings it up to date later")
    assert "***" in lost and "secret" not in lost and len(
        log.having("responds again, and is up to date")) == 1
    same(driver.trials, load(server, "outage"))


@pytest.mark.full
def test_unavailable_server_is_reported_and_updated_on_resume(server, tmp_path):
    folder = name_of(tmp_path / "a", "away")
    log = Log()
    calls = []

    def work(place):
        calls.append(place)
        if len(calls) == 2:
            server.stop()
        fake_work(place)

    assert make_driver(folder, make_plan(4), work, storage=server.url,
                       view=log).run() == "4 candidates trained"
    assert len(log.having("is still unavailable")) == 1
    assert "--resume brings it up to date" in log.text[-1]
    with refuses("storage-unreachable", "postgresql://ann:***@/", place="storage:") as error:
        make_driver(folder, make_plan(6), storage=server.url)
    assert "secret" not in str(error.value) and "--set storage=embedded" in str(error.value)
    assert len(StudyDir(folder).load().trials.with_state(State.COMPLETE)) == 4
    server.start()
    driver = make_driver(folder, make_plan(4), storage=server.url)
    same(driver.trials, load(server, "away"))


class UnreliableStorage:
    """An Optuna study in memory that fails while ``down``, and records connection times."""

    def __init__(self, objectives=OBJECTIVES):
        self.study = optuna.create_study(
            directions=[f"{objective.direction}imize" for objective in objectives]
        )
        self.down = False
        self.now = 0.0
        self.tried = []
        self.messages = []

    def connect(self):
        self.tried.append(self.now)
        self._refuse("select")
        return self

    def get_trials(self, deepcopy):
        return self.study.get_trials(deepcopy=deepcopy)

    def add_trial(self, trial):
        self._refuse("insert")
        self.study.add_trial(trial)

    def _refuse(self, statement):
        if self.down:
            raise OperationalError(statement, {}, Exception("no route to host"))

    @property
    def numbers(self):
        """Numbers of the exported trials, in the order of the storage."""
        return [trial.user_attrs[TRIAL_NUMBER_ATTR] for trial in self.study.trials]

    def export_of(self, event_study):
        return OptunaExport(event_study.study, TrialExporter(FakeSpace(), OBJECTIVES), self.connect,
                            "here", self.messages.append, lambda: self.now)


def update_and_wait(export):
    """Call ``update``, and wait for its background thread."""
    export.update()
    if export._thread is not None:
        export._thread.join()


@pytest.fixture
def event_study(tmp_path):
    return EventStudy(tmp_path / "study")


def test_finished_trials_are_exported_once(event_study):
    storage = UnreliableStorage()
    event_study.propose(0).end(0, 5, bleu=12.0).propose(1).rung(1, 0, 0.1, 5).propose(2)
    event_study.propose(3, state=State.INFEASIBLE, constraints={"params.total <= 500": 0.7})
    event_study.propose(4, state=State.DUPLICATE, original=2).propose(
        5, origin=Origin.REFERENCE, is_in_space=False).end(5, 5)
    event_study.propose(6, origin=Origin.REPLICATE, original=0, seed=2).end(6, 5)
    export = storage.export_of(event_study)
    assert storage.numbers == [
        0, 3], "no running or paused trials and their duplicates, outside references, replicates"
    update_and_wait(export)
    assert storage.numbers == [0, 3] and export._thread is None
    event_study.end(2, 5, bleu=10.0)
    update_and_wait(export)
    event_study.end(1, 5, state="failed")
    update_and_wait(export)
    assert storage.numbers == [0, 3, 2, 4, 1]
    assert [trial.state.name for trial in storage.study.trials] == [
        "COMPLETE", "PRUNED", "COMPLETE", "PRUNED", "FAIL"]
    assert [trial.values is None for trial in storage.study.trials[2:]] == [False, True, True]
    assert storage.study.trials[3].user_attrs["duplicate of trial"] == 2
    assert storage.study.trials[0].duration.total_seconds() == 5
    assert storage.study.trials[1].constraints == {"params.total <= 500": 0.7}
    assert storage.export_of(event_study) and storage.numbers == [
        0, 3, 2, 4, 1], "a resumed study reads them from the storage"


def test_unavailable_storage_is_retried_with_backoff(event_study):
    storage = UnreliableStorage()
    export = storage.export_of(event_study)
    storage.down = True
    event_study.propose(0).end(0, 5)
    while storage.now < 2000:
        update_and_wait(export)
        storage.now += 1.0
    tried = storage.tried[1:]
    gaps = [after - before for before, after in pairwise(tried)]
    assert tried[0] == MIN_WAIT and gaps[:5] == [
        10, 20, 40, 80, 160] and set(gaps[5:]) == {MAX_WAIT}
    assert storage.messages == [
        "the storage here cannot be written (no route to host); the study continues "
        "without it, and brings it up to date later"
    ]
    export.close()
    assert "is still unavailable (no route to host)" in storage.messages[
        1] and "--resume brings it up to date" in storage.messages[1]
    storage.down = False
    event_study.propose(1).end(1, 5)
    export.close()
    assert storage.messages[2:] == ["the storage here responds again, and is up to date"]
    assert storage.numbers == [0, 1]
    connected = len(storage.tried)
    event_study.propose(2).end(2, 5)
    update_and_wait(export)
    export.close()
    assert (
        storage.numbers == [0, 1, 2] and len(storage.tried) == connected
        and len(storage.messages) == 3
    )


def test_outage_does_not_duplicate_trials(event_study):
    storage = UnreliableStorage()
    export = storage.export_of(event_study)
    event_study.propose(0).end(0, 5).propose(1).end(1, 5)
    add = storage.add_trial

    def add_one(trial):
        add(trial)
        storage.down = True  # the response to the first insert is lost

    storage.add_trial = add_one
    update_and_wait(export)
    assert storage.numbers == [0] and len(storage.messages) == 1
    storage.down = False
    storage.add_trial = add
    storage.now = MIN_WAIT
    update_and_wait(export)
    assert storage.numbers == [0, 1]


def test_internal_error_stops_only_the_export(event_study, capfd):
    storage = UnreliableStorage()
    export = storage.export_of(event_study)
    storage.add_trial = lambda trial: trial.no_such_thing
    for number in range(3):
        event_study.propose(number).end(number, 5)
        update_and_wait(export)
    export.close()
    (message,) = storage.messages
    assert "AttributeError" in message and capfd.readouterr() == ("", "")
    assert "no_such_thing" in (event_study.study.folder / "export-crash.txt").read_text()


def test_hanging_storage_does_not_delay_training(tmp_path):
    """The first trial hangs in the storage until the last trial is trained."""
    last = Event()
    calls = []
    waited = []

    def work(folder):
        calls.append(folder)
        if len(calls) == 1:
            add = driver.export._optuna_study.add_trial
            driver.export._optuna_study.add_trial = lambda trial: waited.append(
                last.wait(60)) or add(trial)
        if len(calls) == 5:
            last.set()
        fake_work(folder)

    driver = make_driver(tmp_path, make_plan(5), work)
    assert driver.run() == "5 candidates trained" and all(waited)
    same(driver.trials, exported(driver))


def test_unwritable_journal_does_not_stop_training(tmp_path):
    log = Log()
    calls = []

    def work(folder):
        calls.append(folder)
        if driver.export._thread is not None:
            driver.export._thread.join()  # the first export, and then the one that fails
        if len(calls) == 2:
            driver.export._optuna_study._storage._backend.append_logs = full
        fake_work(folder)

    def full(lines):
        raise OSError(28, "No space left on device")

    driver = make_driver(tmp_path, make_plan(4), work, view=log)
    assert driver.run() == "4 candidates trained" and len(
        log.having("No space left on device")) == 1
    same(driver.trials, exported(driver))
    assert not driver.trials.with_state(State.PENDING, State.FAILED)


def test_files_of_killed_writer_do_not_block_export(tmp_path, monkeypatch):
    make_driver(tmp_path / "a", make_plan(3)).run()
    journal = tmp_path / "a" / "optuna.journal"
    (tmp_path / "a" / "optuna.journal.lock").symlink_to(journal)  # Optuna's own lock
    journal.write_bytes(journal.read_bytes()[:-20])
    monkeypatch.chdir(tmp_path)
    start = time.monotonic()
    driver = make_driver(Path("a"), make_plan(5))
    driver.run()
    assert time.monotonic() - start < 25, "Optuna takes a lock for left behind after 30 seconds"
    same(driver.trials, exported(driver))
    assert not journal.with_suffix(".old").exists(), "complete files are not rewritten"


def test_study_in_database_can_be_resumed(tmp_path):
    url = f"sqlite:///{tmp_path}/shared.db"
    make_driver(tmp_path / "a", make_plan(4), storage=url).run()
    driver = make_driver(tmp_path / "a", make_plan(8), storage=url)
    assert driver.run() == "8 candidates trained"
    same(driver.trials, optuna.load_study(study_name="fake", storage=url))


@pytest.mark.parametrize(
    ("url", "error"),
    [("postgresql://ann:secret@127.0.0.1:1/x",
      ("storage-unreachable", "postgresql://ann:***@127.0.0.1:1/x")),
     ("nosuch://ann:secret@host/x", ("storage-unreachable", "nosuch://ann:***@host/x")),
     ("sqlite:////nowhere/at/all.db", ("storage-unreachable", "unable to open database file")),
     ("mysql://ann:secret@host/x", ("package-missing", "MySQLdb")),
     ("redis://host", ("storage-unreachable", "RedisStorage is removed"))])
def test_refused_storage_is_reported_without_password(tmp_path, url, error):
    with refuses(*error, place="storage:") as caught:
        make_driver(tmp_path, storage=url)
    assert "secret" not in str(caught.value)


def test_missing_driver_is_reported_with_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with refuses("package-missing", "[postgres]", place="storage:"):
        make_driver(tmp_path, storage="postgresql://ann@127.0.0.1:1/x")


def test_passwords_are_masked_in_a_study_file():
    text = ("storage: postgresql://ann:s:e/cret@host/x\nother: "
            "postgresql+psycopg://ann@h/x?PASSWORD=secret&timeout=1\n")
    assert mask_passwords(text) == (
        "storage: postgresql://ann:***@host/x\nother: "
        "postgresql+psycopg://ann@h/x?PASSWORD=***&timeout=1\n")
