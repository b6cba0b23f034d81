"""Teachers of studies: find or train one, and have it translate the training text.

::

    runs/edge/teacher/          the teacher's training, unless it is a folder of the user's
    runs/edge/teacher/corpus/   train.en  train.de  train.json: its translations, and what decides them

Both are jobs of the study's own runner, as its candidates are: they train where those train, go on where they were
stopped, and are not done again. Only the process that owns the study starts them.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar

from scalesearch.data import Corpus, DataSpec, Tokenizer, default_cache
from scalesearch.data.files import expand
from scalesearch.errors import UserError
from scalesearch.files import write_json, write_text
from scalesearch.space.assembly.architecture import Architecture
from scalesearch.study.config.sections import ReferenceSpec, TeacherSpec
from scalesearch.study.config.spec import StudySpec
from scalesearch.study.engine.setup import reference_space
from scalesearch.study.executors.base import Done, Job, Runner
from scalesearch.study.executors.worker import Progress
from scalesearch.study.monitor.running import CORPUS, describe_progress, share
from scalesearch.study.monitor.running import TEACHER as FOLDER
from scalesearch.train.recipe import Recipe
from scalesearch.train.result import FILE, Result

PREFIX = "train"
NO_TRIAL = -1  # the number of a job that is no candidate's
TASK = ("builtin", "source", "target")


@dataclass(frozen=True)
class Teacher:
    """A teacher that was looked at, and nothing about it is wrong.

    Attributes:
        architecture: what it is.
        recipe: how it is to be trained; None where ``folder`` holds it already.
        folder: of the finished training, absolute; None where it is to be trained.
    """

    spec: TeacherSpec
    architecture: Architecture
    recipe: Recipe | None = None
    folder: Path | None = None

    @property
    def search(self) -> dict[str, Any]:
        """Search of its translations."""
        return {"beam": self.spec.beam, "length_penalty": self.spec.length_penalty}

    def to_json(self) -> dict[str, Any]:
        """JSON that a resumed study must agree with."""
        new = {} if self.recipe is None else {"recipe": self.recipe.to_json(), "seed": self.spec.seed}
        return {"architecture": self.architecture.id, **new, **self.search, "mix": self.spec.mix}

    def describe(self) -> str:
        """Describes it in a line."""
        who = f"{self.architecture.id} in {self.spec.folder}" if self.recipe is None else \
            f"{self.architecture.id}, trained once: {self.recipe.describe()}"
        return f"{who}; {_translations(self.spec)}"


def _translations(spec: TeacherSpec) -> str:
    searched = "greedily" if spec.beam == 1 else f"with beam {spec.beam}"
    learned = "its translations and the real pairs" if spec.mix else "its translations"
    return f"translates the training text {searched}; candidates learn from {learned}"


def find_teacher(spec: StudySpec, corpus: Corpus) -> Teacher | None:
    """Finds the study's teacher, which is not yet at work; None where there is none.

    Raises:
        UserError: its architecture leaves something open, or its folder holds no finished training of this task.
    """
    wanted = spec.teacher
    if wanted is None:
        return None
    if wanted.folder is not None:
        folder = _folder(wanted.folder)
        return Teacher(wanted, _finished(folder, corpus), None, folder)
    space = reference_space(ReferenceSpec("teacher", wanted.file, wanted.set), spec)
    return Teacher(wanted, space.closed("teacher: it"), wanted.recipe or spec.recipe)


def _folder(written: str) -> Path:
    try:
        return expand(written, "teacher")
    except UserError as error:
        raise UserError(error.message.removeprefix("data: "), key="teacher", code=error.code) from None


def _finished(folder: Path, corpus: Corpus) -> Architecture:
    """The architecture of the training in ``folder``.

    Raises:
        UserError: there is none, it is not finished, or it learned another task or another vocabulary.
    """
    from scalesearch.space import read_space
    from scalesearch.train.checkpoint import ARCHITECTURE, DATA, TOKENIZER, WEIGHTS

    if not folder.is_dir():
        raise UserError(f"teacher: there is no folder {folder}; name one that `scalesearch train --out` has written",
                        key="teacher", code="no-teacher")
    missing = [name for name in (ARCHITECTURE, TOKENIZER, DATA, WEIGHTS, FILE) if not (folder / name).is_file()]
    if missing:
        raise UserError(f"teacher: {folder} holds no finished training ({', '.join(missing)} missing); finish it with "
                        "`scalesearch train … --resume`, or name another folder", key="teacher",
                        code="teacher-unfinished")
    done = Result.read(folder)
    if done is None or done.state != "complete":
        raise UserError(f"teacher: the training in {folder} failed: {done and done.reason}", key="teacher",
                        code="teacher-failed")
    learned = json.loads((folder / DATA).read_text())["spec"]
    differing = [key for key in TASK if learned.get(key) != getattr(corpus.spec, key)]
    if differing:
        raise UserError(f"teacher: {folder} learned another task: " + ", ".join(
            f"{key} {learned.get(key)}, and the study's is {getattr(corpus.spec, key)}" for key in differing),
                        key="teacher", code="teacher-of-another-task")
    if Tokenizer.from_file(folder / TOKENIZER) != corpus.tokenizer:
        raise UserError(f"teacher: {folder} has another vocabulary than the study's data. Train it on the same data "
                        f"and vocab, or have it translate with `scalesearch distill {folder}`, and name what that "
                        "writes under data: distilled", key="teacher", code="teacher-of-another-vocabulary")
    return read_space(folder / ARCHITECTURE).closed()


def distilled(spec: StudySpec) -> DataSpec:
    """The data of the study's candidates: the study's own, learned from in the teacher's words."""
    if spec.teacher is None:
        return spec.data
    prefix = spec.out / FOLDER / CORPUS / PREFIX
    return replace(spec.data, distilled=str(prefix), mix=spec.teacher.mix)


def teach(teacher: Teacher, spec: StudySpec, runner: Runner, console: Console) -> dict[str, Any]:
    """Trains and translates until ``distilled(spec)`` can be loaded; returns the teacher's facts for records.

    Raises:
        UserError: the teacher's training, or its translating, failed.
        KeyboardInterrupt: what was done so far is kept.
    """
    place = (spec.out / FOLDER).resolve()
    data, threads = spec.data.resolve().to_json(), spec.resources.threads_per_trial
    school = teacher.folder or place
    if teacher.recipe is not None:
        if not (place / "architecture.yaml").exists():
            write_text(place / "architecture.yaml", teacher.architecture.to_yaml())
        job = {"data": data, "cache": str(default_cache()), "recipe": teacher.recipe.to_json(),
               "seed": teacher.spec.seed, "threads": threads}
        _finish(place, job, f"the teacher ({teacher.architecture.id}) in training", spec.attempts, runner, console)
    job = {"teacher": str(school), "data": data, "prefix": PREFIX, "search": teacher.search, "threads": threads}
    made = _finish(place / CORPUS, job, "the teacher translates the training text", spec.attempts, runner, console)
    return _facts(teacher, school, made)


def _facts(teacher: Teacher, school: Path, made: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of the teacher: its id, its score, the effort of training and translating."""
    result = Result.read(school)
    assert result is not None, "it was there when the translations were made"
    metrics = result.metrics
    scored = {metrics["split"]: metrics, **({"test": metrics["test"]} if "test" in metrics else {})}
    return {
        "architecture": teacher.architecture.id,
        "params": result.params,
        "bleu": {split: scores["bleu"] for split, scores in scored.items()},
        "decode": metrics["decode"],
        "seed": result.seed,
        "corpus": result.corpus,
        "cpu_seconds": result.total_cpu_seconds,
        "translations": {key: made[key] for key in ("pairs", "decode", "cpu_seconds")},
        "mix": teacher.spec.mix,
    }


def _finish(folder: Path, job: Mapping[str, Any], words: str, attempts: int, runner: Runner, console: Console,
            ) -> dict[str, Any]:
    """The result of the job in ``folder``, which is done now unless it was before."""
    file = folder / "result.json"
    if not file.exists():
        write_json(folder / "job.json", dict(job))
        with _shown(folder, words, console):
            _run(folder, attempts, runner)
    result: dict[str, Any] = json.loads(file.read_text())
    if result["state"] != "complete":
        raise UserError(f"teacher: its training failed: {result.get('reason')}. Change its recipe, and start another "
                        "study with --out", key="teacher", code="teacher-failed")
    return result


def _run(folder: Path, attempts: int, runner: Runner) -> None:
    for attempt in range(1, attempts + 1):
        runner.submit(Job(NO_TRIAL, folder, attempt))
        while not (events := runner.poll(0.5)):
            pass
        end = events[0]
        if isinstance(end, Done):
            return
        if not end.again:
            break
    raise UserError(f"teacher: {end.reason}", key="teacher", code="teacher-failed")


@contextmanager
def _shown(folder: Path, words: str, console: Console) -> Iterator[None]:
    """A bar on a terminal, a line elsewhere."""
    if not console.is_terminal:
        console.print(words, highlight=False, markup=False, soft_wrap=True)
        yield
        return
    progress = Progress(folder)

    def bar() -> Group:
        facts = progress.read()
        return Group(f"{words}: {describe_progress(facts) if facts else 'starting'}",
                     ProgressBar(completed=100 * share(facts), width=60))

    with Live(console=console, get_renderable=bar, refresh_per_second=2, transient=True):
        yield
    console.print(f"{words}: done", highlight=False, markup=False)
