"""A study that is written by hand, event by event."""

import io
import json
import time
from dataclasses import replace

from rich.console import Console

from scalesearch.study.monitor import heartbeat
from scalesearch.study.monitor.eta import ProgressState
from scalesearch.study.monitor.events import LogFollower
from scalesearch.study.monitor.heartbeat import RUNNING
from scalesearch.study.monitor.render import render_snapshot
from scalesearch.study.monitor.running import running_trials
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Origin, State, Trial
from tests.study.fakes import META

COSTS = {"params.total": 1000, "macs.total": 9000}


class Made:
    """A study that is written by hand, event by event."""

    def __init__(self, folder, **meta):
        self.study = StudyDir(folder)
        self.study.create(replace(META, **meta), "study: fake\n", "width: 8\n")

    def propose(self, number, origin=Origin.SAMPLER, **facts):
        facts = {"state": State.PENDING, "architecture": f"{number:012x}", "costs": COSTS,
                 "origin": origin, **facts}
        if self.study.propose(Trial(number, **facts)).state == State.PENDING:
            self.study.append("started", number, attempt=1)
        return self

    def end(self, number, seconds, bleu=10.0, params=1000.0, state="complete"):
        values = {"bleu": bleu, "params.total": params} if state == "complete" else None
        self.study.append("ended", number, state=state, values=values, wall_seconds=seconds,
                          reason="")
        return self

    def rung(self, number, rung, share, seconds, loss=3.0):
        self.study.append("rung", number, rung=rung, loss=loss, share=share, seconds=seconds)
        return self

    def working(self, number, **facts):
        """The folder of a training, as its worker leaves it."""
        place = self.study.trial_folder(self.study.trials[number])
        place.mkdir(parents=True)
        (place / "job.json").write_text(json.dumps({"recipe": {"steps": 400}}))
        owner = {"host": "here", "pid": 7, "machine": "m", "started_at": time.time() - 40}
        (place / "lease.json").write_text(json.dumps(owner))
        (place / "progress.json").write_text(json.dumps({"type": "update", **facts}))
        return place

    def owned(self, **facts):
        facts = {"state": RUNNING, "host": "far", "machine": "other", "pid": 1, "workers": 2,
                 **facts}
        (self.study.folder / heartbeat.OWNER_FILE).write_text(json.dumps(facts))

    def situation(self, wanted, **meta):
        self.study.update_meta(**meta)
        study = StudyDir(self.study.folder).read_meta()
        LogFollower(study).update()
        return ProgressState(study.trials, wanted, study.meta, running_trials(study))


def drawn(shown, width, height=None):
    """What a terminal of that size shows."""
    console = Console(file=io.StringIO(), width=width)
    console.print(render_snapshot(shown, width, height))
    return console.file.getvalue()
