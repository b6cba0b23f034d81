"""A study that is written by hand, event by event."""

import io
import json
import time

from rich.console import Console

from scalesearch.schedule.rungs import FULL
from scalesearch.study.config.replication import ONE
from scalesearch.study.monitor import heartbeat
from scalesearch.study.monitor.eta import Situation
from scalesearch.study.monitor.heartbeat import RUNNING
from scalesearch.study.monitor.log_follower import Tail
from scalesearch.study.monitor.render import draw
from scalesearch.study.monitor.running import in_training
from scalesearch.study.trials.history import goals_of
from scalesearch.study.trials.study_dir import Store
from tests.study.fakes import META, OBJECTIVES

COST = {"params": {"total": 1000}, "macs": {"total": 9000}}
GOALS = goals_of(OBJECTIVES)


class Made:
    """A study that is written by hand, event by event."""

    def __init__(self, folder, **meta):
        self.store = Store(folder)
        self.store.create({**META, **meta}, "study: fake\n", "width: 8\n")

    def propose(self, number, origin="proposer", **facts):
        facts = {"state": "pending", "id": f"{number:012x}", "cost": COST, "origin": origin, **facts}
        self.store.append("proposed", number, **facts)
        self.store.append("started", number, attempt=1)
        return self

    def end(self, number, seconds, bleu=10.0, params=1000.0, state="complete"):
        values = {"bleu": bleu, "params.total": params} if state == "complete" else None
        self.store.append("ended", number, state=state, values=values, seconds=seconds, reason="")
        return self

    def rung(self, number, rung, share, seconds, loss=3.0):
        self.store.append("rung", number, rung=rung, loss=loss, share=share, seconds=seconds)
        return self

    def working(self, number, **facts):
        """The folder of a training, as its worker leaves it."""
        place = self.store.trial_folder(self.store.ledger.trials[number])
        place.mkdir(parents=True)
        (place / "job.json").write_text(json.dumps({"recipe": {"steps": 400}}))
        owner = {"host": "here", "process": 7, "machine": "m", "since": time.time() - 40}
        (place / "lease.json").write_text(json.dumps(owner))
        (place / "progress.json").write_text(json.dumps({"kind": "update", **facts}))
        return place

    def owned(self, **facts):
        facts = {"state": RUNNING, "host": "far", "machine": "other", "process": 1, "workers": 2, **facts}
        (self.store.folder / heartbeat.FILE).write_text(json.dumps(facts))

    def situation(self, wanted, rungs=FULL, seeds=ONE):
        tail = Tail(Store(self.store.folder).look())
        tail.update()
        return Situation(tail.ledger, wanted, rungs, seeds, GOALS, in_training(tail.store), tail.passed)


def drawn(shown, width, height=None):
    """What a terminal of that size shows."""
    console = Console(file=io.StringIO(), width=width)
    console.print(draw(shown, width, height))
    return console.file.getvalue()
