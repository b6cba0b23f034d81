"""Bayesian optimization in which some objectives and constraints are known exactly before a trial runs."""

from scalesearch.samplers.candidate_facts import CandidateFacts
from scalesearch.samplers.hypervolume_gp import HypervolumeGP


class ExactCostBayes(HypervolumeGP):
    """Proposes what brings most expected hypervolume, given what is exact; see README.md."""


__all__ = ["ExactCostBayes", "CandidateFacts"]
