"""A study's folder as one HTML page: gathers what the page shows, and writes it."""

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from scalesearch.errors import UserError
from scalesearch.files import write_text
from scalesearch.report.ablation import Ablation, ablation
from scalesearch.report.page.facts import Facts, Finished, TrialFacts
from scalesearch.report.page.render import render
from scalesearch.report.records import scores_of
from scalesearch.study.results.figures import own_figures
from scalesearch.study.results.module_costs import config_of, modules_of
from scalesearch.study.results.results import Results, main_metric
from scalesearch.study.results.tables import records_of
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Kind, Origin, State, Trial

LINKED = ("architecture.yaml", "job.json", "record.json")
OWN = ("study.yaml", "space.yaml", "study.json", "events.jsonl", "front.csv", "all.csv", "seeds.csv")


def write_page(results: Results, to: Path, alone: bool = False) -> Path:
    """Writes the page of ``results`` to ``to``, with links relative to its folder.

    Args:
        alone: no link to another file, for a page that is to be sent elsewhere.

    Raises:
        UserError: ``to`` is a folder.
    """
    if to.is_dir():
        raise UserError(f"--to {to}: this is a folder; give the page's file, such as {to / 'report.html'}",
                        code="is-a-folder")
    write_text(to, render(gather(results, None if alone else to.parent)))
    return to


def gather(results: Results, beside: Path | None) -> Facts:
    """Gathers the facts of the page. ``beside`` is the folder that it will lie in; None leaves links out."""
    study, meta = results.study, results.study.meta
    trials = {trial.number: _facts_of(study, trial, beside) for trial in study.trials}
    facts = Facts(
        name=meta.name, meta=meta.to_json(), table=results.table, front=results.front, subject=results.subject,
        main=main_metric(results), sampled=frozenset(results.params), trials=trials,
        finished=tuple(_finished(results)), hypervolume=results.hypervolume(), notes=tuple(results.notes()),
        verdict=tuple(results.verdict.sentences()), proxies=results.proxies(),
        files=_links(study.folder, OWN, beside), named=_named(results), figures=own_figures(results),
    )
    itemised = {number: replace(trials[number], config=config_of(study, trial), modules=modules_of(study, trial))
                for number in facts.itemised for trial in (study.trials[number],)}
    return replace(facts, trials={**trials, **itemised})


def _named(results: Results) -> Ablation | None:
    """The table of the named architectures; None where there are not two.

    They are compared with the base that the study names, or else the first that is finished.
    """
    records, metric, meta = records_of(results), main_metric(results), results.study.meta
    named = [one for one in records if one.get("label") and one.get("origin") != Origin.REPLICATE]
    finished = [str(one["label"]) for one in named if scores_of(one, records, metric)]
    base = meta.base if meta.base in finished else next(iter(finished), None)
    if base is None or len(named) < 2:
        return None
    return ablation(records, metric, base, results.verdict.confidence)


def _facts_of(study: StudyDir, trial: Trial, beside: Path | None) -> TrialFacts:
    folder = study.trial_folder(trial)
    record = study.record(trial) if trial.state in (State.COMPLETE, State.FAILED) else None
    params = trial.params or (trial.answers if trial.state == State.COMPLETE else {})
    return TrialFacts(
        number=trial.number, state=trial.state, origin=trial.origin, label=trial.label, of=trial.of, seed=trial.seed,
        reason=trial.reason, params=params,
        violated=tuple(name for name, slack in trial.constraints.items() if slack > 0),
        costs=trial.costs, links=_links(folder, (*LINKED, *_rung_files(folder)), beside), values=trial.values,
        curve=tuple(one for one in _curve(folder, record) if isinstance(one, dict)),
        rungs=tuple((float(rung.step), rung.loss) for rung in trial.rungs if rung.step is not None),
    )


def _curve(folder: Path, record: dict[str, Any] | None) -> list[Any]:
    """A training's validations: as its record says, or the latest rung that it has reached."""
    if record and record.get("curve"):
        return list(record["curve"])
    for name in reversed(_rung_files(folder)):
        try:
            return list(json.loads((folder / name).read_text()).get("curve") or ())
        except (OSError, ValueError):  # being written
            continue
    return []


def _rung_files(folder: Path) -> list[str]:
    """Rung files of a training, in their order."""
    return sorted((file.name for file in folder.glob("rung-*.json")), key=lambda name: (len(name), name))


def _links(folder: Path, names: Iterable[str], beside: Path | None) -> dict[str, str]:
    """Relative addresses of existing files of ``folder``, as seen from ``beside``; none from None."""
    if beside is None:
        return {}
    there = [name for name in names if (folder / name).is_file()]
    return {name: quote(Path(os.path.relpath(folder / name, beside)).as_posix()) for name in there}


def _finished(results: Results) -> list[Finished]:
    """Finished first trainings of eligible trials, with the hours spent until then."""
    study, spent, done = results.study, dict[int, float](), []
    start = datetime.fromisoformat(study.meta.created)
    for event in study.log:
        seconds = event.get("seconds") or event.get("wall_seconds")
        if event["event"] in (Kind.RUNG, Kind.ENDED) and seconds is not None:
            spent[event["trial"]] = max(spent.get(event["trial"], 0.0), float(seconds))
        trial = study.trials[event["trial"]]
        if event["event"] == Kind.ENDED and trial.eligible and trial.values:
            hours = (datetime.fromisoformat(event["time"]) - start).total_seconds() / 3600
            values = tuple(trial.values[name] for name in study.meta.directions)
            done.append(Finished(hours, sum(spent.values()) / 3600, trial.number, values))
    return done
