"""Conflicts between keys of a study file: of vocabularies and lengths, and of a rule that nobody can foretell by."""

from collections.abc import Container, Iterable, Iterator

from scalesearch.pareto.objective import Objective
from scalesearch.space.schema.cost_names import OWN_VOCABULARY
from scalesearch.study.config.spec import CORPUS_WORD, StudySpec
from scalesearch.tasks import PER_TOKEN_METRICS, TASKS

GAIN_FORECASTER = "bayes"
Conflict = tuple[str, str, str]  # key, what is wrong, what would be right


def find_conflicts(spec: StudySpec, objectives: Iterable[Objective],
                   given_keys: Container[str]) -> Iterator[Conflict]:
    """What does not go together; ``spec`` has its space, and ``given_keys`` holds the keys that the file gives."""
    if spec.vocab == OWN_VOCABULARY:
        yield from _of_own(spec, objectives, given_keys)
    if spec.stop and spec.sampler.name not in ("", GAIN_FORECASTER):
        yield "stop", f"`{spec.sampler.name}` foretells no gain", f"remove one of the two, or take `{GAIN_FORECASTER}`"
    if spec.protocol.get("lengths") == CORPUS_WORD:
        for key in ("source", "target"):
            if f"protocol.{key}" in given_keys:
                yield f"protocol.{key}", "`lengths: corpus` says how long the sentences are", "remove one of the two"
        if spec.data and TASKS[spec.data.task].file_format == "text":
            yield "protocol.lengths", f"the windows of {spec.data.task} are no sentences", "give `source` and `target`"


def _of_own(spec: StudySpec, objectives: Iterable[Objective],
            given: Container[str]) -> Iterator[Conflict]:
    has = "the space's architectures have vocabularies of their own, under `vocab`"
    for key in ("data.vocab", "data.tokenizer", "protocol.vocab"):
        if key in given and not (key == "protocol.vocab"
                                 and spec.protocol.get("vocab") == CORPUS_WORD):
            yield key, has, "remove it here, or there"
    if spec.teacher:
        yield "teacher", f"{has}, and a teacher has one", (
            "have it translate with `scalesearch " "distill`, and name what that writes "
            "under data: distilled")
    for one in objectives:
        if one.name in PER_TOKEN_METRICS:
            yield f"objectives.{one.name}", f"`{one.name}` is of tokens, and {has}", "`loss_per_char` compares them"
