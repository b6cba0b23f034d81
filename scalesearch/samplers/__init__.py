"""Samplers by name; they work in any Optuna study.

To add a sampler, add a file and a line here; the contract tests then include it. Optuna is imported
when a sampler is made. This package may import pareto, feasible and, in two files, spaces.
"""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from scalesearch.errors import UserError
from scalesearch.library import load_entry_point
from scalesearch.pareto import Objective

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from scalesearch.samplers.candidate import DefineByRun
    from scalesearch.samplers.candidate_facts import FactsFunction
    from scalesearch.samplers.candidate_sampler import CandidateSampler
    from scalesearch.samplers.feasible_region import FeasibleRegion

ENTRY_POINT_GROUP = "scalesearch.samplers"
BUILT_IN_SAMPLERS = {"bayes": ("hypervolume_gp", "HypervolumeGP"),
                     "local": ("front_neighbors", "FrontNeighbors"),
                     "random": ("candidate_sampler", "RandomSampler"),
                     "grid": ("candidate_sampler", "GridSampler")}
OPTUNA_ALIASES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "tpe": ("TPESampler", {"n_startup_trials": 10, "constant_liar": True}),
    "nsga2": ("NSGAIISampler", {"population_size": 20}),
    "gp": ("GPSampler", {"n_startup_trials": 10}),
}
SAMPLER_NAMES = (*BUILT_IN_SAMPLERS, *OPTUNA_ALIASES)
_MODULE_BY_NAME = {class_name: module for module, class_name in BUILT_IN_SAMPLERS.values()} | {
    "CandidateSampler": "candidate_sampler",  # the base class of samplers of other packages
    "FeasibleRegion": "feasible_region", "CandidateFacts": "candidate_facts",
    "OptunaSamplerAdapter": "optuna_adapter", "decode_params": "encoding",
    "suggest_params": "encoding"}  # for studies that users create with Optuna
# other samplers of Optuna rank infeasible trials last, or ignore them
LEARN_FROM_INFEASIBLE = ("TPESampler",)
UNSUPPORTED_SAMPLERS = {
    "CmaEsSampler": "it stores its state in the Optuna study, which is lost on resume",
    "QMCSampler": "it stores its state in the Optuna study, which is lost on resume",
    "GridSampler": "use `grid`, which enumerates the space",
    "PartialFixedSampler": "fix parameters in the space"}

# Share of the remaining budget that `bayes` has in training at once. With more, many workers would
# spend most of a small budget before any result; chosen by benchmarks/replay.py.
MAX_IN_TRAINING = 0.25

_PLAIN_TYPES: Mapping[str, Any] = {"bool": bool, "int": int, "float": (int, float), "str": str,
                                   "None": type(None)}


@dataclass(frozen=True)
class SamplerSpec:
    """Name, arguments and seed of a sampler."""

    name: str = "bayes"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 1

    @property
    def max_in_training(self) -> float:
        """Share of the remaining budget that is in training at once."""
        default = MAX_IN_TRAINING if self.name == "bayes" else 1.0
        return float(self.arguments.get("max_in_training", default))


def make_sampler(spec: SamplerSpec | BaseSampler | Callable[[int], BaseSampler],
                 define: DefineByRun | None, facts: FactsFunction | None = None,
                 region: FeasibleRegion | None = None,
                 objectives: Sequence[Objective] | None = None,
                 rung_shares: Sequence[float] = (1.0,)) -> CandidateSampler:
    """Make a sampler.

    Args:
        spec: a spec, a sampler of Optuna or of a user, or a function from a seed to a sampler.
        define, facts, region, objectives, rung_shares: see
            :class:`scalesearch.samplers.candidate_sampler.CandidateSampler`.

    Raises:
        UserError: the name or an argument is unknown, an argument is invalid, or a package is
            missing.
    """
    from optuna.samplers import BaseSampler

    from scalesearch.samplers.candidate_sampler import CandidateSampler
    from scalesearch.samplers.optuna_adapter import OptunaSamplerAdapter

    if isinstance(spec, CandidateSampler):
        return spec
    context: dict[str, Any] = {"define": define, "facts": facts, "region": region,
                               "objectives": objectives, "rung_shares": rung_shares, "seed": 1}
    if isinstance(spec, SamplerSpec):
        sampler_class = _find_sampler(spec.name)
        context["seed"] = spec.seed
        defaults = OPTUNA_ALIASES[spec.name][1] if spec.name in OPTUNA_ALIASES else {}
        arguments = {**defaults, **spec.arguments}
        if isinstance(sampler_class, type) and issubclass(sampler_class, CandidateSampler):
            check_arguments(spec.name, sampler_class, arguments, context)
            return sampler_class(**context, **arguments)
        check_arguments(spec.name, sampler_class, arguments, ("seed",))
        name = sampler_class.__name__
        accepted = inspect.signature(sampler_class).parameters

        def make_inner(seed: int) -> BaseSampler:
            # independent sampling of conditional parameters is intended
            values = {"seed": seed, "warn_independent_sampling": False}
            values = {key: value for key, value in values.items() if key in accepted}
            with warnings.catch_warnings():
                # the user has chosen an experimental sampler
                warnings.simplefilter("ignore")
                return sampler_class(**{**values, **arguments})
    else:
        name = type(spec).__name__
        arguments = {}
        make_inner = (lambda seed: spec) if isinstance(spec, BaseSampler) else spec
    try:
        return OptunaSamplerAdapter(make_inner,
                                    learns_from_infeasible=name in LEARN_FROM_INFEASIBLE,
                                    n_startup_trials=arguments.get("n_startup_trials"), **context)
    except (TypeError, ValueError, ImportError) as error:
        raise UserError(f"sampler {name}: {error}", code="bad-argument") from None


def _find_sampler(name: str) -> Any:
    """Return the class or factory of a sampler.

    It is built-in, of Optuna, or of an installed package.
    """
    from optuna import samplers

    if name in BUILT_IN_SAMPLERS:
        module, class_name = BUILT_IN_SAMPLERS[name]
        return getattr(import_module(f"{__name__}.{module}"), class_name)
    name = OPTUNA_ALIASES[name][0] if name in OPTUNA_ALIASES else name
    if name in UNSUPPORTED_SAMPLERS:
        raise UserError(f"sampler {name}: {UNSUPPORTED_SAMPLERS[name]}", code="sampler-unsupported")
    optuna_names = [optuna_name for optuna_name in samplers.__all__
                    if optuna_name.endswith("Sampler") and not optuna_name.startswith("Base")]
    if name in optuna_names:
        return getattr(samplers, name)
    registered = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name in registered:
        return load_entry_point(registered[name])
    names = [*SAMPLER_NAMES, *registered,
             *(other for other in optuna_names if other not in UNSUPPORTED_SAMPLERS)]
    raise UserError(f"unknown sampler `{name}`", help=_suggest_name(name, names),
                    code="unknown-sampler")


def check_arguments(name: str, sampler_class: Callable[..., Any], arguments: Mapping[str, Any],
                    reserved: Iterable[str]) -> None:
    """Check that ``sampler_class`` accepts ``arguments``.

    Args:
        name: name of the sampler.
        sampler_class: its class or factory.
        arguments: arguments in the study file.
        reserved: names that a study file may not set.

    Raises:
        UserError: an argument is unknown, missing, or has the wrong type.
    """
    accepted = {key: parameter
                for key, parameter in _parameters(sampler_class).items() if key not in reserved}
    for key, value in arguments.items():
        if key not in accepted:
            raise UserError(f"sampler {name}: unknown argument `{key}`",
                            help=_suggest_name(key, accepted), code="unknown-argument")
        annotation = str(accepted[key].annotation)
        words = [word.strip() for word in annotation.split("|")]
        fits = any(isinstance(value, _PLAIN_TYPES[word]) for word in words if word in _PLAIN_TYPES)
        fits = fits and (not isinstance(value, bool) or "bool" in words)
        is_plain = isinstance(value, bool | int | float | str | None)
        if is_plain and "_empty" not in annotation and not fits:  # objects always match
            raise UserError(f"sampler {name}: {key} is {annotation}, not {value!r}",
                            code="bad-argument")
    missing = [key for key, parameter in accepted.items()
               if parameter.default is parameter.empty and key not in arguments]
    if missing:
        raise UserError(f"sampler {name}: missing argument: {', '.join(missing)}",
                        code="argument-missing")


def _parameters(sampler_class: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the named parameters of a constructor and of its base classes."""
    parameters: dict[str, inspect.Parameter] = {}
    classes = sampler_class.__mro__ if isinstance(sampler_class, type) else (sampler_class,)
    for function in classes:
        signature = inspect.signature(function)
        parameters |= {
            key: parameter for key, parameter in signature.parameters.items()
            if key not in parameters
            and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)}
        if not any(parameter.kind == parameter.VAR_KEYWORD
                   for parameter in signature.parameters.values()):
            break
    return parameters


def _suggest_name(name: str, candidates: Iterable[str]) -> str:
    names = list(candidates)
    matches = [other for other in names if other.lower() == name.lower()]
    matches = matches or difflib.get_close_matches(name, names, 1)
    if matches:
        return f"did you mean `{matches[0]}`?"
    return f"available: {', '.join(names) or 'none'}"


def __getattr__(name: str) -> Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return getattr(import_module(f"{__name__}.{_MODULE_BY_NAME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_BY_NAME})
