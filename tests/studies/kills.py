"""A study that is killed repeatedly at random moments, and what was lost or done twice.

    python -m tests.studies.kills drive FOLDER BACKEND TRIALS SECONDS SAMPLER

``Killed`` starts such drivers, one after the other over one folder, and kills what a plan of kinds
names: a busy worker, the driver, Ray's raylet or control service, a node of a Ray cluster with all
that runs on it, or every process of the study at once. Or it stops a process for some seconds by
SIGSTOP, as a machine does that runs out of memory.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from scalesearch.schedule import NO_RUNGS, Rungs
from scalesearch.studies.config.sections import Resources
from scalesearch.studies.executors import lease, local
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import EventType, State
from tests.processes import HANG
from tests.studies import slow_work
from tests.studies.slow_work import alive

RUNGS = Rungs((0.3, 1.0), 2)
WORKER = "a worker"
DRIVER = "the driver"
RAYLET = "raylet"
CONTROL = "gcs_server"
ALL = "all at once"
NODE = "a node"
# by SIGSTOP, then SIGCONT
STOPPED = {"worker stopped": WORKER, "driver stopped": DRIVER, "raylet stopped": RAYLET}
RAY = "ray"
CLUSTER = "cluster"
POOL = "pool"
KEPT = "kept"  # the pool, with processes that train several trials
INPROCESS = "inprocess"
STOP = (1.0, 8.0)  # seconds
SMALL = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
# of Ray; they train nothing, and notice within a minute that it died
AGENTS = ("ray::DashboardA", "ray::RuntimeEnv")


def make_runner(backend, seconds):
    """Return the executor of a driver; a full run takes ``seconds``.

    A name such as ``cluster@HOST:PORT`` has Ray's address.
    """
    name, _, address = backend.partition("@")
    resources = Resources(address=address or None, cpus_per_trial=1 if address else 0.5,
                          trials_per_process=5 if name == KEPT else 1)
    return local.make_runner({CLUSTER: RAY, KEPT: POOL}.get(name, name), 2, resources,
                             partial(slow_work.work, seconds=seconds))


def driver_of(folder, backend, trials, seconds, kind):
    """A driver with rungs; attempts enough for every kill to hit the same candidate."""
    from tests.studies.fakes import make_driver, make_plan

    rungs = NO_RUNGS if kind == "random" else RUNGS
    plan = make_plan(trials, most=60_000, rungs=rungs, attempts=100)
    return make_driver(folder, plan, kind=kind, runner=make_runner(backend, seconds))


def drive(folder, backend, trials, seconds, kind):
    """Run a driver in this process."""
    with StudyDir(Path(folder)).exclusive():
        print(driver_of(folder, backend, int(trials), float(seconds), kind).run(), flush=True)


@dataclass
class Kill:
    """One kill and its effects.

    Attributes:
        pids: how many processes it hit.
last_event: the last event before it, and how many candidates were in training.
        back: seconds until the log continued.
        down: whether the driver ended by it, though it was not hit.
        orphans: seconds for which processes of a killed driver continued.
    """

    kind: str
    backend: str
    pids: int
    last_event: str
    time: float
    back: float | None = None
    orphans: float | None = None
    down: bool = False
    losses: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)


class Nodes:
    """A Ray cluster on this machine: a head without workers, and two nodes of one worker each."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **SMALL})
        self._nodes = [self._more(), self._more()]

    @property
    def address(self):
        return self._cluster.address

    @property
    def raylets(self):
        """Process ids of the nodes' raylets; a node's workers are their children."""
        return [_raylet(node) for node in self._nodes]

    def replace(self, pids):
        """Puts a node in the place of the one whose raylet is among ``pids``."""
        lost = next(node for node in self._nodes if _raylet(node) in pids)
        self._nodes[self._nodes.index(lost)] = self._more()

    def end(self):
        self._cluster.shutdown()

    def _more(self):
        return self._cluster.add_node(num_cpus=1, **SMALL)


class Killed:
    """Runs a study to its end through kills.

    Args:
        sessions: backend and kinds of kills, for one driver after the other.
    """

    def __init__(self, folder, sessions, trials, seconds, kind="local", seed=1):
        self.folder = Path(folder)
        self.sessions = sessions
        self.given = (trials, seconds, kind)
        self.rng = random.Random(seed)
        self.kills = []
        self.seen = {}
        self.log = b""
        self.process = None
        self._pids = {}
        self._nodes = None

    def run(self):
        """Kill as planned, then let the study end; return the output of its last driver."""
        try:
            for backend, kinds in self.sessions:
                self._start(backend)
                for kind in kinds:
                    self._set_pace()
                    self._kill(kind, backend)
            (self.folder / "pace").unlink()
            self._start(self.sessions[-1][0])
            return self._end()
        finally:
            self._clean()

    def _start(self, backend):
        assert self.process is None or self.process.poll(
            ) is not None, "a session ends with a kill of the driver"
        trials, seconds, kind = self.given
        self._backend = backend
        if backend == CLUSTER:
            self._nodes = self._nodes or Nodes()
            backend = f"{CLUSTER}@{self._nodes.address}"
        command = [sys.executable, "-m", "tests.studies.kills", "drive", str(self.folder), backend,
                   str(trials), str(seconds), kind]
        self._said = (self.folder.parent / f"{self.folder.name}.out").open("a")
        self._began = self._events()
        self.process = subprocess.Popen(command, stdout=self._said, stderr=subprocess.STDOUT,
                                        start_new_session=True)

    def _set_pace(self):
        """Spread results evenly over the kills, with some left for the end, on any machine."""
        self.folder.mkdir(exist_ok=True)
        kills = sum(len(kinds) for _, kinds in self.sessions)
        part = self.folder / "pace.part"
        part.write_text(str(self.given[0] * (len(self.kills) + 1) / kills))
        os.replace(part, self.folder / "pace")

    def _events(self):
        file = self.folder / "events.jsonl"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def _kill(self, kind, backend):
        target = STOPPED.get(kind, kind)
        self._wait(target, backend)
        self._note()
        hit = self._victims(target)
        mine = [pid for pid, name in self._family().items() if name not in AGENTS]
        kill = Kill(kind, backend, len(hit), self._state(), time.time())
        before = self._events()
        if kind in STOPPED:
            self._stop(hit)
        for pid in () if kind in STOPPED else hit:
            self._shoot(pid)
        if kind == NODE:
            self._nodes.replace(hit)
        self.kills.append(kill)
        if kind in (DRIVER, ALL):
            self.process.wait()
            kill.orphans = self._orphans(mine) if backend in (RAY, POOL, KEPT) else None
        self._back = (kill, before)

    def _wait(self, kind, backend):
        """Wait for a target and then for a random time; sometimes a starting driver is hit."""
        until = time.monotonic() + HANG
        early = kind in (DRIVER, ALL) and self.rng.random() < 0.3
        starting = self.rng.random() < 0.1  # of Ray's processes, most are hit when at work
        while not early and (self._events() == self._began or not self._victims(kind)
                             or not (starting or kind in (DRIVER, ALL)
                                     or set(self._victims(WORKER)) & set(self._family()))):
            self._still(until, kind)
        pause = time.monotonic() + self.rng.uniform(0.1, 1.5)
        while time.monotonic() < pause or not (early or self._victims(kind)):
            self._still(until, kind)

    def _still(self, until, kind):
        self._family()
        self._look_back()
        assert time.monotonic() < until, f"nothing to kill as {kind}\n{self._words()}"
        self._up_again()
        time.sleep(0.01)

    def _up_again(self):
        """Start the driver again if Ray ended it, as after the death of gcs_server."""
        if self.process.poll() is not None:
            rays = (RAYLET, CONTROL, "raylet stopped")
            assert self.process.returncode and self.kills[-1].kind in rays, self._words()
            self.kills[-1].down = True
            self._start(self.kills[-1].backend)

    def _look_back(self):
        kill, before = getattr(self, "_back", (None, 0))
        if kill and kill.back is None and self._events() > before:
            kill.back = time.time() - kill.time

    def _stop(self, pids):
        for pid in pids:
            self._shoot(pid, signal.SIGSTOP)
        time.sleep(self.rng.uniform(*STOP))
        for pid in pids:
            self._shoot(pid, signal.SIGCONT)

    def _victims(self, kind):
        family = self._family()
        if kind == NODE:
            busy = set(self._victims(WORKER))
            below = ({pid for pid in self._below({raylet}) if pid in family}
                     for raylet in self._nodes.raylets)
            return sorted(next((pids for pids in below if pids & busy), ()))
        if kind == DRIVER:
            return [self.process.pid]
        if kind == ALL:
            return list(family)
        if kind == WORKER:
            holders = (lease.read_holder(path.parent)
                       for path in self.folder.glob("trials/*/lease.json"))
            pids = {holder and holder.pid for holder in holders}
            own = {pid for pid, birth in self._pids.items() if birth == _birth(pid)}  # orphans too
            busy = sorted(pid for pid in pids & own if pid != self.process.pid and alive(pid))
            return [self.rng.choice(busy)] if busy else []
        return [pid for pid, name in family.items() if name.startswith(kind)]

    def _family(self):
        """The driver, its nodes and all descendants: process id to name."""
        names = {}
        roots = {self.process.pid, *(self._nodes.raylets if self._backend == CLUSTER else ())}
        family = {pid: names[pid] for pid in self._below(roots, names)}
        self._pids |= {pid: _birth(pid) for pid in family if pid not in self._pids}
        return family

    def _below(self, roots, names=None):
        """Those of ``roots`` that live, and their descendants; ``names`` is filled in."""
        names = {} if names is None else names
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                head, _, tail = stat.read_text().rpartition(")")
            except OSError:
                continue
            pid = int(stat.parent.name)
            if tail.split()[0] not in "ZX":
                parents[pid], names[pid] = int(tail.split()[1]), head.partition("(")[2]
        family = set()
        more = roots & set(parents)
        while more:
            family |= more
            more = {pid for pid, parent in parents.items() if parent in more} - family
        return family

    def _shoot(self, pid, number=signal.SIGKILL):
        # only processes of this study, not another one with the same number
        if self._pids.get(pid) == _birth(pid) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _orphans(self, family):
        start = time.monotonic()
        while any(self._pids.get(pid) == _birth(pid) is not None and alive(pid) for pid in family):
            assert time.monotonic() - start < HANG, "orphans of a dead driver continue"
            time.sleep(0.02)
        return time.monotonic() - start

    def _state(self):
        lines = (self.folder / "events.jsonl").read_bytes().splitlines() if self._events() else []
        if not lines or self._events() == self._began:
            return "starting"
        return json.loads(lines[self._events() - 1])["type"]

    def _note(self):
        """Looks for what was there and is not, and remembers what is."""
        kill = self.kills[-1] if self.kills else None
        log = (self.folder / "events.jsonl").read_bytes() if self._events() else b""
        if not log.startswith(self.log) and kill:
            kill.losses.append("events")
        self.log = log[: log.rfind(b"\n") + 1]
        for path, text in self.seen.items():
            if (not path.exists() or path.read_bytes() != text) and kill:
                kill.losses.append(str(path))
        for pattern in ("result.json", "rung-*.json", "record.json"):
            for path in self.folder.glob(f"trials/*/{pattern}"):
                self.seen.setdefault(path, path.read_bytes())

    def _end(self):
        until = time.monotonic() + HANG
        while self.process.poll() != 0:
            self._up_again()
            assert time.monotonic() < until, f"the study does not end\n{self._words()}"
            self._family()
            self._look_back()
            time.sleep(0.05)
        self._note()
        self._find_duplicates()
        return self._words().splitlines()[-1]

    def _find_duplicates(self):
        ended = Counter()
        for line in self.log.splitlines():
            event = json.loads(line)
            if event["type"] in (EventType.ENDED, EventType.RUNG):
                key = (event["trial"], event["type"], event.get("rung"))
                ended[key] += 1
                if ended[key] > 1:
                    self.kills[-1].duplicates.append(f"event {key}")
        for folder in (self.folder / "trials").iterdir():
            for line in _lines(folder / "training_runs"):
                left = folder / ("result.json" if line["rung"] is None
                                 else f"rung-{line['rung']}.json")
                if left.exists() and line["time"] > left.stat().st_mtime + 0.01:
                    self._before(line["time"]).duplicates.append(f"training of {folder.name}")
            for line in _lines(folder / "overlaps"):
                self._before(line["time"]).duplicates.append(f"two workers in {folder.name}")

    def _before(self, moment):
        return max((kill for kill in self.kills if kill.time <= moment), key=lambda kill: kill.time)

    def _words(self):
        return (self.folder.parent / f"{self.folder.name}.out").read_text()[-3000:]

    def left(self):
        """Processes of the study that still run."""
        return [pid for pid, birth in self._pids.items() if alive(pid) and birth == _birth(pid)]

    def _clean(self):
        if self._nodes:
            self._nodes.end()
        until = time.monotonic() + HANG
        while self.process.poll() is not None and self.left() and time.monotonic() < until:
            time.sleep(0.1)
        self.remained = self.left()
        for pid in self.remained:
            self._shoot(pid)
        self.process.wait()
        self._said.close()


def _raylet(node):
    return node.all_processes["raylet"][0].process.pid


def _birth(pid):
    """When a process was started, in ticks: with its number, what it is."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def _lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def plan_of(kinds, backend, rng):
    """Sessions with ``kinds`` kills of each type; a kill of the driver ends a session."""
    ends = [kind for kind in (DRIVER, ALL) for _ in range(kinds.get(kind, 0))]
    others = [kind for kind, count in kinds.items() if kind not in (DRIVER, ALL)
              for _ in range(count)]
    rng.shuffle(ends)
    rng.shuffle(others)
    cuts = sorted(rng.randint(0, len(others)) for _ in ends[1:])
    parts = [others[a:b] for a, b in zip([0, *cuts], [*cuts, len(others)])]
    return [(backend, [*part, end]) for part, end in zip(parts, ends)]


def summary(kills):
    """The log of kills, by kind and backend."""
    rows = [f"{'killed':14} {'under':10} {'kills':>5} {'processes':>9} {'losses':>6} "
            f"{'duplicates':>10} {'driver down':>11} {'back after, s':>14} {'orphans gone, s':>15} "
            " log's last event when hit"]
    groups = sorted({(kill.kind, kill.backend) for kill in kills})
    for kind, backend in [*groups, ("sum", "")]:
        some = [
            k for k in kills if (k.kind, k.backend) == (kind, backend)] if backend else list(kills)
        last_events = ", ".join(f"{name} {count}"
                          for name, count in Counter(k.last_event for k in some).most_common())
        rows.append(f"{kind:14} {backend:10} {len(some):5} {sum(k.pids for k in some):9} "
                    f"{sum(len(k.losses) for k in some):6} "
                    f"{sum(len(k.duplicates) for k in some):10} {sum(k.down for k in some):12} "
                    f"{_middle([k.back for k in some]):>14} "
                    f"{_middle([k.orphans for k in some]):>15}  {last_events}")
    return "\n".join(rows)


def _middle(values):
    times = sorted(value for value in values if value is not None)
    return f"{times[len(times) // 2]:.1f} (<{times[-1]:.1f})" if times else ""


def check(killed):
    """Raise AssertionError unless every candidate has its own values and nothing remains."""
    trials = StudyDir(killed.folder).load().trials
    assert not [kill
                for kill in killed.kills if kill.losses or kill.duplicates], summary(killed.kills)
    assert not trials.with_state(State.PENDING, "failed") and not killed.remained, (
        killed.remained, killed._words())
    for trial in trials.with_state(State.COMPLETE):
        assert trial.values["bleu"] == slow_work.score(trial.params)
        record = json.loads((StudyDir(killed.folder).trial_folder(trial)
                             / "record.json").read_text())
        assert record["values"] == trial.values and record["trial"] == trial.number
    trained = [trial.architecture for trial in trials if trial.attempts]
    assert len(trained) == len(set(trained))
    shares = {0: RUNGS.shares[0]}
    for trial in trials:
        losses = [slow_work.loss(trial.params, shares[rung]) for rung in range(len(trial.rungs))]
        assert [rung.loss for rung in trial.rungs] == losses
    return trials


if __name__ == "__main__":
    assert sys.argv[1] == "drive"
    drive(*sys.argv[2:])
