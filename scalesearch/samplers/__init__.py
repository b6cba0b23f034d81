"""Samplers that work in any Optuna study, by name. Imports pareto, feasible and, in three files, space; never study.

A new sampler is a file and a line here; the contract tests then hold for it, too. Optuna is imported when one is made.
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

    from scalesearch.samplers.base import SheetSampler
    from scalesearch.samplers.feasible_region import FeasibleRegion
    from scalesearch.samplers.known import Knows
    from scalesearch.samplers.sheet import Define

ENTRY_POINTS = "scalesearch.samplers"
OURS = {"bayes": ("hypervolume_gp", "HypervolumeGP"), "local": ("front_neighbours", "FrontNeighbours"),
        "random": ("uninformed", "RandomDraws"), "grid": ("uninformed", "Grid")}
SHORT: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "tpe": ("TPESampler", {"n_startup_trials": 10, "constant_liar": True}),
    "nsga2": ("NSGAIISampler", {"population_size": 20}),
    "gp": ("GPSampler", {"n_startup_trials": 10}),
}
NAMES = (*OURS, *SHORT)
_CLASSES = {kind: module for module, kind in OURS.values()} | {
    "FeasibleRegion": "feasible_region", "Known": "known", "Wrapped": "wrapped", "decode": "encoding",
    "suggest": "encoding"}  # for a study of Optuna's own
LEARN_FROM_INFEASIBLE = ("TPESampler",)  # others of Optuna's rank what is infeasible last, or leave it out
REFUSED = {"CmaEsSampler": "it keeps its state in the study, which a study that is resumed does not have",
           "QMCSampler": "it keeps its place in the study, which a study that is resumed does not have",
           "GridSampler": "take `grid`, which knows the space", "PartialFixedSampler": "fix parameters in the space"}


@dataclass(frozen=True)
class SamplerSpec:
    """Who proposes: a name, and what its constructor is given."""

    name: str = "bayes"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 1


def make_sampler(spec: SamplerSpec | BaseSampler | Callable[[int], BaseSampler], define: Define | None,
                 known: Knows | None = None, region: FeasibleRegion | None = None,
                 objectives: Sequence[Objective] | None = None, shares: Sequence[float] = (1.0,)) -> SheetSampler:
    """The sampler of a spec, or one of Optuna's or a user's (or what makes one from a seed) over ``define``.

    Args:
        define, known, region, objectives, shares: see :class:`scalesearch.samplers.base.SheetSampler`.

    Raises:
        UserError: there is none of that name, it lacks a library, or an argument is unknown or wrong.
    """
    from optuna.samplers import BaseSampler

    from scalesearch.samplers.base import SheetSampler

    context: dict[str, Any] = {"define": define, "known": known, "region": region, "objectives": objectives,
                               "shares": shares, "seed": 1}
    if isinstance(spec, SheetSampler):
        return spec
    if not isinstance(spec, SamplerSpec):
        make = (lambda seed: spec) if isinstance(spec, BaseSampler) else spec
        return _wrapped(make, type(spec).__name__, {}, context)
    kind, context["seed"] = _find(spec.name), spec.seed
    given = {**(SHORT[spec.name][1] if spec.name in SHORT else {}), **spec.arguments}
    if isinstance(kind, type) and issubclass(kind, SheetSampler):
        check_arguments(spec.name, kind, given, context)
        return kind(**context, **given)
    check_arguments(spec.name, kind, given, ("seed",))
    return _wrapped(partial(_inner, kind, given), kind.__name__, given, context)


def _inner(kind: Callable[..., BaseSampler], given: Mapping[str, Any], seed: int) -> BaseSampler:
    """A sampler of Optuna's or a user's, with ``seed`` where it takes one."""
    own = {"seed": seed, "warn_independent_sampling": False}  # what is conditional is sampled so on purpose
    takes = inspect.signature(kind).parameters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is experimental in Optuna is the business of whoever chose it
        return kind(**{**{name: value for name, value in own.items() if name in takes}, **given})


def _wrapped(make: Callable[[int], BaseSampler], name: str, given: Mapping[str, Any], context: Mapping[str, Any]
             ) -> SheetSampler:
    from scalesearch.samplers.wrapped import Wrapped

    try:
        return Wrapped(make, learns_from_infeasible=name in LEARN_FROM_INFEASIBLE,
                       n_startup_trials=given.get("n_startup_trials"), **context)
    except (TypeError, ValueError, ImportError) as error:
        raise UserError(f"sampler {name}: {error}", code="bad-argument") from None


def _find(name: str) -> Any:
    """The class or factory of that name: ours, Optuna's, or what an installed package registers."""
    from optuna import samplers

    if name in OURS:
        module, kind = OURS[name]
        return getattr(import_module(f"{__name__}.{module}"), kind)
    name = SHORT[name][0] if name in SHORT else name
    if name in REFUSED:
        raise UserError(f"sampler {name}: {REFUSED[name]}", code="sampler-unfit")
    theirs = [one for one in samplers.__all__ if one.endswith("Sampler") and not one.startswith("Base")]
    if name in theirs:
        return getattr(samplers, name)
    registered = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name in registered:
        return registered[name].load()
    there = (*NAMES, *(one for one in theirs if one not in REFUSED), *registered)
    raise UserError(f"there is no sampler `{name}`", help=_meant(name, there), code="unknown-sampler")


def check_arguments(name: str, kind: Callable[..., Any], given: Mapping[str, Any], ours: Iterable[str]) -> None:
    """Checks that ``kind`` takes ``given``; ``ours`` are not for a study file to give. Raises UserError."""
    takes = {key: parameter for key, parameter in _parameters(kind).items() if key not in ours}
    for key, value in given.items():
        if key not in takes:
            raise UserError(f"sampler {name}: there is no argument `{key}`",
                            help=_meant(key, takes), code="unknown-argument")
        if not _is_a(value, wanted := str(takes[key].annotation)):
            raise UserError(f"sampler {name}: {key} is {wanted}, not {value!r}", code="bad-argument")
    missing = [key for key, one in takes.items() if one.default is one.empty and key not in given]
    if missing:
        raise UserError(f"sampler {name}: it needs {', '.join(missing)}", code="argument-missing")


def _parameters(kind: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The named parameters of a constructor, those that it passes on to its base included."""
    found: dict[str, inspect.Parameter] = {}
    for one in kind.__mro__ if isinstance(kind, type) else (kind,):
        signature = inspect.signature(one)
        found |= {key: parameter for key, parameter in signature.parameters.items()
                  if key not in found and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)}
        if not any(parameter.kind == parameter.VAR_KEYWORD for parameter in signature.parameters.values()):
            break
    return found


_PLAIN: Mapping[str, Any] = {"bool": bool, "int": int, "float": (int, float), "str": str, "None": type(None)}


def _is_a(value: Any, annotation: str) -> bool:
    """Whether a value that a file can hold is what an annotation says; of an object nothing is said."""
    if "_empty" in annotation or not isinstance(value, bool | int | float | str | None):
        return True
    words = [word.strip() for word in annotation.split("|")]
    fits = any(isinstance(value, _PLAIN[word]) for word in words if word in _PLAIN)
    return fits and (not isinstance(value, bool) or "bool" in words)


def _meant(name: str, there: Iterable[str]) -> str:
    names = list(there)
    same = [one for one in names if one.lower() == name.lower()] or difflib.get_close_matches(name, names, 1)
    return f"did you mean `{same[0]}`?" if same else f"there are {', '.join(names) or 'none'}"


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return getattr(import_module(f"{__name__}.{_CLASSES[name]}"), name)
