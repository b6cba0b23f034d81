"""Samplers that work in any Optuna study, by name.

Imports pareto, feasible and, in three files, space; never study.

A new sampler is a file and a line here; the contract tests then hold for it, too. Optuna is
imported when one is made.
"""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from scalesearch.errors import UserError
from scalesearch.pareto.objective import Objective

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from scalesearch.samplers.candidate import DefineByRun
    from scalesearch.samplers.candidate_facts import FactsFunction
    from scalesearch.samplers.candidate_sampler import CandidateSampler
    from scalesearch.samplers.feasible_region import FeasibleRegion

ENTRY_POINT_GROUP = "scalesearch.samplers"
BUILT_IN_SAMPLERS = {"bayes": ("hypervolume_gp", "HypervolumeGP"),
                     "local": ("front_neighbors", "FrontNeighbors"),
                     "random": ("baselines", "RandomSampler"), "grid": ("baselines", "GridSampler")}
OPTUNA_ALIASES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "tpe": ("TPESampler", {"n_startup_trials": 10, "constant_liar": True}),
    "nsga2": ("NSGAIISampler", {"population_size": 20}),
    "gp": ("GPSampler", {"n_startup_trials": 10}),
}
SAMPLER_NAMES = (*BUILT_IN_SAMPLERS, *OPTUNA_ALIASES)
_MODULE_BY_NAME = {kind: module for module, kind in BUILT_IN_SAMPLERS.values()} | {
    "FeasibleRegion": "feasible_region", "CandidateFacts": "candidate_facts",
    "OptunaSamplerAdapter": "optuna_adapter", "decode_params": "encoding",
    "suggest_params": "encoding"}  # for studies that users create with Optuna
# others of Optuna's rank what is infeasible last, or leave it out
LEARN_FROM_INFEASIBLE = ("TPESampler",)
UNSUPPORTED_SAMPLERS = {"CmaEsSampler": "it keeps its state in the study, which a study that is "
                        "resumed does not have",
                        "QMCSampler": "it keeps its place in the study, "
                        "which a study that is resumed does not have",
                        "GridSampler": "take `grid`, which knows the space",
                        "PartialFixedSampler": "fix parameters in the space"}


@dataclass(frozen=True)
class SamplerSpec:
    """Who proposes: a name, and what its constructor is given."""

    name: str = "bayes"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 1


def make_sampler(spec: SamplerSpec | BaseSampler | Callable[[int], BaseSampler],
                 define: DefineByRun | None, facts: FactsFunction | None = None,
                 region: FeasibleRegion | None = None,
                 objectives: Sequence[Objective] | None = None,
                 rung_shares: Sequence[float] = (1.0,)) -> CandidateSampler:
    """The sampler of a spec, or one of Optuna's or a user's (or what makes one from a seed) over ``define``.

    Args:
        define, facts, region, objectives, rung_shares: see
            :class:`scalesearch.samplers.candidate_sampler.CandidateSampler`.

    Raises:
        UserError: there is none of that name, it lacks a library, or an argument is unknown or
            wrong.
    """
    from optuna.samplers import BaseSampler

    from scalesearch.samplers.candidate_sampler import CandidateSampler

    context: dict[str, Any] = {"define": define, "facts": facts, "region": region,
                               "objectives": objectives, "rung_shares": rung_shares, "seed": 1}
    if isinstance(spec, CandidateSampler):
        return spec
    if not isinstance(spec, SamplerSpec):
        make = (lambda seed: spec) if isinstance(spec, BaseSampler) else spec
        return _make_adapter(make, type(spec).__name__, {}, context)
    kind, context["seed"] = _find_sampler(spec.name), spec.seed
    given = {**(OPTUNA_ALIASES[spec.name][1] if spec.name in OPTUNA_ALIASES else {}),
             **spec.arguments}
    if isinstance(kind, type) and issubclass(kind, CandidateSampler):
        check_arguments(spec.name, kind, given, context)
        return kind(**context, **given)
    check_arguments(spec.name, kind, given, ("seed",))
    return _make_adapter(partial(_make_inner, kind, given), kind.__name__, given, context)


def _make_inner(kind: Callable[..., BaseSampler], given: Mapping[str, Any],
                seed: int) -> BaseSampler:
    """A sampler of Optuna's or a user's, with ``seed`` where it takes one."""
    # what is conditional is sampled so on purpose
    own = {"seed": seed, "warn_independent_sampling": False}
    takes = inspect.signature(kind).parameters
    with warnings.catch_warnings():
        # what is experimental in Optuna is the business of whoever chose it
        warnings.simplefilter("ignore")
        return kind(**{**{name: value for name, value in own.items() if name in takes}, **given})


def _make_adapter(make: Callable[[int], BaseSampler], name: str, given: Mapping[str, Any],
                  context: Mapping[str, Any]) -> CandidateSampler:
    from scalesearch.samplers.optuna_adapter import OptunaSamplerAdapter

    try:
        return OptunaSamplerAdapter(make, learns_from_infeasible=name in LEARN_FROM_INFEASIBLE,
                       n_startup_trials=given.get("n_startup_trials"), **context)
    except (TypeError, ValueError, ImportError) as error:
        raise UserError(f"sampler {name}: {error}", code="bad-argument") from None


def _find_sampler(name: str) -> Any:
    """The class or factory of that name: ours, Optuna's, or what an installed package registers."""
    from optuna import samplers

    if name in BUILT_IN_SAMPLERS:
        module, kind = BUILT_IN_SAMPLERS[name]
        return getattr(import_module(f"{__name__}.{module}"), kind)
    name = OPTUNA_ALIASES[name][0] if name in OPTUNA_ALIASES else name
    if name in UNSUPPORTED_SAMPLERS:
        raise UserError(f"sampler {name}: {UNSUPPORTED_SAMPLERS[name]}", code="sampler-unsupported")
    theirs = [one
              for one in samplers.__all__ if one.endswith("Sampler") and not one.startswith("Base")]
    if name in theirs:
        return getattr(samplers, name)
    registered = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name in registered:
        return registered[name].load()
    there = (*SAMPLER_NAMES, *(one for one in theirs if one not in UNSUPPORTED_SAMPLERS),
             *registered)
    raise UserError(f"there is no sampler `{name}`", help=_suggest_name(name, there),
                    code="unknown-sampler")


def check_arguments(name: str, sampler_class: Callable[..., Any], arguments: Mapping[str, Any],
                    reserved: Iterable[str]) -> None:
    """Check that ``sampler_class`` takes ``arguments``; a study file may not set ``reserved``.

    Raises UserError.
    """
    takes = {key: parameter
             for key, parameter in _parameters(sampler_class).items() if key not in reserved}
    for key, value in arguments.items():
        if key not in takes:
            raise UserError(f"sampler {name}: there is no argument `{key}`",
                            help=_suggest_name(key, takes), code="unknown-argument")
        if not _matches_annotation(value, wanted := str(takes[key].annotation)):
            raise UserError(f"sampler {name}: {key} is {wanted}, not {value!r}",
                            code="bad-argument")
    missing = [key
               for key, one in takes.items() if one.default is one.empty and key not in arguments]
    if missing:
        raise UserError(f"sampler {name}: it needs {', '.join(missing)}", code="argument-missing")


def _parameters(kind: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The named parameters of a constructor, those that it passes on to its base included."""
    found: dict[str, inspect.Parameter] = {}
    for one in kind.__mro__ if isinstance(kind, type) else (kind,):
        signature = inspect.signature(one)
        found |= {key: parameter
                  for key, parameter in signature.parameters.items()
                  if key not in found
                  and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)}
        if not any(parameter.kind == parameter.VAR_KEYWORD
                   for parameter in signature.parameters.values()):
            break
    return found


_PLAIN_TYPES: Mapping[str, Any] = {"bool": bool, "int": int, "float": (int, float), "str": str,
                                   "None": type(None)}


def _matches_annotation(value: Any, annotation: str) -> bool:
    """Whether a value that a file can hold is what an annotation says; of an object nothing is said."""
    if "_empty" in annotation or not isinstance(value, bool | int | float | str | None):
        return True
    words = [word.strip() for word in annotation.split("|")]
    fits = any(isinstance(value, _PLAIN_TYPES[word]) for word in words if word in _PLAIN_TYPES)
    return fits and (not isinstance(value, bool) or "bool" in words)


def _suggest_name(name: str, candidates: Iterable[str]) -> str:
    names = list(candidates)
    same = [one for one in names if one.lower() == name.lower()] or difflib.get_close_matches(
        name, names, 1)
    return f"did you mean `{same[0]}`?" if same else f"there are {', '.join(names) or 'none'}"


def __getattr__(name: str) -> Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return getattr(import_module(f"{__name__}.{_MODULE_BY_NAME[name]}"), name)
