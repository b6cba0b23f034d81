"""Study folders whose events and files are written directly by tests."""

import io
import json
import time
from dataclasses import replace

from rich.console import Console

from scalesearch.studies.eta import ProgressState
from scalesearch.studies.monitor import heartbeat
from scalesearch.studies.monitor.events import LogFollower
from scalesearch.studies.monitor.heartbeat import RUNNING
from scalesearch.studies.monitor.render import render_snapshot
from scalesearch.studies.monitor.running import running_trials
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Origin, State, Trial
from tests.studies.fakes import META

COSTS = {"params.total": 1000, "macs.total": 9000}


class EventStudy:
    """Study folder to which a test adds events."""

    def __init__(self, folder, **meta):
        self.study = StudyDir(folder)
        self.study.create(replace(META, **meta), "width: 8\n")

    def propose(self, number, origin=Origin.SAMPLER, **facts):
        """Propose a trial, and start it if it is pending."""
        facts = {"state": State.PENDING, "architecture": f"{number:012x}", "costs": COSTS,
                 "origin": origin, **facts}
        if self.study.propose(Trial(number, **facts)).state == State.PENDING:
            self.study.append("started", number, attempt=1)
        return self

    def end(self, number, seconds, bleu=10.0, params=1000.0, state="complete"):
        """End a trial."""
        values = {"bleu": bleu, "params.total": params} if state == "complete" else None
        self.study.append("ended", number, state=state, values=values, wall_seconds=seconds,
                          reason="")
        return self

    def rung(self, number, rung, share, seconds, loss=3.0, **facts):
        """Pause a trial at a rung."""
        self.study.append("rung", number, rung=rung, loss=loss, share=share, seconds=seconds,
                          **facts)
        return self

    def write_worker_files(self, number, **facts):
        """Write the files of a worker that is training a trial; return the trial's folder."""
        folder = self.study.trial_folder(self.study.trials[number])
        folder.mkdir(parents=True)
        (folder / "job.json").write_text(json.dumps({"recipe": {"steps": 400}}))
        owner = {"host": "here", "pid": 7, "machine": "m", "started_at": time.time() - 40}
        (folder / "lease.json").write_text(json.dumps(owner))
        (folder / "progress.json").write_text(json.dumps({"type": "update", **facts}))
        return folder

    def write_owner(self, **facts):
        """Write ``owner.json``, by default of a running study on another machine."""
        facts = {"state": RUNNING, "host": "far", "machine": "other", "pid": 1, "workers": 2,
                 **facts}
        (self.study.folder / heartbeat.OWNER_FILE).write_text(json.dumps(facts))

    def progress_state(self, planned, **meta):
        """Change ``study.json`` and return the state for estimates of the remaining time."""
        self.study.update_meta(**meta)
        study = StudyDir(self.study.folder).read_meta()
        LogFollower(study).update()
        return ProgressState(study.trials, *planned, study.meta, running_trials(study))


def rendered(snapshot, width, height=None):
    """Render a snapshot as the text on a terminal of this size."""
    console = Console(file=io.StringIO(), width=width)
    console.print(render_snapshot(snapshot, width, height))
    return console.file.getvalue()
