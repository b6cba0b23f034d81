"""Study files: their keys, and what is read from them.

Each key is stated once: type, unit, default, meaning, synonyms.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from inspect import signature
from pathlib import Path
from typing import Any

from scalesearch.data.spec import DATA_SCHEMA, DataSpec
from scalesearch.pareto.objective import Objective
from scalesearch.samplers import SAMPLER_NAMES, SamplerSpec
from scalesearch.schedule.rungs import NO_RUNGS, Rungs
from scalesearch.space import Constraint, Space
from scalesearch.space.schema.cost_names import ARTIFACT_FORMATS, OWN_VOCABULARY, PROTOCOL_NAMES
from scalesearch.space.schema.settings import MAX_SEED, NAME_DESCRIPTION, REQUIRED, read_name, schema_of, setting
from scalesearch.space.schema.types import SchemaField, SchemaGroup
from scalesearch.space.syntax.diagnostics import SourcePosition
from scalesearch.space.syntax.nodes import Node
from scalesearch.space.syntax.parameters import format_constant
from scalesearch.study.config.fixed_architectures import (
    HOLD_OUT_LARGEST,
    NONE_WORD,
    SEARCH,
    STUDY_TYPES,
    ArchitectureSet,
)
from scalesearch.study.config.sections import (
    ARCHITECTURE_SCHEMA,
    REFERENCE_SCHEMA,
    RESOURCES_SCHEMA,
    SEEDS_SCHEMA,
    STOP_SCHEMA,
    TEACHER_SCHEMA,
    WARM_START_SCHEMA,
    Conflicts,
    ReferenceSpec,
    Resources,
    Seeds,
    StopSpec,
    TeacherSpec,
    WarmStartSpec,
)
from scalesearch.study.config.values import LOGGERS_FORM, read_duration, read_loggers, read_shares, read_storage
from scalesearch.train.recipe import RECIPE_SCHEMA, Recipe
from scalesearch.train.recipe_space import EMPTY_RECIPE_SPACE, RecipeSpace

DEFAULT_MAX_TRIALS = 1000  # of a search that is limited by its compute alone
CORPUS_WORD = "corpus"  # protocol.vocab: as many words as the corpus's vocabulary has
BACKENDS = ("pool", "ray", "inprocess")
SPACE_FORM = "a file, `{file: …, set: {…}}`, or the space itself"


def _make_sampler_spec(type: str = "", class_name: str = "", startup: int | None = None,
                       population: int | None = None, seed: int | None = None,
                       arguments: Mapping[str, object] | None = None) -> SamplerSpec:
    own = {"n_startup_trials": startup, "population_size": population}
    given = {key: value for key, value in own.items() if value is not None}
    return SamplerSpec(class_name or type, given | dict(arguments or {}), seed)


def _sampler_conflicts(values: Mapping[str, object]) -> Conflicts:
    if "type" in values and "class_name" in values:
        yield "class_name", "it names a sampler, and `type` names one too", "remove one of them"
    type = values.get("type", None if "class_name" in values else "bayes")
    if "startup" in values and type in ("random", "grid"):
        yield "startup", f"`{type}` does not learn from trials, so it has no startup", "remove it"
    if "population" in values and type not in (None, "nsga2"):
        yield "population", f"`{type}` has no population", "remove it, or use nsga2"


def _rungs(shares: tuple[float, ...] = (), **spaced: Any) -> Rungs:
    eta = {"eta": spaced["eta"]} if "eta" in spaced else {}
    return Rungs((*shares, 1.0), **eta) if shares else Rungs.geometric(**spaced)


GEOMETRIC_DEFAULTS = {name: format_constant(parameter.default)
                      for name, parameter in signature(Rungs.geometric).parameters.items()}
RUNGS_SCHEMA = SchemaGroup(
    {"first": SchemaField("number", default=GEOMETRIC_DEFAULTS["first"], low=0, high=1,
                          unit="share of a full training", doc="where candidates pause first",
                          synonyms=("grace_period", "min_resource", "min_t")),
     "spacing": SchemaField("number", default=GEOMETRIC_DEFAULTS["spacing"], low=1,
                            doc="each rung is this many times the one before"),
     "eta": SchemaField("size", default=GEOMETRIC_DEFAULTS["eta"], low=2,
                        doc="of each rung, one in so many goes on",
                        synonyms=("reduction_factor", "halving_rate")),
     "shares": SchemaField("node", default=NONE_WORD, read=read_shares,
                           expected="a list of numbers below 1", unit= "shares of a full training",
                           doc="the rungs themselves, in place of `first` and `spacing`")},
    optional=True, make=_rungs)
SAMPLER_SCHEMA = SchemaGroup(
    {"type": SchemaField("word", SAMPLER_NAMES, default="bayes", deprecated=("kind",),
                         doc="a short name; `random` if fixed architectures are trained",
                         synonyms=("algorithm", "name", "method", "strategy", "search_alg")),
     "class_name": SchemaField("text", default=NONE_WORD, deprecated=("sampler",),
                               doc="a class of optuna.samplers, or a sampler that an installed "
                               "package registers; its arguments are given next to it",
                               synonyms=("class",)),
     "seed": SchemaField("size", default="the study's", low=0, high=MAX_SEED,
                         doc="random seed of the sampler", synonyms=("random_state",)),
     "startup": SchemaField("size", default="depends on the sampler",
                            doc="random candidates before the model proposes", unit="candidates",
                            synonyms=("n_startup_trials", "initial", "num_initial",
                                      "warmup_trials")),
     "population": SchemaField("size", default="20, with nsga2", low=2, doc="of nsga2",
                               synonyms=("population_size", "pop_size"))}, shorthand_key="type",
    open_key="class_name", check=_sampler_conflicts, make=_make_sampler_spec)
EXPORTABLE_WORDS = (NONE_WORD, "ctranslate2")  # the others take everything
PROTOCOL_SCHEMA = SchemaGroup(
    {"name": SchemaField("word", PROTOCOL_NAMES, default="forward",
                         doc="what is counted: a pass over a pair, or " "decoding"),
     "source": SchemaField("size", default="the space's", unit="tokens", doc="length of the source",
                           synonyms=("src_len", "source_length")),
     "target": SchemaField("size", default="the space's", unit="tokens", doc="length of the target",
                           synonyms=("tgt_len", "target_length")),
     "vocab": SchemaField("size", default=f"the space's own, else {CORPUS_WORD}",
                          special_values=(CORPUS_WORD,), unit="entries", doc="of the vocabulary",
                          synonyms=("vocab_size",)),
     "lengths": SchemaField("word", (CORPUS_WORD,), default=NONE_WORD, special_values=(NONE_WORD,),
                            doc="source and target as the training text "
                            "has them in each vocabulary: rounded means "
                            "of the tokens that a model reads"),
     "artifact": SchemaField("word", ARTIFACT_FORMATS, default=NONE_WORD,
                             special_values=(NONE_WORD,), deprecated=("artefact",),
                             doc="format and quantization for `artifact.bytes`; candidates that "
                             "the format does not support are infeasible"),
     "latency": SchemaField("text", default=NONE_WORD,
                            doc="file of `scalesearch latency calibrate` "
                            "that makes `latency.predicted`, ms a "
                            "sentence; candidates that its format cannot " "hold are infeasible")})
RAY_SCHEMA = SchemaGroup(
    {"address": SchemaField("text", default=NONE_WORD,
                            doc="HOST:PORT of a "
                            "running cluster; auto: the one that this machine " "is part of")})


@dataclass(frozen=True, kw_only=True)
class StudySpec:
    """Study file, read and checked. Data, storage and workers are not touched.

    Types are those after reading: defaults that follow from other keys are filled in, and nodes
    mean something. ``base``, ``changes``, ``rules`` and ``held_out`` are as in the file;
    ``architectures`` is what they come to, and None in a search.

    Attributes:
        file, text: where it was read from. sets: what options changed in it, as ``--set`` takes
            them.
        positions: where the value of each key stands in the file, by dotted path.
        recipe_space: the recipe's questions, of which ``recipe`` has the defaults.
    """

    file: Path
    text: str
    positions: Mapping[str, SourcePosition]
    overrides: tuple[str, ...] = ()
    recipe_space: RecipeSpace = EMPTY_RECIPE_SPACE
    name: str | None = setting(None, "its name", key="study", read=read_name, expected=NAME_DESCRIPTION,
                               default_text="the file's name", synonyms=("name", "study_name"))
    type: str = setting(SEARCH, "a search, or named architectures in place of one",
                        words=STUDY_TYPES, deprecated=("kind",))
    space: Space = setting(None, "what may be proposed", expected=SPACE_FORM,
                           default_text="must be given, unless each row is a file",
                           synonyms=("search_space", "model", "architecture"))
    base: Node | None = setting(None, "of rows: the architecture that they change", expected=SPACE_FORM,
                                default_text="the space", synonyms=("baseline",))
    data: DataSpec = setting(REQUIRED,
                             "what to learn from; `builtin` is the built-in corpus, `data.yaml` a "
                             "file with these keys, whose paths begin at its folder",
                             group_schema=DATA_SCHEMA, synonyms=("dataset", "corpus"))
    recipe: Recipe = setting(REQUIRED,
                             "how each candidate is trained; a text is a preset's name; what is "
                             "given as alternatives or a range is searched",
                             group_schema=RECIPE_SCHEMA,
                             synonyms=("training", "train", "trainer", "hyperparameters"))
    objectives: tuple[Objective, ...] = setting(
        REQUIRED, "what the front is of",
        expected="a mapping of metrics and costs to `min` or "
        "`max`, such as `{bleu: max, params.total: min}`",
        synonyms=("metrics", "objective", "metric", "directions", "goals"))
    protocol: Mapping[str, str | int] = setting(
        {}, "lengths and vocabulary of which costs are", group_schema=PROTOCOL_SCHEMA,
        synonyms=("cost", "costs"))
    budget: Constraint | None = setting(
        None, "what every candidate meets",
        expected="the name of one " "of the space's budgets, or a condition such as "
        "`params.total <= 2M and macs.total <= 40M`",
        synonyms=("constraints", "constraint", "limits", "limit", "where", "budgets"))
    exportable: str = setting(NONE_WORD,
                              "a format of `scalesearch export` that must take every candidate",
                              words=EXPORTABLE_WORDS)
    sampler: SamplerSpec = setting(
        SamplerSpec("", seed=None), "proposes candidates", group_schema=SAMPLER_SCHEMA,
        deprecated=("proposer",), synonyms=("algorithm", "optimizer", "optimiser", "searcher", "search_alg"))
    trials: int = setting(
        20, "full trainings, or as much compute in a study with rungs", unit="trainings",
        high=10**6, default_text=f"20; {DEFAULT_MAX_TRIALS} where `compute` is given",
        synonyms=("n_trials", "num_trials", "num_samples", "max_trials", "samples"))
    compute: float | None = setting(
        None,
        "of the search: what training, validating and translating "
        "take, restarts included; nothing is begun that would go " "beyond it by the mean so far",
        read=read_duration, expected="a length of time such as `20h` or `90m`", unit="CPU time",
        synonyms=("time", "timeout", "max_time", "cpu_hours", "wall_time"))
    rungs: Rungs = setting(
        NO_RUNGS, "where training pauses until a candidate is promoted", group_schema=RUNGS_SCHEMA,
        synonyms=("pruner", "pruning", "asha", "successive_halving", "hyperband"))
    seeds: Seeds = setting(None, "further seeds for those of the front, or of each row",
                           group_schema=SEEDS_SCHEMA,
                           synonyms=("replicates", "repeats", "replications", "num_seeds"))
    stop: StopSpec | None = setting(
        None, "when a search ends before its trials are used up; `bayes` " "foretells it",
        group_schema=STOP_SCHEMA, synonyms=("early_stopping", "terminator", "termination"))
    references: tuple[ReferenceSpec, ...] = setting(
        (), "architectures to train first, for comparison", key="reference", items=REFERENCE_SCHEMA,
        expected="a file, a mapping, or a list of these",
        synonyms=("references", "baselines", "enqueue"))
    architectures: ArchitectureSet | None = setting(
        (), "of a grid: the architectures to train", items=ARCHITECTURE_SCHEMA,
        deprecated=("rows",),
        expected="a list of files and mappings")
    changes: Node | None = setting(None, "of an ablation: what is changed of the base, one by one",
                                   expected="a list such as `[share: none, {name: alone, set: {…}}]`",
                                   synonyms=("ablations", "variants"))
    rules: Node | None = setting(None, "of a scaling study: how the base grows",
                                 expected="a mapping such as `{deeper: 2 | 4 | 6, wider: 96 | 128}`",
                                 synonyms=("growth", "scaling"))
    held_out: str = setting(HOLD_OUT_LARGEST,
                            "of a scaling study: the size that each rule's fit is checked by",
                            words=(HOLD_OUT_LARGEST, NONE_WORD), synonyms=("holdout",))
    teacher: TeacherSpec | None = setting(None, "from whose translations every candidate learns",
                                          group_schema=TEACHER_SCHEMA,
                                          synonyms=("distillation", "distill"))
    warm_start: WarmStartSpec | None = setting(
        None, "other studies to begin with", group_schema=WARM_START_SCHEMA, key="warm_start",
        synonyms=("warmstart", "points_to_evaluate", "init_from"))
    proxies: bool = setting(True, "zero-cost scores of every candidate before its training",
                            synonyms=("zero_cost", "zero_cost_proxies"))
    workers: int = setting(1, "candidates trained at a time", unit="workers",
                           synonyms=("n_jobs", "max_concurrent", "parallel", "num_workers", "jobs"))
    backend: str = setting("pool", "what trains: a pool of processes on this machine, Ray, or this "
                           "process (one candidate at a time, for debugging)", words=BACKENDS,
                           default_text="ray if an address is given, else pool",
                           synonyms=("executor", "launcher"))
    resources: Resources = setting(Resources(), "what each worker gets",
                                   group_schema=RESOURCES_SCHEMA, synonyms=("resources_per_trial",))
    ray: Mapping[str, str] = setting({}, "the cluster to train on", group_schema=RAY_SCHEMA,
                                     synonyms=("cluster",))
    storage: str | None = setting(
        None, "a database that gets a copy of the study, in Optuna's form", read=read_storage,
        expected="`embedded`, or a URL such as postgresql://user@host/database",
        default_text="embedded", synonyms=("database", "db", "storage_url"))
    loggers: tuple[str, ...] = setting((), "tools that get a copy of every trial as it ends",
                                       read=read_loggers, expected=LOGGERS_FORM,
                                       synonyms=("logger", "callbacks", "report_to"))
    out: Path | None = setting(None, "the study's folder", default_text="runs/NAME",
                               synonyms=("output", "output_dir", "folder", "directory", "save_dir"))
    seed: int = setting(1, "of every training, and of what is proposed", low=0, high=MAX_SEED,
                        synonyms=("random_seed", "random_state"))
    attempts: int = setting(3, "of a training that fails", unit="attempts",
                            synonyms=("max_failures", "retries", "max_retries"))

    @property
    def trials_text(self) -> str:
        """How much a search trains, in words."""
        if self.compute is None:
            return f"{self.trials} candidates"
        return f"at most {self.trials} candidates in {timedelta(seconds=self.compute)} of CPU time"

    @property
    def vocab(self) -> int | str:
        """Vocabulary of the costs: ``own``, a size, or ``corpus`` where neither space nor file give one."""
        own = self.space is not None and self.space.protocol.get("vocab") == OWN_VOCABULARY
        return OWN_VOCABULARY if own else self.protocol.get("vocab", CORPUS_WORD)


STUDY_SCHEMA = schema_of(StudySpec)
