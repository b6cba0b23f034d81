"""Study files: their keys, and the values that the reader makes of them.

Each key is defined once: type, unit, default, meaning, synonyms.
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Self

from scalesearch.config import MAX_SEED
from scalesearch.config.model import (
    NAME_DESCRIPTION,
    REQUIRED,
    Config,
    Flag,
    MadeFrom,
    Name,
    NodeValue,
    Size,
    setting,
    size,
    words,
)
from scalesearch.data.spec import DataSpec
from scalesearch.pareto import Objective
from scalesearch.samplers import SamplerSpec
from scalesearch.schedule import NO_RUNGS, Rungs
from scalesearch.spaces import Constraint, Space
from scalesearch.spaces.schema.cost_names import OWN_VOCABULARY
from scalesearch.spaces.syntax.diagnostics import SourcePosition
from scalesearch.studies.config.fixed_architectures import (
    HOLD_OUT_LARGEST,
    NONE_WORD,
    SEARCH,
    STUDY_TYPES,
    ArchitectureSet,
    FixedArchitecture,
)
from scalesearch.studies.config.sections import (
    AUTO,
    CORPUS_WORD,
    ArchitectureSpec,
    FitConfig,
    ProtocolConfig,
    RayConfig,
    ReferenceSpec,
    Resources,
    RungsConfig,
    SamplerConfig,
    Seeds,
    SeedsConfig,
    StopSpec,
    TeacherSpec,
    WarmStartConfig,
    WarmStartSpec,
)
from scalesearch.studies.config.values import (
    LOGGERS_FORM,
    Duration,
    FolderPath,
    Loggers,
    Params,
    StorageUrl,
)
from scalesearch.terminal import format_count
from scalesearch.training.recipe import Recipe
from scalesearch.training.recipe_space import EMPTY_RECIPE_SPACE, RecipeSpace

DEFAULT_MAX_TRIALS = 1000  # of a search that is only limited by its compute
BACKENDS = ("pool", "ray", "inprocess")
SPACE_FORM = "a file, `{file: …, set: {…}}`, or the space itself"
OBJECTIVES_FORM = ("a mapping of metrics and costs to `min` or `max`, such as "
                   "`{bleu: max, params.total: min}`")
OBJECTIVES_JSON_SCHEMA = {"type": "object", "additionalProperties": {"enum": ["min", "max"]}}
BUDGET_FORM = ("the name of one of the space's budgets, or a condition such as "
               "`params.total <= 2M and macs.total <= 40M`")
EXPORTABLE_WORDS = (NONE_WORD, "ctranslate2")  # the other formats support all architectures


class StudyFile(Config):
    """Keys of a study file; the reader resolves the values that are nodes."""

    name: Name | None = setting(
        None, "its name", expected=NAME_DESCRIPTION, default_text="the file's name",
        synonyms=("name", "study_name"), name="study")
    type: Annotated[str, words(*STUDY_TYPES)] = setting(
        SEARCH, "a search, fixed architectures, or the compression of a trained model",
        deprecated=("kind",))
    space: Annotated[Any, NodeValue()] = setting(
        None, "search space", expected=SPACE_FORM,
        default_text="required, unless each architecture is a file",
        synonyms=("search_space", "model", "architecture"))
    base: Annotated[Any, NodeValue()] = setting(
        None, "architecture that the changes apply to", expected=SPACE_FORM,
        default_text="the space", synonyms=("baseline",))
    data: DataSpec = setting(
        REQUIRED, "training data: keys, `builtin` for the built-in corpus, or a data file, whose "
        "paths are relative to its folder", synonyms=("dataset", "corpus"))
    recipe: Recipe = setting(
        REQUIRED, "how each candidate is trained: a preset, such as `short`, or keys, such as "
        "`{ preset: short, lr: 1e-3 | 2e-3 }`; keys with alternatives or a range are searched",
        synonyms=("training", "train", "trainer", "hyperparameters"))
    objectives: Annotated[Any, NodeValue(OBJECTIVES_JSON_SCHEMA)] = setting(
        REQUIRED, "objectives of the front", expected=OBJECTIVES_FORM,
        synonyms=("metrics", "objective", "metric", "directions", "goals"))
    protocol: Annotated[Mapping[str, str | int], MadeFrom(ProtocolConfig)] = setting(
        {}, "lengths and vocabulary for costs", synonyms=("cost", "costs"))
    budget: Annotated[Any, NodeValue({"type": "string"})] = setting(
        None, "limits that every candidate meets", expected=BUDGET_FORM,
        synonyms=("constraints", "constraint", "limits", "limit", "where", "budgets"))
    exportable: Annotated[str, words(*EXPORTABLE_WORDS)] = setting(
        NONE_WORD, "export format that must support every candidate")
    sampler: Annotated[SamplerSpec, MadeFrom(SamplerConfig)] = setting(
        # without a seed of its own, it gets that of the study
        SamplerSpec("", seed=None),  # type: ignore[arg-type]
        "proposes candidates", deprecated=("proposer",),
        synonyms=("algorithm", "optimizer", "optimiser", "searcher", "search_alg"))
    trials: Annotated[int, size(high=10**6)] = setting(
        20, "full-budget runs, or the same compute in a study with rungs", unit="runs",
        default_text=f"20; {DEFAULT_MAX_TRIALS} if `compute` is given",
        synonyms=("n_trials", "num_trials", "num_samples", "max_trials", "samples"))
    compute: Duration | None = setting(
        None, "CPU time of training, validation and decoding in the search, restarts included; "
        "a run starts only if the mean of the runs so far fits",
        expected="a length of time such as `20h` or `90m`", unit="CPU time",
        synonyms=("time", "timeout", "max_time", "cpu_hours", "wall_time"))
    rungs: Annotated[Rungs, MadeFrom(RungsConfig, True)] = setting(
        NO_RUNGS, "where training pauses until a candidate is promoted",
        synonyms=("pruner", "pruning", "asha", "successive_halving", "hyperband"))
    seeds: Annotated[Any, MadeFrom(SeedsConfig, True)] = setting(
        None, "further seeds for members of the front, or for each fixed architecture",
        synonyms=("replicates", "repeats", "replications", "num_seeds"))
    stop: StopSpec | None = setting(
        None, "when a search ends before all its trials; needs `bayes`",
        synonyms=("early_stopping", "terminator", "termination"))
    references: tuple[ReferenceSpec, ...] = setting(
        (), "architectures to train first, for comparison",
        expected="a file, a mapping, or a list of these",
        synonyms=("references", "baselines", "enqueue"), name="reference")
    architectures: tuple[ArchitectureSpec, ...] = setting(
        (), "architectures to train in a grid", deprecated=("rows",),
        expected="a list of files and mappings")
    changes: Annotated[Any, NodeValue()] = setting(
        None, "changes of an ablation, one per architecture",
        expected="a list such as `[share: none, {name: alone, set: {…}}]`",
        synonyms=("ablations", "variants"))
    rules: Annotated[Any, NodeValue()] = setting(
        None, "how the base grows in a scaling study",
        expected="a mapping such as `{deeper: 2 | 4 | 6, wider: 96 | 128}`",
        synonyms=("growth", "scaling"))
    held_out: Annotated[str, words(HOLD_OUT_LARGEST, NONE_WORD)] = setting(
        HOLD_OUT_LARGEST, "size of a scaling study that checks the fit of each rule",
        synonyms=("holdout",))
    teacher: TeacherSpec | None = setting(
        None, "model whose translations train every candidate",
        synonyms=("distillation", "distill"))
    parent: TeacherSpec | None = setting(
        None, "trained model whose blocks a compression replaces, or one to train first; the "
        "candidates learn from its translations")
    replacements: Params = setting(
        {}, "smaller sizes of a compression by key of the space language, 0 for none, and "
        "`share.KEY` for the number of neighboring layers that may share weights", name="replace",
        default_text="no sub-layer, half the heads, 1/4 to 3/4 of the hidden units, two layers "
        "that share", expected="a mapping such as `{encoder.ffn.hidden: 0 | 128, "
                               "share.encoder.ffn: 2}`")
    fit: FitConfig = setting(FitConfig(), "how a compression initializes replacements")
    warm_start: Annotated[
        WarmStartSpec | None, MadeFrom(WarmStartConfig, True)] = setting(
        None, "other studies to begin with",
        synonyms=("warmstart", "points_to_evaluate", "init_from"))
    proxies: Flag = setting(
        True, "zero-cost scores of every candidate before its training",
        synonyms=("zero_cost", "zero_cost_proxies"))
    workers: Annotated[int | str, size(special_values=(AUTO,))] = setting(
        AUTO, "maximum number of candidates in training at a time", unit="workers",
        default_text="1; with a GPU, the number that share it",
        synonyms=("n_jobs", "max_concurrent", "parallel", "num_workers", "jobs"))
    backend: Annotated[str, words(*BACKENDS)] = setting(
        "pool", "what trains: a pool of processes on this machine, Ray, or this process (one "
        "candidate at a time, for debugging)",
        default_text="ray if an address is given, else pool",
        synonyms=("executor", "launcher"))
    resources: Resources = setting(
        Resources(), "resources of each worker", synonyms=("resources_per_trial",))
    ray: Annotated[Mapping[str, str], MadeFrom(RayConfig)] = setting(
        {}, "the cluster to train on", synonyms=("cluster",))
    storage: StorageUrl = setting(
        None, "a database that gets a copy of the study, in Optuna's form",
        expected="`embedded`, or a URL such as postgresql://user@host/database",
        default_text="embedded", synonyms=("database", "db", "storage_url"))
    loggers: Loggers = setting(
        (), "tools that get a copy of every finished trial", expected=LOGGERS_FORM,
        synonyms=("logger", "callbacks", "report_to"))
    out: FolderPath | None = setting(
        None, "the study's folder", default_text="runs/NAME",
        synonyms=("output", "output_dir", "folder", "directory", "save_dir"))
    seed: Annotated[int, size(0, MAX_SEED)] = setting(
        1, "seed of training and sampler", synonyms=("random_seed", "random_state"))
    attempts: Size = setting(
        3, "attempts per training run", unit="attempts",
        synonyms=("max_failures", "retries", "max_retries"))


class StudySpec(StudyFile):
    """Study file that was read and checked.

    Data, storage and workers are not used yet.

    Defaults that follow from other keys are filled in. ``base``, ``changes``, ``rules`` and
    ``held_out`` are as in the file.

    Attributes:
        references: of a search, with their architectures.
        architectures: the fixed architectures; None in a search.
        file, text: the study file.
        positions: the position of the value of each key of the file, by dotted path.
        overrides: changes by options, in the form of ``--set``.
        recipe_space: the parameters of the recipe; ``recipe`` has their defaults.
        initial_models: folders of the models whose weights fixed architectures start from, by
            label.
    """

    name: str
    space: Space
    objectives: tuple[Objective, ...]
    budget: Constraint | None
    references: tuple[FixedArchitecture, ...]  # type: ignore[assignment]
    architectures: ArchitectureSet | None  # type: ignore[assignment]
    seeds: Seeds
    workers: int
    out: Path
    file: Path
    text: str
    positions: Mapping[str, SourcePosition]
    overrides: tuple[str, ...] = ()
    recipe_space: RecipeSpace = EMPTY_RECIPE_SPACE
    initial_models: Mapping[str, str] = {}

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values, which are not validated."""
        return self.model_copy(update=changes)

    @property
    def named_architectures(self) -> tuple[FixedArchitecture, ...]:
        """The references of a search, or all architectures of another study."""
        return self.architectures.architectures if self.architectures else self.references

    @property
    def trials_text(self) -> str:
        """Limit of the training runs of a search, in words."""
        if self.compute is not None and self.trials == DEFAULT_MAX_TRIALS:
            return f"candidates for {timedelta(seconds=self.compute)} of CPU time"
        text = format_count(self.trials, "candidate")
        if self.rungs.n_pauses:
            counts = self.rungs.expected_counts(self.trials)
            text = (f"about {counts[0]:,.0f} candidates, {counts[-1]:,.0f} of them to the end, "
                    f"with the compute of {format_count(self.trials, 'full-budget run')}")
        if self.compute is None:
            return text
        most = text.removeprefix("about ")
        return f"at most {most} in {timedelta(seconds=self.compute)} of CPU time"

    @property
    def recipe_text(self) -> str:
        """The default recipe and the searched values of its keys, in words."""
        searched = [f"{key} {text}" for key, text in self.recipe_space.distribution_texts.items()]
        return self.recipe.describe() + (f"; searched: {', '.join(searched)}" if searched else "")

    @property
    def vocab(self) -> int | str:
        """Vocabulary of the costs: ``own``, a size, or ``corpus`` if none is set."""
        is_own = self.space.protocol.get("vocab") == OWN_VOCABULARY
        return OWN_VOCABULARY if is_own else self.protocol.get("vocab", CORPUS_WORD)
