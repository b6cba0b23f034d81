"""Record of a trial: all that is needed to check and reproduce its results."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

import msgspec

from scalesearch.studies.config.fixed_architectures import COMPRESS
from scalesearch.studies.trials.trial import Numbers, Params, Trial
from scalesearch.tasks import METRICS
from scalesearch.terminal import format_count
from scalesearch.training.recipe_space import override_keys
from scalesearch.training.result import Result, package_versions

# packages whose versions are recorded in addition to those of the trainer
SEARCH_PACKAGES = ("optuna", "ray")


class BlocksJob(TypedDict, total=False):
    """Replacements of the blocks of one layer, or combinations of them to measure."""

    parent: str
    stack: str
    layer: int
    alternatives: list[Params]
    fit: Params
    combinations: list[list[Params]]


class JobFile(TypedDict, total=False):
    """Content of ``job.json``.

    A job is a training run, or a distillation run of teachers: with ``top_k``, soft targets,
    otherwise translations. With ``blocks``, it makes replacements of blocks. A training run with
    ``initial_model`` starts from the weights in this folder. A trial with rungs has ``rung`` and
    ``until_share``, a share of a full-budget run. A replicate has ``origin`` and ``original``.
    """

    trial: int
    attempt: int
    data: Params
    cache: str
    recipe: Params
    seed: int
    threads: int
    nice: int
    processes: int
    proxies: bool
    rung: int
    until_share: float
    origin: str
    original: int | None
    teachers: list[str]
    prefix: str
    decoding: Params
    top_k: int
    blocks: BlocksJob
    initial_model: str


@dataclass(frozen=True)
class JobResult:
    """The fields of a job's ``result.json`` that do not belong to one type of job."""

    state: str
    reason: str = ""
    pairs: int = 0
    decoding: str = ""
    cpu_seconds: float = 0.0


class Translations(TypedDict):
    """Translations of the training text by a teacher."""

    pairs: int
    decoding: str
    cpu_seconds: float


class TeacherFacts(TypedDict, total=False):
    """Teacher in the records of its students; ``bleu`` is by split.

    For an ensemble, ``architecture`` has the ids of all members, ``params`` and ``cpu_seconds`` are
    sums, and ``bleu`` is the mean over members. Without ``translations``, its students learn from
    those in the data.
    """

    architecture: str
    params: int
    bleu: Numbers
    decoding: str
    seeds: list[int]
    corpus: str
    cpu_seconds: float
    translations: Translations
    mix: bool
    top_k: int


# metrics that are numbers
SCORE_NAMES = {name for metric in METRICS for name in (metric, f"test.{metric}")}


class Record(TypedDict, total=False):
    """Fields of ``record.json`` that are read again.

    It also holds all fields of the trial.
    """

    trial: int
    state: str
    values: Numbers | None
    seconds: float
    cpu_seconds: float
    metrics: Params
    curve: list[Params]
    data: Params
    recipe: Params
    seed: int
    processes: int
    teacher: TeacherFacts | None


def make_record(trial: Trial, shared: Mapping[str, Any], result: Result | None) -> dict[str, Any]:
    """Return the record of a complete or failed trial.

    Args:
        trial: the trial at its end.
        shared: common fields of the study, see :attr:`StudyMeta.record_fields`.
        result: result of the training run; None if its worker died.
    """
    training = asdict(result) if result else {}
    for name in ("state", "reason", "params"):  # the trial has its own
        training.pop(name, None)
    own = {"recipe": override_keys(shared["recipe"],
                                   trial.recipe_params)} if trial.recipe_params else {}
    return {**training, **shared, "data": data_of(trial, shared), **own,
            **msgspec.to_builtins(trial), "seed": trial.seed or shared["study_seed"],
            "versions": {**package_versions(*SEARCH_PACKAGES), **training.get("versions", {})}}


def data_of(trial: Trial, shared: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the facts of the corpus of a trial, with its own vocabulary if any."""
    data: Mapping[str, Any] = shared.get("data", {})
    vocab = trial.config.get("vocab")
    hashes = data.get("corpora")
    return {**data, "vocab": vocab, "hash": hashes.get(str(vocab))} if vocab and hashes else data


def describe_teacher_facts(facts: TeacherFacts, study_type: str) -> str:
    """Describe a teacher, or the parent of a compression: architecture, scores and compute."""
    scores = ", ".join(f"{bleu:.1f} ({split})" for split, bleu in facts["bleu"].items())
    translations = facts.get("translations")
    learned = "the translations in the data" if translations is None else (
        f"its translations of {translations['pairs']:,} sentences "
        f"({translations['decoding']}, {translations['cpu_seconds'] / 60:.1f} CPU-minutes)")
    extras = ", and on the real pairs" if facts["mix"] else ""
    if facts.get("top_k"):
        extras += f", with its {format_count(facts['top_k'], 'most probable token')} per position"
    n_members = len(facts["seeds"])
    members = f", mean of {n_members} members" if n_members > 1 else ""
    role = "Parent" if study_type == COMPRESS else "Teacher"
    return (f"{role}: {facts['architecture']}, {facts['params']:,} params, BLEU {scores}{members} "
            f"({facts['decoding']}), {facts['cpu_seconds'] / 60:.1f} CPU-minutes; candidates are "
            f"trained on {learned}{extras}.")
