"""Distillation in studies: find or train a teacher, and translate the text.

::

    runs/edge/teacher/          the teacher's training run, unless the user names a finished one
    runs/edge/teacher/corpus/   train.en  train.de  train.json: its translations and their settings
    runs/edge/teacher/soft/     train  train.json: its soft targets per target token (``top_k``)

These are jobs of the study's runner, like its trials: they run on the same machines, resume after
an interruption, and are not repeated. Only the process that owns the study starts them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar

from scalesearch.data import Corpus, DataSpec, Tokenizer, default_cache
from scalesearch.data.files import expand_path
from scalesearch.errors import UserError, option
from scalesearch.files import read_json, write_json, write_text
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.studies.config.fixed_architectures import COMPRESS
from scalesearch.studies.config.sections import TeacherSpec
from scalesearch.studies.config.space_reader import open_space
from scalesearch.studies.config.spec import StudySpec
from scalesearch.studies.engine.corpora import Corpora, load_corpora
from scalesearch.studies.engine.jobs import FolderJobs
from scalesearch.studies.engine.setup import check_blocks, check_same_translations
from scalesearch.studies.executors.base import Runner, TrainingJob
from scalesearch.studies.executors.worker import ProgressFile
from scalesearch.studies.monitor.running import (
    SOFT_TARGETS_FOLDER,
    TEACHER_FOLDER,
    TRANSLATIONS_FOLDER,
    describe_progress,
    report_share,
)
from scalesearch.studies.trials.record import (
    JobFile,
    JobResult,
    TeacherFacts,
    describe_teacher_facts,
)
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.study_meta import DataFacts, TeacherMeta
from scalesearch.tasks import TASKS
from scalesearch.terminal import format_count, print_text
from scalesearch.training.recipe import Recipe
from scalesearch.training.result import RESULT_FILE, Result

DISTILLED_PREFIX = "train"
TASK_KEYS = ("builtin", "source", "target")


@dataclass(frozen=True)
class Teacher:
    """A teacher that passed all checks.

    Attributes:
        spec: from the study file.
        architectures: one per folder, or that of the teacher to train.
        recipe: of the teacher to train; None if ``folders`` hold trained teachers.
        folders: absolute paths of finished training runs; empty if the teacher is to be trained.
        translates: False for the parent of a compression whose data have translations already.
    """

    spec: TeacherSpec
    architectures: tuple[ModelSpec, ...]
    recipe: Recipe | None = None
    folders: tuple[Path, ...] = ()
    translates: bool = True

    @property
    def id(self) -> str:
        """The ids of its architectures."""
        return " + ".join(architecture.id for architecture in self.architectures)

    @property
    def meta(self) -> TeacherMeta:
        """The fields of ``study.json``, which may not change when the study is resumed."""
        spec = self.spec
        recipe = None if self.recipe is None else self.recipe.model_dump()
        return TeacherMeta(self.id, spec.beam, spec.length_penalty, spec.mix, recipe,
                           None if recipe is None else spec.seed, spec.top_k)

    def describe(self) -> str:
        """Describe the teacher in one line."""
        spec = self.spec
        source = (f" in {', '.join(spec.folders)}" if self.recipe is None
                  else f", trained once: {self.recipe.describe()}")
        searched = "greedily" if spec.beam == 1 else f"with beam {spec.beam}"
        learned = "its translations and the real pairs" if spec.mix else "its translations"
        if not self.translates:
            learned = "the translations in the data"
        if spec.top_k:
            learned += f", with its {format_count(spec.top_k, 'most probable token')} per position"
        translates = f"; translates the training text {searched}" if self.translates else ""
        return f"{self.id}{source}{translates}; candidates learn from {learned}"


def find_teacher(spec: StudySpec, corpus: Corpus) -> Teacher | None:
    """Find the teacher of the study, without running it.

    The result is None if the study has no teacher.

    Raises:
        UserError: its architecture leaves something open, or has a block that workers cannot
            import, a folder holds no finished training of this task, or the task has no pairs.
    """
    if spec.teacher is None:
        return None
    if TASKS[spec.data.task].score is None:
        key = "parent" if spec.type == COMPRESS else "teacher"
        raise UserError(f"{key}: a {key} writes target texts, and the task {spec.data.task} has "
                        "none", help="use a task such as translation", key=key, code="no-pairs")
    teacher = _read_teacher(spec, spec.teacher, corpus)
    check_blocks(spec, teacher.architectures)
    return teacher


def _read_teacher(spec: StudySpec, teacher: TeacherSpec, corpus: Corpus) -> Teacher:
    translates = not spec.data.distilled
    key = "parent" if spec.type == COMPRESS else "teacher"
    if not teacher.folders:
        space = open_space(spec.file, teacher.file) if teacher.file else spec.space
        if teacher.set:
            space = space.with_overrides(teacher.set)
        return Teacher(teacher, (space.single_architecture("teacher: it"),),
                       teacher.recipe or spec.recipe, translates=translates)
    try:
        folders = tuple(expand_path(folder, key) for folder in teacher.folders)
    except UserError as error:
        raise UserError(error.message.removeprefix("data: "), key=key, code=error.code) from None
    architectures = tuple(_finished_architecture(folder, corpus, key) for folder in folders)
    return Teacher(teacher, architectures, None, folders, translates)


def _finished_architecture(folder: Path, corpus: Corpus, key: str) -> ModelSpec:
    """Return the architecture of the finished training run in ``folder``, which ``key`` names.

    Raises:
        UserError: the folder holds no finished run, or its task or vocabulary differs.
    """
    from scalesearch.library import ARCHITECTURE_FILE
    from scalesearch.spaces import read_space
    from scalesearch.training.checkpoint import (
        DATA_FILE,
        TOKENIZER_FILE,
        WEIGHTS_FILE,
    )

    if not folder.is_dir():
        raise UserError(f"{key}: the folder {folder} does not exist; name one that "
                        "`scalesearch train --out` has written", key=key, code="no-teacher")
    missing = [name
               for name in (ARCHITECTURE_FILE, TOKENIZER_FILE, DATA_FILE, WEIGHTS_FILE, RESULT_FILE)
               if not (folder / name).is_file()]
    if missing:
        raise UserError(f"{key}: {folder} holds no finished training run ({', '.join(missing)} "
                        "missing); finish it with `scalesearch train … --resume`, or name another "
                        "folder", key=key, code="teacher-unfinished")
    result = read_json(folder / RESULT_FILE, JobResult)
    if result.state != "complete":
        raise UserError(f"{key}: the training run in {folder} failed: {result.reason}",
                        key=key, code="teacher-failed")
    learned = read_json(folder / DATA_FILE, DataFacts).spec
    own = corpus.spec
    differing = [name for name in TASK_KEYS if learned.get(name) != getattr(own, name)]
    if differing:
        raise UserError(f"{key}: {folder} is for another task: "
                        + ", ".join(f"{name} {learned.get(name)}, and the study's is "
                                    f"{getattr(own, name)}" for name in differing), key=key,
                        code="teacher-task-mismatch")
    if Tokenizer.from_file(folder / TOKENIZER_FILE) != corpus.tokenizer:
        advice = (f"set data: {{tokenizer: {folder / TOKENIZER_FILE}}}" if key == "parent" else
                  "train it on the same data and vocab, or have it translate with `scalesearch "
                  f"distill {folder}`, and name what that writes under data: distilled")
        raise UserError(f"{key}: {folder} has another vocabulary than the study's data",
                        help=advice, key=key, code="teacher-vocab-mismatch")
    return read_space(folder / ARCHITECTURE_FILE).single_architecture()


def distilled_data(spec: StudySpec) -> DataSpec:
    """Return the data of the trials, with the teacher's translations as targets.

    Translations that the data have already are kept.
    """
    if spec.teacher is None:
        return spec.data
    folder = spec.out / TEACHER_FOLDER
    soft_targets = (str(folder / SOFT_TARGETS_FOLDER / DISTILLED_PREFIX) if spec.teacher.top_k
                    else None)
    if spec.data.distilled:
        return spec.data.replace(soft_targets=soft_targets or spec.data.soft_targets)
    return spec.data.replace(distilled=str(folder / TRANSLATIONS_FOLDER / DISTILLED_PREFIX),
                             mix_distilled=spec.teacher.mix, soft_targets=soft_targets)


def run_teacher(teacher: Teacher, spec: StudySpec, runner: Runner,
                console: Console) -> TeacherFacts:
    """Train the teacher and write its data.

    Return the teacher's facts for the records.

    Raises:
        UserError: a job of the teacher failed.
        KeyboardInterrupt: progress is kept.
    """
    place = (spec.out / TEACHER_FOLDER).resolve()
    common: JobFile = {"data": spec.data.with_absolute_paths().model_dump(),
                       "threads": spec.resources.threads_per_trial, "nice": spec.resources.nice}

    def complete_job(folder: Path, job: JobFile, description: str) -> JobResult:
        if not (folder / RESULT_FILE).exists():
            write_json(folder / "job.json", {**common, **job})
            progress_file = ProgressFile(folder)

            def progress() -> tuple[str, float]:
                facts = progress_file.read()
                return describe_progress(facts) if facts else "starting", report_share(facts)

            with progress_display(description, progress, console):
                TeacherJobs([folder], runner, spec.attempts, JobResult).run_jobs()
        result = read_json(folder / RESULT_FILE, JobResult)
        if result.state != "complete":
            raise UserError(f"teacher: its training run failed: {result.reason}. Change its "
                            f"recipe, and start another study with {option('out')}", key="teacher",
                            code="teacher-failed")
        return result

    if teacher.recipe is not None:
        if not (place / "architecture.yaml").exists():
            write_text(place / "architecture.yaml", teacher.architectures[0].to_yaml())
        complete_job(place, {"cache": str(default_cache()), "recipe": teacher.recipe.model_dump(),
                             "seed": teacher.spec.seed}, f"the teacher ({teacher.id}) in training")
    folders = teacher.folders or (place,)
    distill_job: JobFile = {"teachers": [str(folder) for folder in folders],
                            "prefix": DISTILLED_PREFIX}
    decoding = {"beam": teacher.spec.beam, "length_penalty": teacher.spec.length_penalty}
    translations = None
    if teacher.translates:
        translations = complete_job(place / TRANSLATIONS_FOLDER,
                                    {**distill_job, "decoding": decoding},
                                    "the teacher translates the training text")
    if teacher.spec.top_k:
        pairs = distilled_data(spec).replace(soft_targets=None).with_absolute_paths().model_dump()
        complete_job(place / SOFT_TARGETS_FOLDER,
                     {**distill_job, "data": pairs, "cache": str(default_cache()),
                      "top_k": teacher.spec.top_k}, "the teacher computes soft targets")
    results = [read_json(folder / RESULT_FILE, Result) for folder in folders]
    scores = [{result.metrics["split"]: result.metrics,
               **({"test": result.metrics["test"]} if "test" in result.metrics else {})}
              for result in results]
    # of the splits on which all teachers were scored
    bleu = {split: fmean(by_split[split]["bleu"] for by_split in scores) for split in scores[0]
            if all(split in by_split for by_split in scores)}
    return {"architecture": teacher.id, "params": sum(result.n_params for result in results),
            "bleu": bleu, "decoding": results[0].metrics["decoding"],
            "seeds": [result.seed for result in results], "corpus": results[0].corpus_hash,
            "cpu_seconds": sum(result.total_cpu_seconds for result in results),
            "mix": teacher.spec.mix,
            **({"translations": {"pairs": translations.pairs, "decoding": translations.decoding,
                                 "cpu_seconds": translations.cpu_seconds}} if translations else {}),
            **({"top_k": teacher.spec.top_k} if teacher.spec.top_k else {})}


def learn_from_teacher(teacher: Teacher, spec: StudySpec, study: StudyDir, runner: Runner,
                       console: Console,
                       report_note: Callable[[str], object]) -> tuple[StudySpec, Corpora]:
    """Train the teacher; return the study with its translations as data, and their corpora.

    The records of ``study`` get the facts of the teacher. ``report_note`` receives the notes of the
    corpora.

    Raises:
        UserError: a job of the teacher failed, or finished trials have learned from other data.
        KeyboardInterrupt: progress is kept.
    """
    report = partial(print_text, console=console)
    report(f"Teacher: {teacher.describe()}")
    facts = run_teacher(teacher, spec, runner, console)
    spec = spec.replace(data=distilled_data(spec))
    corpora = load_corpora(spec, report_note)
    report(describe_teacher_facts(facts, spec.type))
    study.teacher_fields = {"data": msgspec.to_builtins(corpora.data_facts), "teacher": facts}
    check_same_translations(study, corpora.first.content_hash)
    return spec, corpora


class TeacherJobs(FolderJobs):
    """Jobs of a teacher."""

    def fail(self, job: TrainingJob, reason: str) -> None:
        """Stop the study, which needs its teacher."""
        raise UserError(f"teacher: {reason}", key="teacher", code="teacher-failed")


@contextmanager
def progress_display(description: str, progress: Callable[[], tuple[str, float]],
                     console: Console) -> Iterator[None]:
    """Show a progress bar on a terminal, or print one line elsewhere.

    Args:
        description: of the work.
        progress: returns a description of the progress, and the finished share.
        console: the terminal.
    """
    if not console.is_terminal:
        print_text(description, console)
        yield
        return

    def bar() -> Group:
        text, share = progress()
        return Group(f"{description}: {text}", ProgressBar(completed=100 * share, width=60))

    with Live(console=console, get_renderable=bar, refresh_per_second=2, transient=True):
        yield
    print_text(f"{description}: done", console)
