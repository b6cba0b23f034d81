"""A candidate's record: everything one needs to believe its numbers, and to make them again."""

from collections.abc import Mapping
from typing import Any

from scalesearch.study.trials.trials import SEED, Trial
from scalesearch.train.result import versions

SEARCHERS = ("optuna", "ray")  # packages whose versions a study's records hold beside the trainer's


def make_record(
    trial: Trial, answers: Mapping[str, Any], facts: Mapping[str, Any], result: Mapping[str, Any]
) -> dict[str, Any]:
    """The record of a trained or failed candidate.

    Args:
        trial: as it ended, with its values.
        answers: of its architecture.
        facts: what all candidates of the study share: study, space, protocol, objectives, recipe, seed, data.
        result: what training left, as JSON; empty where its worker died.
    """
    return {
        "trial": trial.number,
        "state": trial.state,
        "reason": trial.reason,
        "origin": trial.origin,
        **({"of": trial.of} if trial.origin == SEED else {}),
        "label": trial.label,
        "in_space": trial.in_space,
        "architecture": {"id": trial.id, "answers": dict(answers)},
        "asked": trial.params,
        "cost": trial.cost,
        "slacks": trial.slacks,
        "feasible": trial.feasible,
        "values": trial.values,
        **facts,
        **({"seed": trial.seed} if trial.origin == SEED else {}),
        "attempts": trial.attempts,
        "crashes": trial.crashes,
        "versions": versions(*SEARCHERS),
        **{key: value for key, value in result.items() if key not in ("state", "reason")},
    }


def rejected_record(trial: Trial) -> dict[str, Any]:
    """What is known of a proposal that was never trained: infeasible, or the repetition of another."""
    return {
        "trial": trial.number,
        "state": trial.state,
        "reason": trial.reason,
        "origin": trial.origin,
        "label": trial.label,
        "in_space": trial.in_space,
        "architecture": {"id": trial.id, "answers": trial.answers or trial.params},
        "cost": trial.cost,
        "slacks": trial.slacks,
        "feasible": trial.feasible,
        "of": trial.of,
        "values": trial.values,
    }
