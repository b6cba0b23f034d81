"""Keys of a study file that hold keys of their own.

::

    # at most three seeds per candidate, and six more training runs in total
    seeds: {max_per_candidate: 3, extra_runs: 6, confidence: 0.9}
    seeds: 3                        # the same, with half as many runs as `trials`
    seeds: {max_per_candidate: 1, references: 3}     # each reference is trained three times

    teacher: runs/big               # a finished training run; or {folder: runs/big, mix: yes}
    teacher: [runs/a, runs/b]       # several, which translate together
    # a teacher that is trained once, before the candidates
    teacher: {file: transformer, set: {encoder.depth: 6}, recipe: {cpu_minutes: 20}, beam: 5}

    # stop if ten more training runs are expected to improve the front by less than that
    stop: {gain: 1%, horizon: 10}

    warm_start: runs/edge           # or a list of folders
    # at most five candidates of their fronts are trained here first
    warm_start: {from: [runs/edge, runs/old], max_candidates: 5}

``none`` under any of them is as if the key were missing, for ``--set``.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from scalesearch.config import MAX_SEED
from scalesearch.config.model import (
    OPEN_ARGUMENTS,
    REQUIRED,
    BeamSize,
    Config,
    Count,
    Flag,
    NonNegative,
    Size,
    Text,
    number,
    plain_value,
    setting,
    size,
    words,
)
from scalesearch.errors import option
from scalesearch.pareto import Objective
from scalesearch.pareto.noise import CONFIDENCE
from scalesearch.samplers import SAMPLER_NAMES, SamplerSpec
from scalesearch.schedule import Rungs
from scalesearch.spaces.schema.cost_names import ARTIFACT_FORMATS, CACHE_TYPES, PROTOCOL_NAMES
from scalesearch.spaces.syntax.nodes import Node, ScalarNode
from scalesearch.studies.config.values import (
    MIN_RAY_AMOUNT,
    PARAMS_FORM,
    Amount,
    ComputeAmount,
    CustomResources,
    Folders,
    Gain,
    Params,
    Shares,
)
from scalesearch.training.recipe import MAX_THREADS, Recipe

AUTO = "auto"
DEFAULT_SEEDS_PER_CANDIDATE = 3
DEFAULT_SEEDS_PER_ARCHITECTURE = 2  # if a mapping does not set it
NEW_TEACHER_KEYS = ("file", "set", "recipe", "seed")
WARM_START_FILE = "warm.json"  # the candidates of a warm start, in the study's folder
Conflicts = Iterator[tuple[str, str, str | None]]  # key, problem, help
CORPUS_WORD = "corpus"  # protocol.vocab: the size of the corpus's vocabulary


class Resources(Config):
    """Resources of each worker."""

    unsupported = dict.fromkeys(
        ("processes_per_trial", "processes", "world_size", "nproc_per_node"),
        "it was removed: each trial trains in one process. Train several trials at a time with "
        "`workers`")

    cpus_per_trial: NonNegative = setting(
        1.0, "CPUs of a worker, for Ray", unit="CPUs",
        synonyms=("cpus", "num_cpus", "cpu", "resources_per_trial"))
    gpus_per_trial: Annotated[float | str, number(0, special_values=(AUTO,))] = setting(
        AUTO, "GPUs of a worker; a fraction shares one. auto: trials share the GPUs as their "
        "predicted memory allows", unit="GPUs",
        synonyms=("gpus", "num_gpus", "gpu"))
    threads_per_trial: Annotated[int, size(high=MAX_THREADS)] = setting(
        1, "threads of each worker", unit="threads", synonyms=("threads", "num_threads"))
    trials_per_process: Annotated[int | str, size(special_values=(AUTO,))] = setting(
        AUTO, "trials that a process of the pool trains, one after the other. auto: 1 on a CPU, "
        "32 on a GPU. A process ends after any failure", unit="trials",
        synonyms=("max_tasks_per_child", "max_calls"))
    nice: Annotated[int, size(0, 19)] = setting(
        0, "niceness of the processes of a worker, which yield to other processes; a higher "
        "niceness that a cluster sets (Ray sets 15) is kept", synonyms=("niceness",))
    custom: CustomResources = setting(
        {}, "further resources, by the names in a Ray cluster",
        expected="a mapping of names to numbers")
    address: Text | None = setting(
        None, "address of a running Ray cluster; the same as `ray: {address: …}`")

    def find_problems(self) -> Conflicts:
        """Report amounts that Ray does not support."""
        for name in ("cpus_per_trial", "gpus_per_trial"):
            amount = getattr(self, name)
            if amount != AUTO and 0 < amount < MIN_RAY_AMOUNT:
                yield (name, f"{amount:g} is less than Ray counts",
                       f"use at least {MIN_RAY_AMOUNT:g}")
        gpus = self.fixed_gpus_per_trial
        if gpus > 1 and gpus % 1:
            yield "gpus_per_trial", "use a whole number above 1", "such as 0.5, 1 or 2"


    @property
    def fixed_gpus_per_trial(self) -> float:
        """GPUs of a worker; 0 for ``auto``."""
        return 0.0 if isinstance(self.gpus_per_trial, str) else self.gpus_per_trial


class ReferenceSpec(Config):
    """Reference to an architecture: a file, or params in a file or the study's space."""

    shorthand_key = "file"
    default_name: ClassVar[str] = "reference"

    name: Text = setting("", "its name in tables", default_text="the file's name")
    file: Text | None = setting(None, "a space file without open parameters")
    set: Params = setting({}, "params, in the file or in the study's space", expected=PARAMS_FORM)
    recipe: Params = setting(
        {}, "params of the recipe", expected="a mapping such as `{lr: 2e-3}`",
        default_text="the first alternative, the middle of a range")

    def find_problems(self) -> Conflicts:
        """Report a reference without an architecture."""
        if not self.file and not self.set:
            yield ("", "expected a file, params under `set`, or both",
                   "such as `{name: wide, set: {width: 256}}`")

    @model_validator(mode="after")
    def _fill_name(self) -> Self:
        if not self.name:
            self.__dict__["name"] = Path(self.file or self.default_name).name.removesuffix(".yaml")
        return self


class ArchitectureSpec(ReferenceSpec):
    """A row of a grid, or a change of an ablation."""

    default_name = "row"


@dataclass(frozen=True)
class Seeds:
    """Limits of further seeds, after the search; see :class:`SeedsConfig`."""

    max_per_candidate: int = 1
    extra_runs: int = 0
    confidence: float = CONFIDENCE
    references: int = 1

    @property
    def is_enabled(self) -> bool:
        """Whether anything may be trained again."""
        return self.max_per_candidate > 1 or self.references > 1

    @property
    def max_front_seeds(self) -> int:
        """Maximum number of further seeds of the front."""
        return self.extra_runs if self.max_per_candidate > 1 else 0


SINGLE_SEED = Seeds()


class SeedsConfig(Config):
    """Limits of further seeds, after the search."""

    shorthand_key = "max_per_candidate"

    max_per_candidate: Size = setting(
        1, "seeds per candidate, including the seed of the search",
        default_text=f"{DEFAULT_SEEDS_PER_CANDIDATE}", deprecated=("most",),
        synonyms=("max", "seeds", "repeats"))
    extra_runs: Count = setting(
        0, "full-budget runs with further seeds in total", unit="runs",
        default_text="half of `trials`", deprecated=("trials",), synonyms=("budget",))
    confidence: Annotated[float, number(0.5, 0.9999)] = setting(
        CONFIDENCE, "confidence of the interval of a difference; a difference is significant if "
        "its interval does not contain 0", synonyms=("alpha", "level"))
    references: Size = setting(
        1, "seeds per reference or fixed architecture, in addition to `trials` "
        f"({DEFAULT_SEEDS_PER_ARCHITECTURE} if `seeds` is a mapping and the type is not search)",
        synonyms=("architectures",))


class StopSpec(Config):
    """Early end of a search."""

    shorthand_key = "gain"

    gain: Gain = setting(
        0.01, "relative growth of the front's hypervolume: the search ends if less is expected",
        expected="a share such as `1%`", default_text="1%",
        synonyms=("tolerance", "min_delta", "threshold"))
    horizon: Amount = setting(
        ComputeAmount(10), "compute for which the growth is predicted", default_text="10",
        expected="full-budget runs, or a duration such as `2h`", unit="runs, or a duration",
        deprecated=("within",), synonyms=("patience",))


class TeacherSpec(Config):
    """Teacher of a study: all candidates are trained on its translations."""

    shorthand_key = "folder"

    folders: Folders = setting(
        (), "folder of a finished training run, or a list of several with one vocabulary, which "
        "translate together by the mean of their probabilities", name="folder",
        default_text="none", expected="a folder, or a list of folders",
        synonyms=("path", "checkpoint", "folders"))
    file: Text | None = setting(None, "space file of a teacher to train")
    set: Params = setting({}, "params of a teacher to train, in the file or in the study's space",
                          expected=PARAMS_FORM)
    recipe: Recipe | None = setting(
        None, "recipe of a teacher to train; without one, the recipe of the candidates",
        default_text="the study's")
    seed: Annotated[int, size(0, MAX_SEED)] = setting(
        None, "seed of a teacher to train", default_text="the study's")
    beam: BeamSize = setting(5, "beam size of its translations",
                             synonyms=("beam_size", "num_beams"))
    length_penalty: NonNegative = setting(1.0, "length penalty of its translations",
                                          synonyms=("lenpen", "alpha"))
    mix: Flag = setting(False, "train candidates on the real pairs, too")
    top_k: Count = setting(
        0, "number of its most likely tokens at each position that candidates are also trained "
        "on, with the recipe's `distillation_weight`; 0: none", unit="tokens",
        deprecated=("soft",), synonyms=("top",))

    def find_problems(self) -> Conflicts:
        """Report a teacher that is both finished and new, or neither."""
        new = ", ".join(name for name in NEW_TEACHER_KEYS if name in self.model_fields_set)
        if self.folders and new:
            yield ("folder", f"it is a finished training run, which has its own {new}",
                   f"remove `folder`, or {new}")
        if not (self.folders or self.file or self.set):
            yield ("", "neither a folder nor an architecture is given",
                   "give `folder`, or `file` or `set` or both")


class FitConfig(Config):
    """How replacements of blocks are initialized."""

    pairs: Size = setting(1000, "training pairs on which outputs of the parent are recorded",
                          unit="pairs")
    steps: Count = setting(200, "updates of each replacement to the outputs of the parent's block; "
                           "0: least squares only", unit="updates")
    lr: NonNegative = setting(2e-3, "peak learning rate of these updates")
    checks: Count = setting(30, "random combinations whose loss is measured, to check that the "
                            "rises of single replacements add up", unit="combinations")
    interactions: Count = setting(0, "pairs of replacements in neighboring layers whose loss is "
                                  "measured, because their rises may not add up: those in most "
                                  "combinations of the predicted front", unit="pairs")


@dataclass(frozen=True)
class WarmStartSpec:
    """Other studies to begin with; see :class:`WarmStartConfig`."""

    folders: tuple[str, ...]
    max_candidates: int | None = None


class WarmStartConfig(Config):
    """Other studies to begin with."""

    shorthand_key = "from"

    folders: Folders = setting(
        REQUIRED, "folders of other studies", name="from",
        expected="a folder, or a list of folders", synonyms=("folders", "studies"))
    max_candidates: Count | None = setting(
        None, "maximum number of candidates of their fronts that are trained here first",
        unit="candidates", default_text="the number of random candidates at the start",
        deprecated=("most",), synonyms=("max",))

    def make(self) -> WarmStartSpec:
        """The value of the study."""
        return WarmStartSpec(self.folders, self.max_candidates)


EARLY_STOPPING_WORDS = ("asha", "hyperband", "bohb", "sha", "successive_halving",
                        "successivehalving", "median", "pbt")


class SamplerConfig(Config):
    """The sampler of candidates."""

    shorthand_key = "type"
    open_key = "class_name"

    type: Annotated[str, words(*SAMPLER_NAMES, foreign=dict.fromkeys(
        EARLY_STOPPING_WORDS, "early stopping is independent of the sampler: add `rungs: {}`"))
        ] = setting(
        "bayes", "a short name; `random` if fixed architectures are trained", deprecated=("kind",),
        synonyms=("algorithm", "name", "method", "strategy", "search_alg"))
    class_name: Text | None = setting(
        None, "a class of optuna.samplers, or a sampler that an installed package registers; its "
        "arguments are given next to it", deprecated=("sampler",), synonyms=("class",))
    seed: Annotated[int, size(0, MAX_SEED)] = setting(
        None, "random seed of the sampler", default_text="the study's", synonyms=("random_state",))
    startup: Size = setting(
        None, "random candidates before the model proposes", unit="candidates",
        default_text="depends on the sampler",
        synonyms=("n_startup_trials", "initial", "num_initial", "warmup_trials"))
    population: Annotated[int, size(2)] = setting(
        None, "population of nsga2", default_text="20, with nsga2",
        synonyms=("population_size", "pop_size"))
    proxy: Text | None = setting(
        None, "proxy of the score that `bayes` uses if it reduces its leave-one-out error: a "
        "parameter, a cost, or a CSV file with columns of parameters and the proxy in the last one")
    max_in_training: Annotated[float, number(0, 1)] = setting(
        None, "largest share of the remaining runs that `bayes` has in training at once; other "
        "workers wait for results", default_text="0.25")
    arguments: dict[str, Any] = Field({}, validation_alias=OPEN_ARGUMENTS)

    def find_problems(self) -> Conflicts:
        """Report settings that the sampler does not have."""
        given_keys = self.model_fields_set
        sampler = self.type if "type" in given_keys or "class_name" not in given_keys else None
        if {"type", "class_name"} <= given_keys:
            yield "class_name", "it names a sampler, and `type` names one too", "remove one of them"
        if "startup" in given_keys and sampler in ("random", "grid"):
            yield ("startup", f"`{sampler}` does not learn from trials, so it has no startup",
                   "remove it")
        if "population" in given_keys and sampler not in (None, "nsga2"):
            yield "population", f"`{sampler}` has no population", "remove it, or use nsga2"

        for key in ("proxy", "max_in_training"):
            if key in given_keys and sampler != "bayes":
                yield (key, f"`{sampler or self.class_name}` has no `{key}`",
                       "remove it, or use bayes")

    def make(self) -> SamplerSpec:
        """The value of the study; an empty name if the file does not set one."""
        arguments = {"n_startup_trials": self.startup, "population_size": self.population,
                     "proxy": self.proxy, "max_in_training": self.max_in_training}
        arguments = {name: value for name, value in arguments.items() if value is not None}
        arguments |= {name: plain_value(value) for name, value in self.arguments.items()}
        name = self.class_name or (self.type if "type" in self.model_fields_set else "")
        return SamplerSpec(name, arguments, self.seed)


class RungsConfig(Config):
    """Rungs at which training pauses."""

    first: Annotated[float, number(high=1, above=0)] = setting(
        signature(Rungs.geometric).parameters["first"].default, "first rung",
        unit="share of a full-budget run", synonyms=("grace_period", "min_resource", "min_t"))
    spacing: Annotated[float, number(above=1)] = setting(
        signature(Rungs.geometric).parameters["spacing"].default,
        "ratio of each rung to the rung before")
    eta: Annotated[int, size(2)] = setting(
        signature(Rungs.geometric).parameters["eta"].default,
        "one in `eta` candidates of each rung continues; `bayes` decides by expected gain instead",
        synonyms=("reduction_factor", "halving_rate"))
    shares: Shares | None = setting(
        None, "all rungs, instead of `first` and `spacing`", unit="shares of a full-budget run",
        expected="a list of numbers below 1")

    def make(self) -> Rungs:
        """The value of the study."""
        if self.shares:
            return Rungs((*self.shares, 1.0), self.eta)
        return Rungs.geometric(self.first, self.eta, self.spacing)


class ProtocolConfig(Config):
    """Lengths and vocabulary for which costs are evaluated."""

    name: Annotated[str, words(*PROTOCOL_NAMES)] = setting(
        "forward", "what is counted: a pass over a pair, or decoding")
    source: Size = setting(None, "length of the source", unit="tokens", default_text="the space's",
                           synonyms=("src_len", "source_length"))
    target: Size = setting(None, "length of the target", unit="tokens", default_text="the space's",
                           synonyms=("tgt_len", "target_length"))
    length: Size = setting(
        None, "tokens of a language model's context, instead of `source` and `target`; for "
        "`macs.prefill`, `macs.decode_step` and `memory.cache`", unit="tokens",
        default_text="the space's", synonyms=("context", "context_length"))
    cache: Annotated[str, words(*CACHE_TYPES)] | None = setting(
        None, "type of the numbers in `memory.cache`; scales of quantized numbers are not counted",
        default_text="the space's, else float32")
    vocab: Annotated[int | str, size(special_values=(CORPUS_WORD,))] = setting(
        None, "size of the vocabulary", unit="entries",
        default_text=f"`own` if the space has that, else {CORPUS_WORD}", synonyms=("vocab_size",))
    lengths: Annotated[str, words(CORPUS_WORD)] | None = setting(
        None, "lengths of source and target from the training text, for each vocabulary: rounded "
        "mean numbers of tokens that a model reads")
    shortlist: Size = setting(None, "logits per decoding step of an output matrix, if a shortlist "
                              "of tokens is used", unit="tokens", default_text="all")
    artifact: Annotated[str, words(*ARTIFACT_FORMATS)] | None = setting(
        None, "format and quantization for `artifact.bytes`; candidates that the format does not "
        "support are infeasible", deprecated=("artefact",))
    latency: Text | None = setting(
        None, "file of `scalesearch latency calibrate` for `latency.predicted`, ms per sentence; "
        "candidates that its format does not support are infeasible")


class RayConfig(Config):
    """The cluster to train on."""

    address: Text | None = setting(
        None, "HOST:PORT of a running cluster; auto: the cluster that this machine is part of")


def read_seeds(values: Mapping[str, Any] | None, node: Node | None, search_trials: int,
               objectives: tuple[Objective, ...], has_fixed_architectures: bool,
               report: Callable[[str, str, str], object]) -> Seeds:
    """Return the value of the key ``seeds`` with its defaults.

    Args:
        values: the keys that the file sets; None if it sets none.
        node: the node of the file. ``seeds: 3`` is the number of seeds per row if
            ``has_fixed_architectures`` are trained.
        search_trials: trials of the search.
        report: receives key, message and help of each problem.
    """
    if values is None:
        return SINGLE_SEED
    if objectives and not any(objective.is_measured for objective in objectives):
        report("seeds", "seeds: none of the objectives is measured, so another seed gives the same "
               "numbers", "remove `seeds`, or add a metric to the objectives")
    if has_fixed_architectures and isinstance(node, ScalarNode):
        return Seeds(references=values.get("max_per_candidate", 1))
    if has_fixed_architectures:
        for name in ("max_per_candidate", "extra_runs"):
            if name in values:
                report(f"seeds.{name}",
                       f"seeds.{name}: it is for a search, and this study trains its rows",
                       "set `references`, the number of seeds per row")
        return Seeds(**{"references": DEFAULT_SEEDS_PER_ARCHITECTURE, **values,
                        "max_per_candidate": 1, "extra_runs": 0})
    seeds = Seeds(**{"max_per_candidate": DEFAULT_SEEDS_PER_CANDIDATE,
                     "extra_runs": (search_trials + 1) // 2, **values})
    return seeds if seeds.is_enabled else SINGLE_SEED


def warm_start_problems(warm_start: WarmStartSpec | None, out: Path) -> Iterator[tuple[str, str]]:
    """Yield problems of the folders, with their help.

    Args:
        warm_start: from the file, if any.
        out: the study's own folder. If it holds the candidates of the other studies, their folders
            are no longer needed.
    """
    if warm_start is None or (out / WARM_START_FILE).is_file():
        return
    for text in warm_start.folders:
        folder = expand_path(text)
        if not os.path.isfile(folder / "study.json"):
            problem = (f"`{text}` holds no study (no study.json)" if os.path.isdir(folder)
                       else f"no folder `{text}`")
            yield problem, ("give the folder of a study that `scalesearch study run` has made, "
                            "such as runs/edge")
        elif folder.resolve() == out.resolve():
            yield (f"`{text}` is this study's own folder",
                   f"give the folder of another study, or continue with {option('resume')}")


def expand_path(text: str) -> Path:
    """The folder of a file's text, with ``~`` and variables expanded."""
    return Path(os.path.expandvars(os.path.expanduser(text)))
