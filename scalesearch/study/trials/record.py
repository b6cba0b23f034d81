"""A trial's record: everything one needs to believe its numbers, and to make them again."""

from collections.abc import Mapping
from typing import Any, TypedDict

from scalesearch.study.trials.trial import Numbers, Params, Trial
from scalesearch.tasks import METRICS
from scalesearch.train.recipe_space import override_keys
from scalesearch.train.result import Result, package_versions

# packages whose versions a study's records hold beside the trainer's
SEARCH_PACKAGES = ("optuna", "ray")


class JobFile(TypedDict, total=False):
    """What ``job.json`` says: a training, or a teacher's translating or, with ``top``, softening of the training text.

    ``rung`` and ``until`` (a share of a full training) are of a trial that pauses; ``job`` and
    ``of`` of a replicate.
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


class Translations(TypedDict):
    """A teacher's translations of the training text, decoded by ``decoding``."""

    pairs: int
    decoding: str
    cpu_seconds: float


class TeacherFacts(TypedDict, total=False):
    """A teacher, as the records of its pupils hold it; ``bleu`` by split.

    Of several that translate together, ``architecture`` has the ids of all, ``params`` and
    ``cpu_seconds`` are sums, and ``bleu`` is the mean of what each has alone.
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


# what is a number among the metrics
SCORE_NAMES = {name for metric in METRICS for name in (metric, f"test.{metric}")}


class Record(TypedDict, total=False):
    """What is read of ``record.json``, which holds the trial's, the study's and the training's fields side by side."""

    trial: int
    state: str
    values: Numbers | None
    metrics: Params
    curve: list[Params]
    data: Params
    recipe: Params
    seed: int
    processes: int
    teacher: TeacherFacts | None


def make_record(trial: Trial, shared: Mapping[str, Any], result: Result | None) -> dict[str, Any]:
    """Record of a trained or failed trial: its JSON, its study's, its training's.

    Args:
        trial: as it ended.
        shared: what all trials of the study share (:attr:`StudyMeta.shared`).
        result: what training left; None where its worker died.
    """
    training = result.to_json() if result else {}
    for name in ("state", "reason", "params"):  # the trial has its own
        training.pop(name, None)
    own = {"recipe": override_keys(shared["recipe"],
                                   trial.recipe_params)} if trial.recipe_params else {}
    return {**training, **shared, "data": data_of(trial, shared), **own, **trial.to_json(),
            "seed": trial.seed or shared["study_seed"],
            "versions": {**package_versions(*SEARCH_PACKAGES), **training.get("versions", {})}}


def data_of(trial: Trial, shared: Mapping[str, Any]) -> Mapping[str, Any]:
    """Facts of the corpus that ``trial`` learns from: the study's text, in the vocabulary of its own if it has one."""
    data: Mapping[str, Any] = shared.get("data", {})
    vocab = trial.config.get("vocab")
    hashes = data.get("corpora")
    return {**data, "vocab": vocab, "hash": hashes.get(str(vocab))} if vocab and hashes else data


def describe_teacher_facts(facts: TeacherFacts) -> str:
    """Describes a teacher in a line: its name, its score, its effort.

    ``facts`` are as in records.
    """
    scored = ", ".join(f"{bleu:.1f} on {split}" for split, bleu in facts["bleu"].items())
    made = facts["translations"]
    mixed = ", and from the real pairs" if facts["mix"] else ""
    mixed += f", with its {facts['top_k']} likeliest tokens at every place" if facts.get(
        "top_k") else ""
    several = len(facts["seeds"])
    alone = f" each alone in the mean of {several}" if several > 1 else ""
    return (f"Teacher: {facts['architecture']}, {facts['params']:,} params, BLEU {scored}{alone} "
            f"({facts['decoding']}), {facts['cpu_seconds'] / 60:.1f} CPU-minutes; candidates learned "
            f"from its translations of {made['pairs']:,} sentences ({made['decoding']}, "
            f"{made['cpu_seconds'] / 60:.1f} CPU-minutes){mixed}.")
