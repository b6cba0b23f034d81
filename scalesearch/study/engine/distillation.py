"""Teachers of studies: find or train one, and have it translate the training text.

::

    runs/edge/teacher/          the teacher's training, unless it is a folder of the user's
    runs/edge/teacher/corpus/   train.en  train.de  train.json: its translations, and what decides them
    runs/edge/teacher/soft/     train  train.json: its probabilities at every place of these pairs, if they are wanted

All are jobs of the study's own runner, as its candidates are: they train where those train, go on
where they were stopped, and are not done again. Only the process that owns the study starts them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar

from scalesearch.data import Corpus, DataSpec, Tokenizer, default_cache
from scalesearch.data.files import expand_path
from scalesearch.errors import UserError
from scalesearch.files import read_json, write_json, write_text
from scalesearch.space.assembly.architecture import ModelSpec
from scalesearch.study.config.sections import ReferenceSpec, TeacherSpec
from scalesearch.study.config.spec import StudySpec
from scalesearch.study.engine.setup import reference_space
from scalesearch.study.executors.base import JobDone, Runner, TrainingJob
from scalesearch.study.executors.worker import ProgressFile
from scalesearch.study.monitor.running import SOFT_TARGETS_FOLDER, TRANSLATIONS_FOLDER, describe_progress, report_share
from scalesearch.study.monitor.running import TEACHER_FOLDER as FOLDER
from scalesearch.study.trials.record import JobFile, TeacherFacts
from scalesearch.study.trials.study_meta import DataFacts, TeacherMeta
from scalesearch.terminal import print_text
from scalesearch.train.recipe import Recipe
from scalesearch.train.result import RESULT_FILE, Result

DISTILLED_PREFIX = "train"
TEACHER_JOB_NUMBER = -1  # the number of a job that is no candidate's
TASK_KEYS = ("builtin", "source", "target")


@dataclass(frozen=True)
class TeacherJobResult:
    """What a teacher's job has left; of a training, the state alone counts here."""

    state: str
    reason: str = ""
    pairs: int = 0
    decoding: str = ""
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class Teacher:
    """A teacher that was looked at, and nothing about it is wrong.

    Attributes:
        recipe: how it is to be trained; None where ``folders`` hold it already.
        folders: of finished trainings, absolute; none where it is to be trained.
        architectures: one a folder, or that of what is to be trained.
    """

    spec: TeacherSpec
    architectures: tuple[ModelSpec, ...]
    recipe: Recipe | None = None
    folders: tuple[Path, ...] = ()

    @property
    def id(self) -> str:
        """The ids of its architectures."""
        return " + ".join(one.id for one in self.architectures)

    @property
    def meta(self) -> TeacherMeta:
        """What a resumed study must agree with."""
        spec = self.spec
        recipe = self.recipe
        return TeacherMeta(self.id, spec.beam, spec.length_penalty, spec.mix,
                           recipe and recipe.to_json(), spec.seed if recipe else None, spec.top_k)

    def describe(self) -> str:
        """Describes it in a line."""
        spec = self.spec
        who = (f" in {', '.join(spec.folders)}" if self.recipe is None
               else f", trained once: {self.recipe.describe()}")
        searched = "greedily" if spec.beam == 1 else f"with beam {spec.beam}"
        learned = "its translations and the real pairs" if spec.mix else "its translations"
        learned += f", with its {spec.top_k} likeliest tokens at every place" if spec.top_k else ""
        return (f"{self.id}{who}; translates the training text {searched}; candidates learn from "
                f"{learned}")


def find_teacher(spec: StudySpec, corpus: Corpus) -> Teacher | None:
    """Finds the study's teacher, which is not yet at work; None where there is none.

    Raises:
        UserError: its architecture leaves something open, or a folder holds no finished training of
            this task.
    """
    wanted = spec.teacher
    if wanted is None:
        return None
    if not wanted.folders:
        space = reference_space(ReferenceSpec("teacher", wanted.file, wanted.set), spec)
        return Teacher(wanted, (space.single_architecture("teacher: it"),),
                       wanted.recipe or spec.recipe)
    try:
        folders = tuple(expand_path(folder, "teacher") for folder in wanted.folders)
    except UserError as error:
        raise UserError(error.message.removeprefix("data: "), key="teacher",
                        code=error.code) from None
    return Teacher(wanted, tuple(_finished_architecture(folder, corpus) for folder in folders),
                   None, folders)


def _finished_architecture(folder: Path, corpus: Corpus) -> ModelSpec:
    """The architecture of the training in ``folder``.

    Raises:
        UserError: there is none, it is not finished, or it learned another task or another
            vocabulary.
    """
    from scalesearch.space import read_space
    from scalesearch.train.checkpoint import ARCHITECTURE_FILE, DATA_FILE, TOKENIZER_FILE, WEIGHTS_FILE

    if not folder.is_dir():
        raise UserError(f"teacher: there is no folder {folder}; name one that `scalesearch train "
                        "--out` has written", key="teacher", code="no-teacher")
    missing = [name
               for name in (ARCHITECTURE_FILE, TOKENIZER_FILE, DATA_FILE, WEIGHTS_FILE, RESULT_FILE)
               if not (folder / name).is_file()]
    if missing:
        raise UserError(f"teacher: {folder} holds no finished training ({', '.join(missing)} "
                        "missing); finish it with `scalesearch train … --resume`, or name another "
                        "folder", key="teacher", code="teacher-unfinished")
    done = read_json(folder / RESULT_FILE, TeacherJobResult)
    if done.state != "complete":
        raise UserError(f"teacher: the training in {folder} failed: {done.reason}", key="teacher",
                        code="teacher-failed")
    learned = read_json(folder / DATA_FILE, DataFacts).spec
    ours = corpus.spec
    differing = [key for key in TASK_KEYS if learned.get(key) != getattr(ours, key)]
    if differing:
        raise UserError(f"teacher: {folder} learned another task: "
                        + ", ".join(f"{key} {learned.get(key)}, " "and the study's is "
                                    f"{getattr(ours, key)}" for key in differing), key="teacher",
                        code="teacher-task-mismatch")
    if Tokenizer.from_file(folder / TOKENIZER_FILE) != corpus.tokenizer:
        raise UserError(f"teacher: {folder} has another vocabulary than the study's data. Train it "
                        "on the same data and vocab, or have it translate with `scalesearch "
                        f"distill {folder}`, and name what that writes under data: distilled",
                        key="teacher", code="teacher-vocab-mismatch")
    return read_space(folder / ARCHITECTURE_FILE).single_architecture()


def distilled_data(spec: StudySpec) -> DataSpec:
    """The data of the study's candidates: the study's own, learned from in the teacher's words."""
    if spec.teacher is None:
        return spec.data
    place = spec.out / FOLDER
    soft = str(place / SOFT_TARGETS_FOLDER / DISTILLED_PREFIX) if spec.teacher.top_k else None
    return replace(spec.data, distilled=str(place / TRANSLATIONS_FOLDER / DISTILLED_PREFIX),
                   mix_distilled=spec.teacher.mix, soft_targets=soft)


def run_teacher(teacher: Teacher, spec: StudySpec, runner: Runner,
                console: Console) -> TeacherFacts:
    """Trains, translates and softens until ``distilled(spec)`` can be loaded; returns the teacher's facts for records.

    Raises:
        UserError: the teacher's training, or its translating, failed.
        KeyboardInterrupt: what was done so far is kept.
    """
    place = (spec.out / FOLDER).resolve()
    common: JobFile = {"data": spec.data.with_absolute_paths().to_json(),
                       "threads": spec.resources.threads_per_trial, "nice": spec.resources.nice}
    if teacher.recipe is not None:
        if not (place / "architecture.yaml").exists():
            write_text(place / "architecture.yaml", teacher.architectures[0].to_yaml())
        job: JobFile = {**common, "cache": str(default_cache()), "recipe": teacher.recipe.to_json(),
                        "seed": teacher.spec.seed}
        _complete_job(place, job, f"the teacher ({teacher.id}) in training", spec.attempts, runner,
                      console)
    school = teacher.folders or (place,)
    taught: JobFile = {**common, "teachers": [str(folder) for folder in school],
                       "prefix": DISTILLED_PREFIX}
    job = {**taught,
           "decoding": {"beam": teacher.spec.beam, "length_penalty": teacher.spec.length_penalty}}
    made = _complete_job(place / TRANSLATIONS_FOLDER, job,
                         "the teacher translates the training text", spec.attempts, runner, console)
    if teacher.spec.top_k:
        pairs = replace(distilled_data(spec), soft_targets=None).with_absolute_paths().to_json()
        job = {**taught, "data": pairs, "cache": str(default_cache()), "top_k": teacher.spec.top_k}
        _complete_job(place / SOFT_TARGETS_FOLDER, job, "the teacher softens the training pairs",
                      spec.attempts, runner, console)
    results = [read_json(folder / RESULT_FILE, Result) for folder in school]
    return {"architecture": teacher.id, "params": sum(one.n_params for one in results),
            "bleu": _mean_bleu(results), "decoding": results[0].metrics["decoding"],
            "seeds": [one.seed for one in results], "corpus": results[0].corpus_hash,
            "cpu_seconds": sum(one.total_cpu_seconds for one in results),
            "translations": {"pairs": made.pairs, "decoding": made.decoding,
                             "cpu_seconds": made.cpu_seconds}, "mix": teacher.spec.mix,
            **({"top_k": teacher.spec.top_k} if teacher.spec.top_k else {})}


def _mean_bleu(results: Sequence[Result]) -> dict[str, float]:
    """Mean BLEU on each split that all were scored on."""
    scored = [{one.metrics["split"]: one.metrics,
               **({"test": one.metrics["test"]} if "test" in one.metrics else {})}
              for one in results]
    return {split: fmean(one[split]["bleu"] for one in scored) for split in scored[0]
            if all(split in one for one in scored)}


def _complete_job(folder: Path, job: JobFile, description: str, attempts: int, runner: Runner,
                  console: Console) -> TeacherJobResult:
    """The result of the job in ``folder``, which is done now unless it was before."""
    file = folder / RESULT_FILE
    if not file.exists():
        write_json(folder / "job.json", job)
        with _progress_display(folder, description, console):
            _run_attempts(folder, attempts, runner)
    result = read_json(file, TeacherJobResult)
    if result.state != "complete":
        raise UserError(f"teacher: its training failed: {result.reason}. Change its recipe, and "
                        "start another study with --out", key="teacher", code="teacher-failed")
    return result


def _run_attempts(folder: Path, attempts: int, runner: Runner) -> None:
    for attempt in range(1, attempts + 1):
        runner.submit(TrainingJob(TEACHER_JOB_NUMBER, folder, attempt))
        while not (events := runner.poll(0.5)):
            pass
        end = events[0]
        if isinstance(end, JobDone):
            return
        if not end.can_retry:
            break
    raise UserError(f"teacher: {end.reason}", key="teacher", code="teacher-failed")


@contextmanager
def _progress_display(folder: Path, description: str, console: Console) -> Iterator[None]:
    """A bar on a terminal, a line elsewhere."""
    if not console.is_terminal:
        print_text(description, console)
        yield
        return
    progress = ProgressFile(folder)

    def bar() -> Group:
        facts = progress.read()
        return Group(f"{description}: {describe_progress(facts) if facts else 'starting'}",
                     ProgressBar(completed=100 * report_share(facts), width=60))

    with Live(console=console, get_renderable=bar, refresh_per_second=2, transient=True):
        yield
    print_text(f"{description}: done", console)
