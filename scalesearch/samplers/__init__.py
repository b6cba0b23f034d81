"""Who proposes, by name. A new proposer is a file and a line here; the contract tests then hold for it, too."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from scalesearch.errors import UserError
from scalesearch.samplers.base import Askable, Feasible, Proposer, Settings
from scalesearch.samplers.history import Goal

PROPOSERS = {
    "tpe": ("optuna_samplers", "TPE"), "nsga2": ("optuna_samplers", "NSGA2"), "gp": ("optuna_samplers", "GP"),
    "random": ("random", "RandomDraws"), "grid": ("grid", "Grid"), "local": ("front_neighbours", "Local"),
    "bayes": ("hypervolume_gp", "Bayes"),
}


def make_proposer(space: Askable, limits: Sequence[str], goals: Sequence[Goal], settings: Settings,
                  region: Feasible | None = None) -> Proposer:
    """The proposer ``settings.kind``.

    Raises:
        UserError: there is none of that name, or it lacks a library.
    """
    if settings.kind not in PROPOSERS:
        raise UserError(f"there is no proposer `{settings.kind}`; there are {', '.join(PROPOSERS)}")
    module, name = PROPOSERS[settings.kind]
    kind: type[Proposer] = getattr(import_module(f"{__name__}.{module}"), name)
    return kind(space, limits, goals, settings, region)
