"""Training recipes: plain, validated values for files, records and options."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from scalesearch.data.spec import DataSpec
from scalesearch.errors import UserError
from scalesearch.space.binding.config_reader import coerce_settings, read_constants, to_node
from scalesearch.space.schema.cost_names import RUNTIMES
from scalesearch.space.schema.settings import NONE_TEXT, schema_of, setting
from scalesearch.space.schema.types import SchemaField
from scalesearch.tasks import TASKS

BUDGET_KEYS = ("steps", "tokens", "epochs", "cpu_minutes", "minutes")
# do not change the model; a resumed run may change them
RESUME_FREE_KEYS = ("threads", "checkpoint_minutes", "name")
# and processes; if their memory does not suffice, OpenMP ends the process without a message
MAX_THREADS = 1024
DECODE_WITH_MODEL = "model"  # value of `decode_with` without an exported model
STEPS_OR_SHARE_UNIT = "updates, or below 1 a share of the budget"
# make two passes over a batch differ
DROPOUT_KEYS = ("dropout", "attention_dropout", "activation_dropout")


@dataclass(frozen=True)
class ReferenceSizes:
    """Sizes of the model that the learning rate was tuned for.

    A missing size changes no rate.
    """

    width: int | None = setting(None, "its width", low=1,
                                synonyms=("d_model", "hidden_size", "dim"))
    head_dim: int | None = setting(None, "its head_dim, for `rule: mup`", low=1,
                                   synonyms=("d_head", "d_k"))


@dataclass(frozen=True)
class LearningRate:
    """Peak of the learning rate, and how it scales with the sizes of the model."""

    base: float = setting(1.2e-3, "peak learning rate for a model of `reference_sizes`", low=0,
                          synonyms=("peak", "value", "max"))
    rule: str = setting("none",
                        "how learning rates and initialization scale with sizes: none; embedding "
                        "(tables · width); layerwise (per-layer rates, Everett et al. 2024); mup "
                        "(Yang et al. 2022)", words=("none", "embedding", "layerwise", "mup"),
                        synonyms=("parametrization", "scaling"))
    reference_sizes: ReferenceSizes = setting(
        ReferenceSizes(), "sizes of the model that `base` was tuned for",
        group_schema=schema_of(ReferenceSizes), deprecated=("at",))

    def to_json(self) -> dict[str, Any]:
        """Return every field as a JSON value."""
        return asdict(self)

    def describe(self) -> str:
        """Describe the peak, and the rule with its reference width."""
        if self.rule == "none":
            return f"{self.base:g}"
        return f"{self.base:g} at width {self.reference_sizes.width} ({self.rule})"


def _rule_conflicts(values: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    reference_sizes = values.get("reference_sizes") or ReferenceSizes()
    if values.get("rule", "none") != "none" and reference_sizes.width is None:
        yield ("rule", f"{values['rule']} needs the width that the learning rate was tuned for",
               "for example `reference_sizes: {width: 128}`")


LEARNING_RATE_SCHEMA = schema_of(LearningRate, shorthand_key="base", check=_rule_conflicts)


@dataclass(frozen=True)
class Recipe:
    """Recipe: everything that determines training except data, architecture and seed.

    Training ends when the first budget is used up, and the learning rate follows the largest used
    share of a budget. Validation, decoding and saving do not count towards budgets, so the
    frequency of validation does not change the model. A number of updates below 1 is a share of the
    budget. Adam with a ``weight_decay`` is AdamW, for matrices only.

    Raises:
        SpaceErrors: lists every invalid field, with help.
    """

    steps: int | None = setting(None, "budget: updates", low=0, unit="updates",
                                synonyms=("max_steps", "updates", "max_updates", "iterations",
                                          "train_steps"))
    tokens: int | None = setting(None, "budget: target tokens without padding", low=0,
                                 unit="tokens", synonyms=("train_tokens",))
    epochs: float | None = setting(None, "budget: passes over the training pairs", low=0,
                                   unit="epochs",
                                   synonyms=("num_epochs", "max_epochs", "num_train_epochs"))
    cpu_minutes: float | None = setting(None, "budget: CPU time of updates, summed over threads",
                                        low=0, unit="CPU-minutes", synonyms=("cpu_time",))
    minutes: float | None = setting(None, "budget: wall-clock time of updates", low=0,
                                    unit="minutes",
                                    synonyms=("time", "max_time", "wall_time", "timeout"))

    max_tokens: int = setting(
        512, "tokens per batch, with padding: sentences times tokens of the " "longer side",
        unit="tokens", synonyms=("batch_size", "batch_tokens", "tokens_per_batch", "batch"))
    accumulate: int = setting(1, "batches per update", unit="batches",
                              synonyms=("gradient_accumulation_steps", "update_freq",
                                        "accumulation", "grad_accum"))
    optimizer: str = setting("adamw",
                             "adamw (Adam without weight_decay); muon: matrices by their "
                             "orthogonalized momentum (Jordan et al. 2024); soap: matrices by Adam "
                             "in the eigenbasis of their preconditioners (Vyas et al. 2024); other "
                             "weights by AdamW", words=("adamw", "muon", "soap"),
                             synonyms=("optimiser", "optim"))
    lr: LearningRate = setting(LearningRate(), "peak learning rate; a number is its `base`",
                               group_schema=LEARNING_RATE_SCHEMA,
                               synonyms=("learning_rate", "peak_lr", "max_lr"))
    matrix_lr_factor: float | None = setting(
        None, "learning rate of the matrices of muon and soap, " "relative to the other weights",
        low=0, default_text="2 for muon, 1 for soap",
        deprecated=("matrix_rate",), synonyms=("muon_lr", "matrix_lr"))
    schedule: str = setting("cosine",
                            "learning rate after the warm-up: cosine or linear to 0 at the end of "
                            "the budget, wsd (constant, then linear to 0 in the `cooldown`), "
                            "inverse_sqrt (lr · √(warmup / position)) or constant",
                            words=("cosine", "linear", "wsd", "inverse_sqrt", "constant"),
                            synonyms=("lr_schedule", "scheduler", "lr_scheduler",
                                      "lr_scheduler_type", "decay"))
    warmup: float = setting(0.06, "linear increase of the learning rate from 0", low=0,
                            unit=STEPS_OR_SHARE_UNIT,
                            synonyms=("warmup_steps", "warmup_updates", "warmup_ratio"))
    cooldown: float = setting(0.2, "end of wsd in which the learning rate decreases", low=0, high=1,
                              unit="share of the budget", synonyms=("decay_ratio", "cooldown_frac"))
    momentum: float = setting(0.95, "decay of the mean gradient of muon and soap", low=0,
                              high=0.9999999, synonyms=("muon_momentum",))
    beta1: float = setting(0.9, "Adam's decay of the mean gradient", low=0, high=0.9999999,
                           synonyms=("adam_beta1", "betas"))
    beta2: float = setting(0.98, "Adam's decay of the mean squared gradient", low=0, high=0.9999999,
                           synonyms=("adam_beta2",))
    eps: float = setting(1e-9, "Adam's epsilon", low=0,
                         synonyms=("adam_eps", "adam_epsilon", "epsilon"))
    weight_decay: float = setting(0.0, "decoupled weight decay (AdamW), for matrices only", low=0,
                                  synonyms=("wd", "l2"))
    clip_norm: float = setting(1.0, "maximum 2-norm of the gradient; 0 disables clipping", low=0,
                               synonyms=("max_grad_norm", "grad_clip", "gradient_clipping",
                                         "clip_grad_norm", "clip"))
    label_smoothing: float = setting(
        0.1, "share of the target probability that is spread over all " "tokens", low=0,
        high=0.9999, synonyms=("smoothing", "label_smoothing_factor"))
    distillation_weight: float = setting(0.5,
                                         "weight of the teacher's probabilities in the target, if "
                                         "the data have `soft_targets`", low=0, high=1,
                                         deprecated=("soft_share",), synonyms=("kd_weight",))
    dropout: float = setting(0.1, "dropout of sub-layer outputs and embeddings", low=0, high=0.9999,
                             synonyms=("dropout_rate", "hidden_dropout", "resid_dropout",
                                       "p_dropout"))
    attention_dropout: float = setting(0.0, "dropout of attention weights", low=0, high=0.9999,
                                       synonyms=("attn_dropout", "attention_probs_dropout_prob"))
    activation_dropout: float = setting(0.0, "dropout inside feed-forward networks", low=0,
                                        high=0.9999, synonyms=("relu_dropout", "ffn_dropout"))
    subword_dropout: float = setting(
        0.0,
        "BPE-dropout (Provilkov et al. 2020): share of merges that "
        "are left out in the training text; re-tokenized every epoch", low=0, high=0.9999,
        synonyms=("bpe_dropout", "subword_regularization", "subword_sampling"))
    rdrop: float = setting(0.0,
                           "α of R-Drop (Liang et al. 2021): each batch passes the model twice "
                           "with different dropout, and the loss includes the distance of both "
                           "predictions; 0 disables it", low=0,
                           synonyms=("r_drop", "reg_alpha", "rdrop_alpha"))
    residual_scaling: str = setting("none",
                                    "scaling of residual branches: deepnet: post-norm branches "
                                    "start small and have proportional learning rates (Wang et al. "
                                    "2022); scaled: deepnet, and pre-norm branches start with "
                                    "1/√branches", words=("none", "deepnet", "scaled"),
                                    deprecated=("residual",), deprecated_words={"plain": "none"},
                                    synonyms=("depth_scaling",))
    zero_init: bool = setting(False, "initialize the last maps of residual branches with zeros",
                              deprecated=("zero_out",))
    init: str = setting("xavier", "initialization scheme of the weights",
                        words=("xavier", "released", "partialformer", "edgeformer", "anthe",
                               "torch"),
                        synonyms=("initialization", "initialisation", "initializer", "weight_init"))

    validate_every: float = setting(
        0.1, "interval of validations; 0 for only at the end", low=0, unit=STEPS_OR_SHARE_UNIT,
        synonyms=("eval_every", "eval_steps", "val_interval", "validate_interval"))
    validate_metric: bool = setting(False,
                                    "also decode the validation split, greedily, for the main "
                                    "metric of the task, such as BLEU",
                                    deprecated=("validate_bleu",), synonyms=("eval_bleu",))
    monitor: str = setting(
        "loss", "which validation is better: by loss, or by the main metric of the task",
        words=("loss", "metric"), deprecated=("watch",), deprecated_words={"bleu": "metric"},
        synonyms=("early_stopping_metric", "best_metric"))
    patience: int | None = setting(
        None, "stop after this many validations without improvement of " "`monitor`",
        unit="validations", synonyms=("early_stopping", "early_stopping_patience"))
    average: str = setting("last",
                           "average of weights: at the last moments, or at the best validations; "
                           "ema: moving average over the last `average_count · average_every` of "
                           "the updates, which validations and rungs use too; none: no average",
                           words=("last", "best", "ema", "none"),
                           synonyms=("average_checkpoints", "checkpoint_averaging", "averaging",
                                     "swa"))
    average_count: int = setting(5, "number of averaged moments",
                                 synonyms=("num_average", "average_last"))
    average_every: float = setting(0.02, "interval of the last moments; the end is one of them",
                                   low=0, unit=STEPS_OR_SHARE_UNIT)

    beam: int = setting(5, "beam size of decoding; 1 is greedy",
                        synonyms=("beam_size", "num_beams", "beam_width"))
    length_penalty: float = setting(1.0,
                                    "exponent of the length that divides the score of a hypothesis",
                                    low=0, high=10, synonyms=("lenpen", "alpha", "len_penalty"))
    decode_with: str = setting(DECODE_WITH_MODEL,
                               "what translates the texts that are scored at the end: the trained "
                               "model, or the exported model of this format and quantization",
                               words=(DECODE_WITH_MODEL, *RUNTIMES))
    score_splits: str = setting("both", "both: validation selects, and test is also reported",
                                words=("both", "validation", "test"), deprecated=("score_on",),
                                deprecated_words={"valid": "validation"},
                                synonyms=("score_split", "eval_split"))
    measure: str = setting("none",
                           "also measure latency per sentence or peak memory of training; a study "
                           "sets it by its objectives", words=("none", "latency", "memory", "both"))

    precision: str = setting("auto", "auto: bf16 if the hardware supports it well",
                             words=("auto", "fp32", "bf16"),
                             synonyms=("dtype", "fp16", "bf16", "mixed_precision", "amp"))
    compile: str = setting("auto", "torch.compile; auto: for long runs on a GPU",
                           words=("auto", "yes", "no"), synonyms=("torch_compile",))
    device: str = setting("auto", "where to train", words=("auto", "cpu", "cuda"),
                          synonyms=("accelerator", "gpu", "use_gpu"))
    threads: int | None = setting(None, "threads of this process; none: unchanged", unit="threads",
                                  high=MAX_THREADS, synonyms=("num_threads", "cpus"))
    checkpoint_minutes: float = setting(
        2.0, "interval of checkpoints to resume from", low=0, unit="minutes",
        synonyms=("save_every", "save_interval", "checkpoint_every"))
    name: str | None = field(default=None, compare=False,
                             metadata=setting(None, "name in tables").metadata)

    def __post_init__(self) -> None:
        coerce_settings(self, RECIPE_FIELDS, "recipe")

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any] | str) -> "Recipe":
        """Read the value of ``recipe:``, a preset or fields.

        Fields override those of ``preset: NAME``. A budget replaces the budget of the preset. Text
        is converted to the type of the field (``"2e-3"``, ``"yes"``).

        Raises:
            SpaceErrors: an unknown key or preset (with the nearest known one), or an invalid value.
        """
        recipe: Recipe = read_constants(RECIPE_SCHEMA, to_node("recipe", mapping))
        return recipe

    def to_json(self) -> dict[str, Any]:
        """Return every field as a JSON value; ``from_mapping`` reads them back."""
        return asdict(self)

    @property
    def resolved_matrix_lr_factor(self) -> float:
        """Learning rate of matrices with their own optimizer, relative to other weights."""
        if self.matrix_lr_factor is not None:
            return self.matrix_lr_factor
        return 2.0 if self.optimizer == "muon" else 1.0

    def describe(self) -> str:
        """Describe budget, batch, optimizer and averaging in one line."""
        budgets = [(name, getattr(self, name)) for name in BUDGET_KEYS]
        budget = " or ".join(f"{value:g} {name}" for name, value in budgets if value is not None)
        averaged = {"none": "", "ema": ", moving average of the weights"}.get(
            self.average, f", average of the {self.average} {self.average_count}")
        batch = (f"{self.accumulate} x {self.max_tokens}" if self.accumulate > 1
                 else f"{self.max_tokens}")
        return (f"{budget.replace('_', '-')}; {batch} tokens per batch; {self.optimizer}, lr "
                f"{self.lr.describe()}, {self.schedule}; dropout {self.dropout:g}{averaged}")


# Presets for short runs, with learning rates that suit each architecture (docs/guides/recipes.md).
# Short runs pass over
# the data once or twice: small batches give more updates, and dropout is not needed.
SHORT_RUN_SETTINGS: dict[str, Any] = {
    "max_tokens": 384, "optimizer": "soap",
    "lr": {"base": 4e-3, "reference_sizes": {"width": 128}, "rule": "layerwise"}, "schedule": "wsd",
    "weight_decay": 0.1, "zero_init": True, "residual_scaling": "deepnet", "dropout": 0.0,
    "label_smoothing": 0.0,
}
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {**SHORT_RUN_SETTINGS, "cpu_minutes": 1.0, "beam": 1, "validate_every": 0.25,
              "average_count": 4},
    "short": {**SHORT_RUN_SETTINGS, "cpu_minutes": 5.0},
    "base": {
        "steps": 100_000, "max_tokens": 4096, "lr": 7e-4, "schedule": "inverse_sqrt",
        "warmup": 4000.0, "validate_every": 2000.0, "average_count": 10, "average_every": 1000.0,
        "patience": 10,
    },
    # A small Transformer reaches 41.02 tokenized BLEU on Multi30k: 8,192 tokens per update, about
    # 50 updates per epoch.
    "transformer-tiny": {
        "steps": 8000, "max_tokens": 8192, "lr": 5e-3, "schedule": "inverse_sqrt",
        "warmup": 2000.0, "dropout": 0.3, "label_smoothing": 0.1, "validate_every": 500.0,
        "average_count": 10, "average_every": 50.0, "beam": 5,
    },
    # Recipes of the papers for WMT En-De. They average checkpoints of different epochs; here, of
    # every 1,000 updates.
    "partialformer": {
        "steps": 50_000, "max_tokens": 4096, "accumulate": 16, "lr": 2e-3,
        "schedule": "inverse_sqrt", "warmup": 16_000.0, "beta2": 0.997, "clip_norm": 0.0,
        "dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1,
        "init": "partialformer", "validate_every": 2000.0, "average_count": 10,
        "average_every": 1000.0, "beam": 4, "length_penalty": 0.6,
    },
    "edgeformer": {
        "epochs": 1000.0, "max_tokens": 20_000, "accumulate": 32, "lr": 1e-3,
        "schedule": "inverse_sqrt", "warmup": 4000.0, "beta2": 0.99, "eps": 1e-8,
        "weight_decay": 1e-5, "clip_norm": 0.0, "init": "edgeformer", "validate_every": 1000.0,
        "average_every": 1000.0,
    },
    # 32 sentences of at most 100 tokens per batch; no warm-up, clipping or smoothing.
    "anthe": {
        "minutes": 2880.0, "max_tokens": 3200, "lr": 3.16e-5, "schedule": "constant",
        "warmup": 0.0, "clip_norm": 0.0, "label_smoothing": 0.0, "init": "anthe",
        "validate_every": 2000.0, "patience": 10, "average": "best", "average_count": 1,
    },
}


def _apply_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a recipe: those of ``preset``, overridden by ``values``."""
    overrides = {key: value for key, value in values.items() if key != "preset"}
    preset = values.get("preset")
    if preset is None:
        return overrides
    fields = {"name": preset} | PRESETS[preset]
    if any(overrides.get(key) is not None for key in BUDGET_KEYS):
        fields |= dict.fromkeys(BUDGET_KEYS)
    return fields | overrides


def _find_conflicts(values: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    """Yield problems of fields that are valid separately but not together."""
    recipe = _apply_preset(values)
    if all(recipe.get(key) is None for key in BUDGET_KEYS):
        yield ("", f"no budget: set at least one of {', '.join(BUDGET_KEYS)}",
               "for example `steps: 2000`")
    for key in BUDGET_KEYS:
        if recipe.get(key) == 0:
            yield key, "a budget of 0 trains nothing", None
    if recipe.get("rdrop") and not any(recipe.get(key, getattr(Recipe, key))
                                       for key in DROPOUT_KEYS):
        yield "rdrop", "two passes without dropout are identical", "set `dropout`, or remove rdrop"
    selects = recipe.get("patience") or recipe.get("average") == "best"
    if recipe.get("monitor") == "metric" and not recipe.get("validate_metric") and selects:
        yield "monitor", "the metric is only computed with `validate_metric: yes`", None


def fill_defaults(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Add missing fields to a stored recipe; their defaults change nothing."""
    return Recipe(steps=1).to_json() | {"steps": None} | dict(stored)


def check_compatible(spec: DataSpec, recipe: Recipe) -> None:
    """Check that the recipe fits the task and its metrics can be computed here.

    Raises:
        UserError: with the reason and help.
    """
    task = TASKS[spec.task]
    task.check_options(spec)
    if recipe.subword_dropout and (reason := _fixed_tokens_reason(spec)):
        raise UserError(f"recipe: subword_dropout: {reason}", help="remove subword_dropout",
                        key="recipe.subword_dropout", code="fixed-tokens")
    if recipe.validate_metric and task.score is None:
        raise UserError(f"recipe: validate_metric: a {task.name} generates no text that could be "
                        "scored; each validation reports its perplexity, so remove validate_metric "
                        "and set `monitor: loss`", key="recipe.validate_metric",
                        code="nothing-to-score")


def _fixed_tokens_reason(spec: DataSpec) -> str:
    """Return why the training text cannot be re-tokenized; an empty text if it can."""
    if spec.soft_targets is not None:
        return "soft targets belong to the original tokens"
    if spec.file_format == "text":
        return "the text of a language model is one stream that is tokenized once"
    if spec.vocab_type == "unigram" and spec.tokenizer is None:
        return "it leaves out merges, and a unigram vocabulary has none"
    return ""


def check_model_type(task: str, model_type: str) -> None:
    """Check that the task supports ``encoder-decoder`` or ``decoder-only``.

    Raises:
        UserError: names the type that the task needs.
    """
    needed = TASKS[task].model_type
    if needed is not None and model_type != needed:
        raise UserError(f"the task {task} needs `model: {needed}`, and this architecture is "
                        f"{model_type}", key="space", code="other-model")


RECIPE_FIELDS = schema_of(Recipe, check=_find_conflicts)
_PRESET_FIELD = SchemaField("word", tuple(PRESETS), default=NONE_TEXT, special_values=(NONE_TEXT,),
                            synonyms=("base", "extends", "defaults"),
                            doc="the recipe that the other keys override")
RECIPE_SCHEMA = replace(RECIPE_FIELDS, fields={"preset": _PRESET_FIELD, **RECIPE_FIELDS.fields},
                        shorthand_key="preset",
                        make=lambda **values: Recipe(**_apply_preset(values)))
