"""A trial's record: everything one needs to believe its numbers, and to make them again."""

from collections.abc import Mapping
from typing import Any

from scalesearch.study.trials.trial import Trial
from scalesearch.train.result import versions

SEARCHERS = ("optuna", "ray")  # packages whose versions a study's records hold beside the trainer's


def make_record(trial: Trial, shared: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Record of a trained or failed trial: its JSON, its study's, its training's.

    Args:
        trial: as it ended.
        shared: what all trials of the study share (:attr:`StudyMeta.shared`).
        result: what training left, as JSON; empty where its worker died.
    """
    of_training = {key: value for key, value in result.items() if key not in ("state", "reason", "params")}
    return {**of_training, **shared, **trial.to_json(), "seed": trial.seed or shared["study_seed"],
            "versions": {**versions(*SEARCHERS), **of_training.get("versions", {})}}
