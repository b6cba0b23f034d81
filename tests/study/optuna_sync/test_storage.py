"""Where Optuna's copy lies: PostgreSQL, and storages that go away in the middle of a study."""

import json
from itertools import pairwise

import optuna
import pytest
from sqlalchemy.exc import OperationalError

from scalesearch.errors import UserError
from scalesearch.study.config.storage_url import hide
from scalesearch.study.monitor.console import Lines
from scalesearch.study.optuna_sync.mirror import NUMBER, STATES
from scalesearch.study.optuna_sync.retrying import LATEST, SOONEST, SteadyMirror
from scalesearch.study.trials.study_dir import Store
from scalesearch.study.trials.trials import COMPLETE, FAILED, INFEASIBLE, PENDING
from tests.study.engine.test_driver import trained
from tests.study.fakes import META, OBJECTIVES, fake_work, make_driver, make_plan
from tests.study.postgres import running


@pytest.fixture(scope="module")
def server():
    with running() as found:
        yield found


def name_of(folder, name):
    """Prepares a folder for a study of that name, since one database serves all tests."""
    Store(folder).create({**META, "name": name, "id": f"id of {name}"}, "study: fake\n", "width: 8\n")
    return folder


def same(ledger, study, objectives=tuple(objective.name for objective in OBJECTIVES)):
    """Holds Optuna's trials against the ledger: same trials, parameters, states, values, constraints."""
    there = {trial.user_attrs[NUMBER]: trial for trial in study.get_trials()}
    assert len(there) == len(study.get_trials()) and sorted(there) == sorted(ledger.trials)
    for number, trial in ledger.trials.items():
        outcome, theirs = ledger.outcome(trial), there[number]
        assert theirs.state == STATES[trial.state if trial.state == INFEASIBLE else outcome.state]
        assert dict(theirs.constraints) == trial.slacks and set(theirs.params) == set(trial.params)
        if outcome.state == COMPLETE:
            assert theirs.values == [outcome.values[name] for name in objectives]


def test_a_study_in_postgresql_ends_and_goes_on_and_optuna_reads_the_same(server, tmp_path):
    folder = name_of(tmp_path / "a", "goes-on")
    make_driver(folder, make_plan(4), storage=server.url).run()
    driver = make_driver(folder, make_plan(8), storage=server.url)
    assert driver.run() == "8 candidates trained"
    url = server.url.replace("postgresql:", "postgresql+psycopg:")
    same(Store(folder).load().ledger, optuna.load_study(study_name="goes-on", storage=url))
    assert set(trained(folder).values()) == {1} and not (folder / "optuna.journal").exists()


def test_a_study_moves_from_its_own_folder_to_postgresql_and_back(server, tmp_path):
    folder = name_of(tmp_path / "a", "moves")
    for trials, storage in ((3, None), (5, server.url), (7, None)):
        driver = make_driver(folder, make_plan(trials), storage=storage)
        driver.run()
        same(driver.ledger, driver.mirror.study)


def test_two_studies_share_a_database_and_the_same_name_of_another_is_refused(server, tmp_path):
    folders = [name_of(tmp_path / name, name) for name in ("one", "two")]
    drivers = [make_driver(folder, make_plan(3), storage=server.url, seed=seed)
               for seed, folder in enumerate(folders)]
    for driver in drivers:
        driver.run()
    for driver in drivers:
        same(driver.ledger, driver.mirror.study)
    other = tmp_path / "other"
    Store(other).create({**META, "name": "one", "id": "of somebody else"}, "study: fake\n", "width: 8\n")
    with pytest.raises(UserError, match="it already holds another study named one; give this one another name"):
        make_driver(other, make_plan(3), storage=server.url)
    same(drivers[0].ledger, drivers[0].mirror.study)


class Log(Lines):
    """What a person would have read."""

    def __init__(self):
        self.text = []
        super().__init__(self.text.append)

    def having(self, words):
        return [line for line in self.text if words in line]


def test_a_server_that_stops_and_starts_again_costs_no_training(server, tmp_path):
    folder, log, calls = name_of(tmp_path / "a", "outage"), Log(), []

    def work(place):
        calls.append(place)
        if len(calls) == 3:
            server.stop()
        if len(calls) == 6:
            server.start()
        fake_work(place)

    driver = make_driver(folder, make_plan(9), work, storage=server.url, view=log)
    driver.mirror.say, driver.mirror._clock = log.say, iter(range(0, 10**6, int(SOONEST))).__next__
    assert driver.run() == "9 candidates trained"
    driver.mirror.close()
    assert len(calls) == 9 and set(trained(folder).values()) == {1}
    lost, = log.having("the study goes on without it, and brings it up to date when it is back")
    assert "***" in lost and "secret" not in lost and len(log.having("is back, and up to date")) == 1
    same(driver.ledger, optuna.load_study(study_name="outage", storage=driver.mirror.study._storage))
    same(driver.ledger, make_driver(folder, make_plan(9), storage=server.url).mirror.study)


def test_a_server_that_stays_away_is_named_at_the_end_and_a_resumed_study_brings_it_up_to_date(server, tmp_path):
    folder, log, calls = name_of(tmp_path / "a", "away"), Log(), []

    def work(place):
        calls.append(place)
        if len(calls) == 2:
            server.stop()
        fake_work(place)

    driver = make_driver(folder, make_plan(4), work, storage=server.url, view=log)
    driver.mirror.say = log.say
    assert driver.run() == "4 candidates trained"
    driver.mirror.close()
    assert len(log.having("is still away")) == 1 and "--resume brings it up to date" in log.text[-1]
    with pytest.raises(UserError, match=r"storage: postgresql://ann:\*\*\*@/.* cannot be used: connection") as error:
        make_driver(folder, make_plan(6), storage=server.url)
    assert "secret" not in str(error.value) and "--set storage=embedded" in str(error.value)
    assert len(Store(folder).load().ledger.having(COMPLETE)) == 4
    server.start()
    same(driver.ledger, make_driver(folder, make_plan(4), storage=server.url).mirror.study)


class Flaky:
    """A mirror of nothing, which fails while ``down``; counts how often it was connected to."""

    def __init__(self):
        self.down, self.connected, self.heard = False, 0, []

    def connect(self):
        if self.down:
            raise OperationalError("select", {}, Exception("no route to host"))
        self.connected += 1
        return self

    def add(self, trial, outcome):
        self.tell(trial, None)

    def tell(self, number, values):
        if self.down:
            raise OperationalError("insert", {}, Exception("no route to host"))
        self.heard.append(number)


def test_a_storage_that_is_away_is_tried_again_later_and_later():
    there, now, said, tried = Flaky(), [0.0], [], []
    steady = SteadyMirror(there.connect, "here", lambda: now[0])
    steady.say = said.append
    connect = there.connect
    steady._connect = lambda: tried.append(now[0]) or connect()
    there.down = True
    while now[0] < 2000:
        steady.tell(1, None)
        steady.update()
        now[0] += 1.0
    gaps = [after - before for before, after in pairwise(tried)]
    assert tried[0] == SOONEST and gaps[:5] == [10, 20, 40, 80, 160] and set(gaps[5:]) == {LATEST}
    assert said == ["the storage here cannot be written (no route to host); the study goes on without it, and brings "
                    "it up to date when it is back"]
    there.down = False
    steady.close()
    assert said[1:] == ["the storage here is back, and up to date"] and there.connected == 2
    steady.tell(7, None)
    steady.close()
    assert there.heard == [7] and len(said) == 2


def test_an_embedded_storage_that_cannot_be_written_stops_no_training_either(tmp_path):
    log, calls = Log(), []

    def work(folder):
        calls.append(folder)
        if len(calls) == 2:
            driver.mirror.study._storage._backend.append_logs = full
        fake_work(folder)

    def full(lines):
        raise OSError(28, "No space left on device")

    driver = make_driver(tmp_path, make_plan(4), work, view=log)
    driver.mirror.say = log.say
    assert driver.run() == "4 candidates trained" and len(log.having("No space left on device")) == 1
    driver.mirror.close()
    same(driver.ledger, driver.mirror.study)
    assert not driver.ledger.having(PENDING, FAILED)


@pytest.mark.parametrize(("url", "said"), [
    ("postgresql://ann:secret@127.0.0.1:1/x", r"postgresql://ann:\*\*\*@127.0.0.1:1/x cannot be used: .*refused"),
    ("nosuch://ann:secret@host/x", r"nosuch://ann:\*\*\*@host/x cannot be used: Can't load plugin"),
    ("sqlite:////nowhere/at/all.db", "unable to open database file"),
    ("mysql://ann:secret@host/x", "needs a driver for its database, the package MySQLdb"),
    ("redis://host", "RedisStorage is removed"),
])
def test_a_storage_that_cannot_be_used_is_refused_without_its_password(tmp_path, url, said):
    with pytest.raises(UserError, match=said) as error:
        make_driver(tmp_path, storage=url)
    assert str(error.value).startswith("storage: ") and "secret" not in str(error.value)


def test_a_missing_driver_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(UserError, match=r"needs a driver for PostgreSQL: pip install 'scalesearch\[postgres\]'"):
        make_driver(tmp_path, storage="postgresql://ann@127.0.0.1:1/x")


def test_a_password_is_kept_out_of_the_study_s_folder(tmp_path):
    text = "storage: postgresql://ann:s:e/cret@host/x\nother: postgresql+psycopg://ann@h/x?password=secret&y=1\n"
    text = text.replace("s:e/cret", "s:ecret")
    Store(tmp_path).create(META, text, "width: 8\n")
    kept = (tmp_path / "study.yaml").read_text()
    assert kept == "storage: postgresql://ann:***@host/x\nother: postgresql+psycopg://ann@h/x?password=***&y=1\n"
    assert hide("nothing to hide: a@b") == "nothing to hide: a@b"
    assert "secret" not in json.dumps(Store(tmp_path).load().meta)
