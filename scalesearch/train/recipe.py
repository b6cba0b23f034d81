"""How to train: a recipe of plain values, checked when made, the same in files, records and on the command line."""

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
# change nothing that is learned: a resumed run may have others
RESUME_FREE_KEYS = ("threads", "checkpoint_minutes", "name")
# and processes; where memory does not hold its threads, OpenMP ends the process without a word
MAX_THREADS = 1024
DECODE_WITH_MODEL = "model"  # `decode_with`: no artifact
STEPS_OR_SHARE_UNIT = "updates, or below 1 a share of the budget"


@dataclass(frozen=True)
class ReferenceSizes:
    """Sizes of the model that the learning rate was chosen for; what is not given changes no rate."""

    width: int | None = setting(None, "its width", low=1,
                                synonyms=("d_model", "hidden_size", "dim"))
    head_dim: int | None = setting(None, "its head_dim, for `rule: mup`", low=1,
                                   synonyms=("d_head", "d_k"))


@dataclass(frozen=True)
class LearningRate:
    """Peak of the learning rate, and how it follows a model's sizes."""

    base: float = setting(1.2e-3, "peak, of the model described by `reference_sizes`", low=0,
                          synonyms=("peak", "value", "max"))
    rule: str = setting("none",
                        "how rates and first values follow sizes: none; embedding (tables · "
                        "width); layerwise (per-layer rates, Everett et al. 2024); mup (Yang et "
                        "al. 2022)", words=("none", "embedding", "layerwise", "mup"),
                        synonyms=("parametrization", "scaling"))
    reference_sizes: ReferenceSizes = setting(
        ReferenceSizes(), "sizes that `base` was chosen at", group_schema=schema_of(ReferenceSizes),
        deprecated=("at",))

    def to_json(self) -> dict[str, Any]:
        """Every field as a JSON value."""
        return asdict(self)

    def describe(self) -> str:
        """The peak, and its rule with the width that it starts from."""
        return (f"{self.base:g}" if self.rule == "none"
                else f"{self.base:g} at width {self.reference_sizes.width} ({self.rule})")


def _rule_conflicts(values: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    at = values.get("reference_sizes") or ReferenceSizes()
    if values.get("rule", "none") != "none" and at.width is None:
        yield "rule", f"{values['rule']} needs the width that the rate was chosen at", "for example `reference_sizes: {width: 128}`"


LEARNING_RATE_SCHEMA = schema_of(LearningRate, shorthand_key="base", check=_rule_conflicts)


@dataclass(frozen=True)
class Recipe:
    """Everything that decides how a model is trained and scored, besides data, architecture and seed.

    The first budget that is reached ends training, and the learning rate follows the largest share
    used up. Validation, decoding and saving count towards none of them, so looking more often
    changes nothing learned. A number of updates below 1 is a share of the budget. Adam with a
    ``weight_decay`` is AdamW, for matrices only.

    Raises:
        SpaceErrors: naming every field that is wrong, and what would be right.
    """

    steps: int | None = setting(None, "budget: updates", low=0, unit="updates",
                                synonyms=("max_steps", "updates", "max_updates", "iterations",
                                          "train_steps"))
    tokens: int | None = setting(None, "budget: real target tokens", low=0, unit="tokens",
                                 synonyms=("train_tokens",))
    epochs: float | None = setting(None, "budget: passes over the training pairs", low=0,
                                   unit="epochs",
                                   synonyms=("num_epochs", "max_epochs", "num_train_epochs"))
    cpu_minutes: float | None = setting(None, "budget: CPU time of updates, of all threads", low=0,
                                        unit="CPU-minutes", synonyms=("cpu_time",))
    minutes: float | None = setting(None, "budget: wall-clock time of updates", low=0,
                                    unit="minutes",
                                    synonyms=("time", "max_time", "wall_time", "timeout"))

    max_tokens: int = setting(512, "places in a batch: sentences times the longer side",
                              unit="tokens",
                              synonyms=("batch_size", "batch_tokens", "tokens_per_batch", "batch"))
    accumulate: int = setting(1, "batches an update", unit="batches",
                              synonyms=("gradient_accumulation_steps", "update_freq",
                                        "accumulation", "grad_accum"))
    optimizer: str = setting("adamw",
                             "adamw (Adam without a weight_decay); muon: matrices by their "
                             "orthogonalized momentum (Jordan et al. 2024); soap: matrices by Adam "
                             "in their preconditioners' eigenbasis (Vyas et al. 2024); all else by "
                             "AdamW", words=("adamw", "muon", "soap"),
                             synonyms=("optimiser", "optim"))
    lr: LearningRate = setting(LearningRate(), "peak of the learning rate; a number is its `base`",
                               group_schema=LEARNING_RATE_SCHEMA,
                               synonyms=("learning_rate", "peak_lr", "max_lr"))
    matrix_lr_factor: float | None = setting(
        None, "rate of the matrices of muon and soap, times that of " "all else", low=0,
        default_text="2 for muon, 1 for soap", deprecated=("matrix_rate",), synonyms=("muon_lr", "matrix_lr"))
    schedule: str = setting("cosine",
                            "after the warm-up: cosine or linear to 0 at the budget's end, wsd "
                            "(constant, then linear to 0 in the `cooldown`), inverse_sqrt (lr · "
                            "√(warmup / position)) or constant",
                            words=("cosine", "linear", "wsd", "inverse_sqrt", "constant"),
                            synonyms=("lr_schedule", "scheduler", "lr_scheduler",
                                      "lr_scheduler_type", "decay"))
    warmup: float = setting(0.06, "linear rise of the learning rate from 0", low=0,
                            unit=STEPS_OR_SHARE_UNIT,
                            synonyms=("warmup_steps", "warmup_updates", "warmup_ratio"))
    cooldown: float = setting(0.2, "of wsd: the end, where the rate falls", low=0, high=1,
                              unit="share of the budget", synonyms=("decay_ratio", "cooldown_frac"))
    momentum: float = setting(0.95, "muon's and soap's decay of means of gradients", low=0,
                              high=0.9999999, synonyms=("muon_momentum",))
    beta1: float = setting(0.9, "Adam's decay of the gradient's mean", low=0, high=0.9999999,
                           synonyms=("adam_beta1", "betas"))
    beta2: float = setting(0.98, "Adam's decay of the squared gradient's mean", low=0,
                           high=0.9999999, synonyms=("adam_beta2",))
    eps: float = setting(1e-9, "Adam's epsilon", low=0,
                         synonyms=("adam_eps", "adam_epsilon", "epsilon"))
    weight_decay: float = setting(0.0, "decoupled decay (AdamW), of matrices only", low=0,
                                  synonyms=("wd", "l2"))
    clip_norm: float = setting(1.0, "bound on the gradient's 2-norm; 0 leaves it alone", low=0,
                               synonyms=("max_grad_norm", "grad_clip", "gradient_clipping",
                                         "clip_grad_norm", "clip"))
    label_smoothing: float = setting(
        0.1, "share of the target's probability spread over all tokens", low=0, high=0.9999,
        synonyms=("smoothing", "label_smoothing_factor"))
    distillation_weight: float = setting(0.5,
                                         "share of the target's probability that is the teacher's, "
                                         "where the data have `soft_targets`", low=0, high=1,
                                         deprecated=("soft_share",), synonyms=("kd_weight",))
    dropout: float = setting(0.1, "of sub-layer outputs and embeddings", low=0, high=0.9999,
                             synonyms=("dropout_rate", "hidden_dropout", "resid_dropout",
                                       "p_dropout"))
    attention_dropout: float = setting(0.0, "of attention weights", low=0, high=0.9999,
                                       synonyms=("attn_dropout", "attention_probs_dropout_prob"))
    activation_dropout: float = setting(0.0, "inside feed-forward networks", low=0, high=0.9999,
                                        synonyms=("relu_dropout", "ffn_dropout"))
    subword_dropout: float = setting(
        0.0,
        "BPE-dropout (Provilkov et al. 2020): share of the merges "
        "left out of the training text, drawn anew every epoch", low=0, high=0.9999,
        synonyms=("bpe_dropout", "subword_regularization", "subword_sampling"))
    rdrop: float = setting(0.0,
                           "α of R-Drop (Liang et al. 2021): every batch is read twice, under "
                           "dropout of its own, and the two predictions are drawn together; 0 "
                           "reads it once", low=0, synonyms=("r_drop", "reg_alpha", "rdrop_alpha"))
    residual_scaling: str = setting("none",
                                    "deepnet: branches start small and learn in proportion where "
                                    "norms come after (Wang et al. 2022); scaled: by 1/√branches "
                                    "where they come before, too",
                                    words=("none", "deepnet", "scaled"),
                                    deprecated=("residual",),
                                    deprecated_words={"plain": "none"},
                                    synonyms=("depth_scaling",))
    zero_init: bool = setting(False, "the last maps of residual branches start at zero",
                              deprecated=("zero_out",))
    init: str = setting("xavier", "scheme of the first weights",
                        words=("xavier", "released", "partialformer", "edgeformer", "anthe",
                               "torch"),
                        synonyms=("initialization", "initialisation", "initializer", "weight_init"))

    validate_every: float = setting(
        0.1, "distance of validations; 0 for only at the end", low=0, unit=STEPS_OR_SHARE_UNIT,
        synonyms=("eval_every", "eval_steps", "val_interval", "validate_interval"))
    validate_metric: bool = setting(False,
                                    "also decode the validation split, greedily, for BLEU or the "
                                    "task's first metric", deprecated=("validate_bleu",), synonyms=("eval_bleu",))
    monitor: str = setting(
        "loss", "what validations are compared by; metric: the task's first metric",
        words=("loss", "metric"), deprecated=("watch",), deprecated_words={"bleu": "metric"},
        synonyms=("early_stopping_metric", "best_metric"))
    patience: int | None = setting(None, "stop after so many validations without a better `monitor`",
                                   unit="validations",
                                   synonyms=("early_stopping", "early_stopping_patience"))
    average: str = setting("last",
                           "mean of the weights of the last moments or the best validations; ema: "
                           "moving average over the last `average_count · average_every` of the "
                           "updates so far, by which validations and rungs judge too; none: the "
                           "last weights as they are", words=("last", "best", "ema", "none"),
                           synonyms=("average_checkpoints", "checkpoint_averaging", "averaging",
                                     "swa"))
    average_count: int = setting(5, "how many are averaged",
                                 synonyms=("num_average", "average_last"))
    average_every: float = setting(0.02, "distance of the last moments, the end being one", low=0,
                                   unit=STEPS_OR_SHARE_UNIT)

    beam: int = setting(5, "of decoding; 1 is greedy",
                        synonyms=("beam_size", "num_beams", "beam_width"))
    length_penalty: float = setting(
        1.0, "exponent of the length that a hypothesis's score is divided " "by", low=0, high=10,
        synonyms=("lenpen", "alpha", "len_penalty"))
    decode_with: str = setting(DECODE_WITH_MODEL,
                               "what translates the texts that are scored at the end: the model as "
                               "it was trained, or its artifact of that format and quantization",
                               words=(DECODE_WITH_MODEL, *RUNTIMES))
    score_splits: str = setting(
        "both", "both: the validation score selects, and the test score is also reported",
        words=("both", "validation", "test"), deprecated=("score_on",),
        deprecated_words={"valid": "validation"}, synonyms=("score_split", "eval_split"))
    measure: str = setting("none",
                           "latency of a sentence and peak memory of training too; a study sets it "
                           "by its objectives", words=("none", "latency", "memory", "both"))

    precision: str = setting("auto", "auto: bf16 where the hardware is fast at it",
                             words=("auto", "fp32", "bf16"),
                             synonyms=("dtype", "fp16", "bf16", "mixed_precision", "amp"))
    compile: str = setting("auto", "torch.compile; auto: long runs on a GPU",
                           words=("auto", "yes", "no"), synonyms=("torch_compile",))
    device: str = setting("auto", "where to train", words=("auto", "cpu", "cuda"),
                          synonyms=("accelerator", "gpu", "use_gpu"))
    threads: int | None = setting(None, "of this process; none: as it has them", unit="threads",
                                  high=MAX_THREADS, synonyms=("num_threads", "cpus"))
    checkpoint_minutes: float = setting(
        2.0, "between saves for resuming", low=0, unit="minutes",
        synonyms=("save_every", "save_interval", "checkpoint_every"))
    name: str | None = field(default=None, compare=False,
                             metadata=setting(None, "what tables call it").metadata)

    def __post_init__(self) -> None:
        coerce_settings(self, RECIPE_FIELDS, "recipe")

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any] | str) -> "Recipe":
        """The recipe that ``recipe:`` describes: a preset's name, or fields, laid over ``preset: NAME``.

        A budget that is given replaces the preset's. Text is read as the field's type (``"2e-3"``,
        ``"yes"``).

        Raises:
            SpaceErrors: an unknown key or preset, with the nearest known one, or a wrong value.
        """
        found: Recipe = read_constants(RECIPE_SCHEMA, to_node("recipe", mapping))
        return found

    def to_json(self) -> dict[str, Any]:
        """Every field as a JSON value; ``from_mapping`` reads them back."""
        return asdict(self)

    @property
    def resolved_matrix_lr_factor(self) -> float:
        """Rate of matrices with an optimizer of their own, relative to that of all else."""
        return (self.matrix_lr_factor if self.matrix_lr_factor is not None else 2.0
                if self.optimizer == "muon" else 1.0)

    def describe(self) -> str:
        """One line for a person: budget, batch, optimizer, averaging."""
        budget = " or ".join(f"{getattr(self, name):g} {name}"
                             for name in BUDGET_KEYS if getattr(self, name) is not None)
        averaged = {"none": "", "ema": ", moving average of the weights"}.get(
            self.average, f", average of the {self.average} {self.average_count}")
        batch = (f"{self.accumulate} x {self.max_tokens}" if self.accumulate > 1
                 else f"{self.max_tokens}")
        return (f"{budget.replace('_', '-')}; {batch} tokens a batch; {self.optimizer}, lr "
                f"{self.lr.describe()}, {self.schedule}; dropout {self.dropout:g}{averaged}")


# What learns most in a short time, at rates that suit each architecture (docs/guides/recipes.md).
# Short runs pass over
# the data once or twice: small batches for more updates, and dropout is left out.
SHORT_RUN_SETTINGS: dict[str, Any] = {"max_tokens": 384, "optimizer": "soap",
                                      "lr": {"base": 4e-3, "reference_sizes": {"width": 128},
                                             "rule": "layerwise"}, "schedule": "wsd",
                                      "weight_decay": 0.1, "zero_init": True, "residual_scaling": "deepnet",
                                      "dropout": 0.0, "label_smoothing": 0.0}
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {**SHORT_RUN_SETTINGS, "cpu_minutes": 1.0, "beam": 1, "validate_every": 0.25, "average_count": 4},
    "short": {**SHORT_RUN_SETTINGS, "cpu_minutes": 5.0},
    "base": {
        "steps": 100_000, "max_tokens": 4096, "lr": 7e-4, "schedule": "inverse_sqrt", "warmup": 4000.0,
        "validate_every": 2000.0, "average_count": 10, "average_every": 1000.0, "patience": 10,
    },
    # A small Transformer on Multi30k to 41.02 tokenized BLEU: 8,192 tokens an update, about 50
    # updates an epoch.
    "transformer-tiny": {
        "steps": 8000, "max_tokens": 8192, "lr": 5e-3, "schedule": "inverse_sqrt", "warmup": 2000.0, "dropout": 0.3,
        "label_smoothing": 0.1, "validate_every": 500.0, "average_count": 10, "average_every": 50.0, "beam": 5,
    },
    # The papers' recipes for WMT En-De. Averages are of checkpoints an epoch apart there, 1,000
    # updates here.
    "partialformer": {
        "steps": 50_000, "max_tokens": 4096, "accumulate": 16, "lr": 2e-3, "schedule": "inverse_sqrt",
        "warmup": 16_000.0, "beta2": 0.997, "clip_norm": 0.0, "dropout": 0.1, "attention_dropout": 0.1,
        "activation_dropout": 0.1, "init": "partialformer", "validate_every": 2000.0, "average_count": 10,
        "average_every": 1000.0, "beam": 4, "length_penalty": 0.6,
    },
    "edgeformer": {
        "epochs": 1000.0, "max_tokens": 20_000, "accumulate": 32, "lr": 1e-3, "schedule": "inverse_sqrt",
        "warmup": 4000.0, "beta2": 0.99, "eps": 1e-8, "weight_decay": 1e-5, "clip_norm": 0.0, "init": "edgeformer",
        "validate_every": 1000.0, "average_every": 1000.0,
    },
    # 32 sentences of at most 100 tokens a batch; no warm-up, clipping or smoothing.
    "anthe": {
        "minutes": 2880.0, "max_tokens": 3200, "lr": 3.16e-5, "schedule": "constant", "warmup": 0.0, "clip_norm": 0.0,
        "label_smoothing": 0.0, "init": "anthe", "validate_every": 2000.0, "patience": 10, "average": "best",
        "average_count": 1,
    },
}

# what two passes over one batch differ by
DROPOUT_KEYS = ("dropout", "attention_dropout", "activation_dropout")


def _apply_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a recipe whose file gives ``values``."""
    given = {key: value for key, value in values.items() if key != "preset"}
    if values.get("preset") is None:
        return given
    budgets = dict.fromkeys(BUDGET_KEYS) if any(
        given.get(key) is not None for key in BUDGET_KEYS) else {}
    return {"name": values["preset"]} | PRESETS[values["preset"]] | budgets | given


def _find_conflicts(values: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    """What is wrong with fields that are each right."""
    found = _apply_preset(values)
    if all(found.get(key) is None for key in BUDGET_KEYS):
        yield "", f"no budget: give at least one of {', '.join(BUDGET_KEYS)}", "for example `steps: 2000`"
    for key in BUDGET_KEYS:
        if found.get(key) == 0:
            yield key, "a budget of 0 trains nothing", None
    if found.get("rdrop") and not any(found.get(key, getattr(Recipe, key)) for key in DROPOUT_KEYS):
        yield "rdrop", "two passes without dropout are the same", "give `dropout`, or leave rdrop out"
    chooses = found.get("patience") or found.get("average") == "best"
    if found.get("monitor") == "metric" and not found.get("validate_metric") and chooses:
        yield "monitor", "the metric is only measured with `validate_metric: yes`", None


def fill_defaults(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A stored recipe's JSON with the fields that have come since: by their defaults, training is what it was."""
    return Recipe(steps=1).to_json() | {"steps": None} | dict(stored)


def check_compatible(spec: DataSpec, recipe: Recipe) -> None:
    """Checks that the task's metrics can be computed here, and that the recipe fits it.

    Raises:
        UserError: saying which, and what would be right.
    """
    task = TASKS[spec.task]
    task.check_options(spec)
    if recipe.subword_dropout and (why := _fixed_tokens_reason(spec)):
        raise UserError(f"recipe: subword_dropout: {why}", help="leave subword_dropout out",
                        key="recipe.subword_dropout", code="fixed-tokens")
    if recipe.validate_metric and task.score is None:
        raise UserError(f"recipe: validate_metric: a {task.name} generates nothing that could be "
                        "scored; its perplexity is known at each validation, so leave it out, and "
                        "`monitor: loss`", key="recipe.validate_metric", code="nothing-to-score")


def _fixed_tokens_reason(spec: DataSpec) -> str:
    """Why the training text of ``spec`` cannot be cut into tokens anew; empty where it can."""
    if spec.soft_targets is not None:
        return "soft targets are of the tokens as they were"
    if spec.file_format == "text":
        return "a language model's text is one stream, cut once"
    unigram = spec.vocab_type == "unigram" and spec.tokenizer is None
    return "it leaves merges out, and a unigram vocabulary has none" if unigram else ""


def check_model_type(task: str, model_type: str) -> None:
    """Checks that the task can use a kind of model (``encoder-decoder`` or ``decoder-only``).

    Raises:
        UserError: naming the kind that it needs.
    """
    needed = TASKS[task].model_type
    if needed is not None and model_type != needed:
        raise UserError(f"the task {task} needs `model: {needed}`, and this architecture is "
                        f"{model_type}", key="space", code="other-model")


RECIPE_FIELDS = schema_of(Recipe, check=_find_conflicts)
RECIPE_SCHEMA = replace(RECIPE_FIELDS,
                        fields={"preset": SchemaField("word", tuple(PRESETS), default=NONE_TEXT,
                                                      special_values=(NONE_TEXT,),
                                                      synonyms=("base", "extends", "defaults"),
                                                      doc="the recipe that the other keys change"),
                                **RECIPE_FIELDS.fields}, shorthand_key="preset",
                        make=lambda **values: Recipe(**_apply_preset(values)))
