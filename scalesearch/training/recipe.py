"""Training recipes: plain, validated values for files, records and options."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import model_validator

from scalesearch.config.model import (
    BeamSize,
    Config,
    Flag,
    NonNegative,
    Positive,
    Size,
    Text,
    number,
    setting,
    size,
    words,
)
from scalesearch.data.spec import DataSpec
from scalesearch.data.split import MASK_RATIO
from scalesearch.errors import UserError
from scalesearch.lowering import EXTRA_LENGTH
from scalesearch.spaces.schema.cost_names import OPTIMIZERS, RUNTIMES
from scalesearch.tasks import TASKS

BUDGET_KEYS = ("steps", "tokens", "epochs", "cpu_minutes", "minutes")
# do not change the model; a resumed run may change them
RESUME_FREE_KEYS = ("threads", "checkpoint_minutes", "name")
# and processes; if their memory does not suffice, OpenMP ends the process without a message
MAX_THREADS = 1024
DECODE_WITH_MODEL = "model"  # value of `decode_with` without an exported model
# with the budget, these determine the costs of training
RECIPE_KEYS_OF_COSTS = ("max_tokens", "accumulate", "optimizer", "rdrop")
STEPS_OR_SHARE_UNIT = "updates, or below 1 a share of the budget"
# make two passes over a batch differ
DROPOUT_KEYS = ("dropout", "attention_dropout", "activation_dropout")


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


class ReferenceSizes(Config):
    """Sizes of the model that the learning rate was tuned for.

    A missing size changes no rate.
    """

    width: Size | None = setting(None, "its width", synonyms=("d_model", "hidden_size", "dim"))
    head_dim: Size | None = setting(
        None, "its head_dim, for `rule: mup`", synonyms=("d_head", "d_k"))


class LearningRate(Config):
    """Peak of the learning rate, and how it scales with the sizes of the model."""

    shorthand_key = "base"

    base: NonNegative = setting(
        1.2e-3, "peak learning rate for a model of `reference_sizes`",
        synonyms=("peak", "value", "max"))
    rule: Annotated[str, words("none", "embedding", "layerwise", "mup")] = setting(
        "none", "how learning rates and initialization scale with sizes: none; embedding (tables "
        "· width); layerwise (per-layer rates, Everett et al. 2024); mup (Yang et al. 2022)",
        synonyms=("parametrization", "scaling"))
    reference_sizes: ReferenceSizes = setting(
        ReferenceSizes(), "sizes of the model that `base` was tuned for", deprecated=("at",))

    def find_problems(self) -> Iterator[tuple[str, str, str | None]]:
        """Report a rule without the width that it needs."""
        if self.rule != "none" and self.reference_sizes.width is None:
            yield ("rule", f"{self.rule} needs the width that the learning rate was tuned for",
                   "for example `reference_sizes: {width: 128}`")

    def describe(self) -> str:
        """Describe the peak, and the rule with its reference width."""
        if self.rule == "none":
            return f"{self.base:g}"
        return f"{self.base:g} at width {self.reference_sizes.width} ({self.rule})"


class Recipe(Config):
    """Recipe: everything that determines training except data, architecture and seed.

    Training ends when the first budget is used up, and the learning rate follows the largest used
    share of a budget. Validation, decoding and saving do not count towards budgets, so the
    frequency of validation does not change the model. A number of updates below 1 is a share of the
    budget. Adam with a ``weight_decay`` is AdamW, for matrices only.

    Raises:
        ConfigError: lists every invalid field, with help.
    """

    section = "recipe"
    shorthand_key = "preset"

    # only in files, in which it is replaced by the keys of the preset
    preset: Annotated[str, words(*PRESETS)] | None = setting(
        None, "the recipe that the other keys override", synonyms=("base", "extends", "defaults"),
        exclude=True)
    steps: Size | None = setting(
        None, "budget: updates", unit="updates",
        synonyms=("max_steps", "updates", "max_updates", "iterations", "train_steps"))
    tokens: Size | None = setting(
        None, "budget: target tokens without padding", unit="tokens", synonyms=("train_tokens",))
    epochs: Positive | None = setting(
        None, "budget: passes over the training pairs", unit="epochs",
        synonyms=("num_epochs", "max_epochs", "num_train_epochs"))
    cpu_minutes: Positive | None = setting(
        None, "budget: CPU time of updates, summed over threads", unit="CPU-minutes",
        synonyms=("cpu_time",))
    minutes: Positive | None = setting(
        None, "budget: wall-clock time of updates", unit="minutes",
        synonyms=("time", "max_time", "wall_time", "timeout"))

    max_tokens: Size = setting(
        512, "tokens per batch, with padding: sentences times tokens of the longer side",
        unit="tokens", synonyms=("batch_size", "batch_tokens", "tokens_per_batch", "batch"))
    accumulate: Size = setting(
        1, "batches per update", unit="batches",
        synonyms=("gradient_accumulation_steps", "update_freq", "accumulation", "grad_accum"))
    optimizer: Annotated[str, words(*OPTIMIZERS)] = setting(
        "adamw", "adamw (Adam without weight_decay); muon: matrices by their orthogonalized "
        "momentum (Jordan et al. 2024); soap: matrices by Adam in the eigenbasis of their "
        "preconditioners (Vyas et al. 2024); other weights by AdamW",
        synonyms=("optimiser", "optim"))
    lr: LearningRate = setting(
        LearningRate(), "peak learning rate; a number is its `base`",
        synonyms=("learning_rate", "peak_lr", "max_lr"))
    matrix_lr_factor: NonNegative | None = setting(
        None, "learning rate of the matrices of muon and soap, relative to the other weights",
        default_text="2 for muon, 1 for soap", deprecated=("matrix_rate",),
        synonyms=("muon_lr", "matrix_lr"))
    schedule: Annotated[str, words("cosine", "linear", "wsd", "inverse_sqrt",
                                   "constant")] = setting(
        "cosine", "learning rate after the warm-up: cosine or linear to 0 at the end of the "
        "budget, wsd (constant, then linear to 0 in the `cooldown`), inverse_sqrt "
        "(lr · √(warmup / position)) or constant",
        synonyms=("lr_schedule", "scheduler", "lr_scheduler", "lr_scheduler_type", "decay"))
    warmup: NonNegative = setting(
        0.06, "linear increase of the learning rate from 0", unit=STEPS_OR_SHARE_UNIT,
        synonyms=("warmup_steps", "warmup_updates", "warmup_ratio"))
    cooldown: Annotated[float, number(0, 1)] = setting(
        0.2, "end of wsd in which the learning rate decreases", unit="share of the budget",
        synonyms=("decay_ratio", "cooldown_frac"))
    momentum: Annotated[float, number(0, 0.9999999)] = setting(
        0.95, "decay of the mean gradient of muon and soap", synonyms=("muon_momentum",))
    beta1: Annotated[float, number(0, 0.9999999)] = setting(
        0.9, "Adam's decay of the mean gradient", synonyms=("adam_beta1", "betas"))
    beta2: Annotated[float, number(0, 0.9999999)] = setting(
        0.98, "Adam's decay of the mean squared gradient", synonyms=("adam_beta2",))
    eps: NonNegative = setting(
        1e-9, "Adam's epsilon", synonyms=("adam_eps", "adam_epsilon", "epsilon"))
    weight_decay: NonNegative = setting(
        0.0, "decoupled weight decay (AdamW), for matrices only", synonyms=("wd", "l2"))
    clip_norm: NonNegative = setting(
        1.0, "maximum 2-norm of the gradient; 0 disables clipping",
        synonyms=("max_grad_norm", "grad_clip", "gradient_clipping", "clip_grad_norm", "clip"))
    label_smoothing: Annotated[float, number(0, 0.9999)] = setting(
        0.1, "share of the target probability that is spread over all tokens",
        synonyms=("smoothing", "label_smoothing_factor"))
    distillation_weight: Annotated[float, number(0, 1)] = setting(
        0.5, "weight of the teacher's probabilities in the target, if the data have `soft_targets`",
        deprecated=("soft_share",), synonyms=("kd_weight",))
    dropout: Annotated[float, number(0, 0.9999)] = setting(
        0.1, "dropout of sub-layer outputs and embeddings",
        synonyms=("dropout_rate", "hidden_dropout", "resid_dropout", "p_dropout"))
    attention_dropout: Annotated[float, number(0, 0.9999)] = setting(
        0.0, "dropout of attention weights",
        synonyms=("attn_dropout", "attention_probs_dropout_prob"))
    activation_dropout: Annotated[float, number(0, 0.9999)] = setting(
        0.0, "dropout inside feed-forward networks", synonyms=("relu_dropout", "ffn_dropout"))
    subword_dropout: Annotated[float, number(0, 0.9999)] = setting(
        0.0, "BPE-dropout (Provilkov et al. 2020): share of merges that are left out in the "
        "training text; re-tokenized every epoch",
        synonyms=("bpe_dropout", "subword_regularization", "subword_sampling"))
    mask_ratio: Annotated[float, number(0.01, 0.9)] = setting(
        MASK_RATIO, "share of the tokens that a masked language model predicts in training; "
        f"evaluations mask {MASK_RATIO:.0%}", synonyms=("mlm_probability", "masking_ratio"))
    balance_loss: NonNegative = setting(
        0.01, "weight of the loss that balances the load of experts (Fedus et al. 2022), if a "
        "feed-forward network is a mixture", synonyms=("router_aux_loss_coef", "aux_loss"))
    rdrop: NonNegative = setting(
        0.0, "α of R-Drop (Liang et al. 2021): each batch passes the model twice with different "
        "dropout, and the loss includes the distance of both predictions; 0 disables it",
        synonyms=("r_drop", "reg_alpha", "rdrop_alpha"))
    residual_scaling: Annotated[
        str, words("none", "deepnet", "scaled", deprecated={"plain": "none"})] = setting(
        "none", "scaling of residual branches: deepnet: post-norm branches start small and have "
        "proportional learning rates (Wang et al. 2022); scaled: deepnet, and pre-norm branches "
        "start with 1/√branches", deprecated=("residual",), synonyms=("depth_scaling",))
    zero_init: Flag = setting(
        False, "initialize the last maps of residual branches with zeros", deprecated=("zero_out",))
    init: Annotated[str, words("xavier", "released", "partialformer", "edgeformer", "anthe",
                               "torch")] = setting(
        "xavier", "initialization scheme of the weights",
        synonyms=("initialization", "initialisation", "initializer", "weight_init"))

    validate_every: NonNegative = setting(
        0.1, "interval of validations; 0 for only at the end", unit=STEPS_OR_SHARE_UNIT,
        synonyms=("eval_every", "eval_steps", "val_interval", "validate_interval"))
    validate_metric: Flag = setting(
        False, "also decode the validation split, greedily, for the main metric of the task, such "
        "as BLEU", deprecated=("validate_bleu",), synonyms=("eval_bleu",))
    monitor: Annotated[str, words("loss", "metric", deprecated={"bleu": "metric"})] = setting(
        "loss", "criterion of the best validation: loss, or the main metric of the task",
        deprecated=("watch",), synonyms=("early_stopping_metric", "best_metric"))
    patience: Size | None = setting(
        None, "stop after this many validations without improvement of `monitor`",
        unit="validations", synonyms=("early_stopping", "early_stopping_patience"))
    average: Annotated[str, words("last", "best", "ema", "none")] = setting(
        "last", "average of weights: the last checkpoints, or the best by validation; ema: moving "
        "average over the last `average_count · average_every` of the updates, which validations "
        "and rungs use too; none: no average",
        synonyms=("average_checkpoints", "checkpoint_averaging", "averaging", "swa"))
    average_count: Size = setting(
        5, "number of averaged checkpoints", synonyms=("num_average", "average_last"))
    average_every: NonNegative = setting(
        0.02, "interval of the last checkpoints; the end is one of them", unit=STEPS_OR_SHARE_UNIT)

    beam: BeamSize = setting(
        5, "beam size of decoding; 1 is greedy", synonyms=("beam_size", "num_beams", "beam_width"))
    length_penalty: Annotated[float, number(0, 10)] = setting(
        1.0, "exponent of the length that divides the score of a hypothesis",
        synonyms=("lenpen", "alpha", "len_penalty"))
    max_length_a: Annotated[float, number(0, 1000)] | None = setting(
        None, "a translation has at most `max_length_a` · source tokens + `max_length_b` tokens; "
        "none: at least 1.5, and enough for 99.9 % of the training pairs",
        synonyms=("max_len_a",))
    max_length_b: Annotated[int, size(0, 100_000)] = setting(
        EXTRA_LENGTH, "tokens of a translation in addition to `max_length_a` per source token",
        unit="tokens", synonyms=("max_len_b",))
    decode_with: Annotated[str, words(DECODE_WITH_MODEL, *RUNTIMES)] = setting(
        DECODE_WITH_MODEL, "what translates the texts that are scored at the end: the trained "
        "model, or the exported model of this format and quantization")
    score_splits: Annotated[
        str, words("both", "validation", "test", deprecated={"valid": "validation"})] = setting(
        "both", "both: validation selects, and test is also reported", deprecated=("score_on",),
        synonyms=("score_split", "eval_split"))
    measure: Annotated[str, words("none", "latency", "memory", "both")] = setting(
        "none", "also measure latency per sentence or peak memory of training; a study sets it by "
        "its objectives")

    precision: Annotated[str, words("auto", "fp32", "bf16")] = setting(
        "auto", "auto: bf16 if the hardware supports it well",
        synonyms=("dtype", "fp16", "bf16", "mixed_precision", "amp"))
    compile: Annotated[str, words("auto", "yes", "no")] = setting(
        "auto", "compile layers and loss with torch.compile; auto: on a GPU, if training takes "
        "more than ten minutes there", synonyms=("torch_compile",))
    bucketing: Annotated[str, words("auto", "yes", "no")] = setting(
        "auto", "pad batches to at most 16 shapes, whose updates a GPU runs as CUDA graphs; auto: "
        "on a GPU", synonyms=("bucket_batches", "cuda_graphs"))
    device: Annotated[str, words("auto", "cpu", "cuda")] = setting(
        "auto", "where to train", synonyms=("accelerator", "gpu", "use_gpu"))
    threads: Annotated[int, size(high=MAX_THREADS)] | None = setting(
        None, "threads of this process; none: unchanged", unit="threads",
        synonyms=("num_threads", "cpus"))
    checkpoint_minutes: NonNegative = setting(
        2.0, "interval of checkpoints to resume from", unit="minutes",
        synonyms=("save_every", "save_interval", "checkpoint_every"))
    name: Text | None = setting(None, "name in tables")

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, values: Any) -> Any:
        """Add the keys of the preset; a budget replaces the budget of the preset.

        A new learning rate keeps the preset's rule.
        """
        values = {"preset": values} if not isinstance(values, dict | Config) else values
        preset = values.get("preset") if isinstance(values, dict) else None
        if preset is None or preset not in PRESETS:
            return values
        overrides = {key: value for key, value in values.items() if key != "preset"}
        settings = {"name": preset} | PRESETS[preset]
        if any(overrides.get(key) is not None for key in BUDGET_KEYS):
            settings |= dict.fromkeys(BUDGET_KEYS)
        lr = overrides.get("lr")
        if isinstance(settings.get("lr"), dict) and "lr" in overrides and not isinstance(
                lr, LearningRate):
            overrides["lr"] = settings["lr"] | (lr if isinstance(lr, dict) else {"base": lr})
        return settings | overrides

    def find_problems(self) -> Iterator[tuple[str, str, str | None]]:
        """Yield conflicts of keys."""
        if all(getattr(self, key) is None for key in BUDGET_KEYS):
            yield ("", f"no budget: set at least one of {', '.join(BUDGET_KEYS)}",
                   "for example `steps: 2000`")
        if self.rdrop and not any(getattr(self, key) for key in DROPOUT_KEYS):
            yield ("rdrop", "two passes without dropout are identical",
                   "set `dropout`, or remove rdrop")
        selects = self.patience is not None or self.average == "best"
        if self.monitor == "metric" and not self.validate_metric and selects:
            yield "monitor", "the metric is only computed with `validate_metric: yes`", None

    def __eq__(self, other: object) -> bool:
        """Whether two recipes are equal except for their names."""
        return isinstance(other, Recipe) and self.model_dump() | {"name": None} == (
            other.model_dump() | {"name": None})

    def __hash__(self) -> int:
        return hash(tuple(value for key, value in self if key != "name"))

    @property
    def resolved_matrix_lr_factor(self) -> float:
        """Learning rate of matrices with their own optimizer, relative to other weights."""
        if self.matrix_lr_factor is not None:
            return self.matrix_lr_factor
        return 2.0 if self.optimizer == "muon" else 1.0

    def protocol_settings(self, epoch_pairs: int | None = None) -> dict[str, Any]:
        """Settings of a cost protocol for the costs of training.

        A run that is limited by time has no length in tokens.

        Args:
            epoch_pairs: sentence pairs of the training text, for ``epochs``.
        """
        settings: dict[str, Any] = {"max_tokens": self.max_tokens, "accumulate": self.accumulate,
                                    "optimizer": self.optimizer,
                                    "passes_per_batch": 2 if self.rdrop else 1}
        lengths = {"steps": self.steps, "tokens": self.tokens}
        if self.epochs is not None and epoch_pairs is not None:
            lengths["pairs"] = max(1, round(self.epochs * epoch_pairs))
        has_other_limit = self.minutes is not None or self.cpu_minutes is not None or (
            self.epochs is not None and epoch_pairs is None)
        return settings if has_other_limit else settings | lengths

    def describe(self) -> str:
        """Describe budget, batch, optimizer and averaging in one line."""
        budgets = [(name, getattr(self, name)) for name in BUDGET_KEYS]
        budget = " or ".join(f"{value:,.12g} {name[:-1] if value == 1 else name}"
                             for name, value in budgets if value is not None)
        checkpoints = (f"average of at most {self.average_count} {self.average} checkpoints"
                       if self.average_count > 1 else f"the {self.average} checkpoint")
        averaged = {"none": "", "ema": ", moving average of the weights"}.get(
            self.average, f", {checkpoints}")
        batch = f"{self.accumulate} x " * (self.accumulate > 1) + f"{self.max_tokens:,}"
        warning = ""
        if self.steps is not None and self.warmup >= max(1, self.steps):
            warning = (f"; warning: the warm-up ({self.warmup:,.12g} updates) does not end in "
                       "this run")
        return (f"{budget.replace('_', '-')}; {batch} tokens per batch; {self.optimizer}, lr "
                f"{self.lr.describe()}, {self.schedule}; dropout {self.dropout:g}{averaged}"
                f"{warning}")


def fill_defaults(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Add missing fields to a stored recipe; their defaults change nothing."""
    return Recipe(steps=1).model_dump() | {"steps": None} | dict(stored)


def check_compatible(spec: DataSpec, recipe: Recipe) -> None:
    """Check that the recipe fits the task and its metrics can be computed here.

    Raises:
        UserError: with the reason and help.
    """
    task = TASKS[spec.task]
    task.check_options(spec)
    reason = ""
    if spec.soft_targets is not None:
        reason = "soft targets belong to the original tokens"
    elif spec.file_format == "text":
        reason = "the text of a language model is one stream that is tokenized once"
    elif spec.vocab_type == "unigram" and spec.tokenizer is None:
        reason = "it leaves out merges, and a unigram vocabulary has none"
    if recipe.subword_dropout and reason:
        raise UserError(f"recipe: subword_dropout: {reason}", help="remove subword_dropout",
                        key="recipe.subword_dropout", code="fixed-tokens")
    if recipe.score_splits == "test" and not (spec.test or spec.builtin):
        raise UserError("recipe: score_splits: the data have no test text",
                        help="set `test` in the data, or score_splits to `validation`",
                        key="recipe.score_splits", code="nothing-to-score")
    if recipe.validate_metric and task.score is None:
        raise UserError(f"recipe: validate_metric: a {task.name} generates no text that could be "
                        "scored; each validation reports its loss, so remove validate_metric "
                        "and set `monitor: loss`", key="recipe.validate_metric",
                        code="nothing-to-score")
    if recipe.decode_with != DECODE_WITH_MODEL and not task.generates_text:
        raise UserError(f"recipe: decode_with: a {task.name} generates no text, and only torch "
                        "exports such models", help="remove decode_with",
                        key="recipe.decode_with", code="nothing-to-score")


def check_model_type(task: str, model_type: str) -> None:
    """Check that the task supports a model type, such as ``encoder-decoder``.

    Raises:
        UserError: names the type that the task needs.
    """
    supported = TASKS[task].model_types
    if model_type not in supported:
        raise UserError(f"the task {task} needs `model: {' or '.join(supported)}`, and "
                        f"this architecture is {model_type}", key="space", code="other-model")
