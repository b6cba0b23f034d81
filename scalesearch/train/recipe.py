"""How to train: a recipe of plain values, checked when made, the same in files, records and on the command line."""

import difflib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_type_hints

from scalesearch.errors import UserError

BUDGETS = ("steps", "tokens", "epochs", "cpu_minutes", "minutes")
CHOICES = {
    "schedule": ("cosine", "linear", "inverse_sqrt", "constant"),
    "watch": ("loss", "bleu"),
    "average": ("last", "best", "none"),
    "score_on": ("both", "valid", "test"),
    "measure": ("none", "latency", "memory", "both"),
    "init": ("xavier", "released", "partialformer", "edgeformer", "anthe", "torch"),
    "precision": ("auto", "fp32", "bf16"),
    "compile": ("auto", "yes", "no"),
    "device": ("auto", "cpu", "cuda"),
}
# Field to the least and the most it may be; None leaves a side open.
BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "max_tokens": (1, None), "accumulate": (1, None), "lr": (0, None), "warmup": (0, None),
    "beta1": (0, 0.9999999), "beta2": (0, 0.9999999), "eps": (0, None), "weight_decay": (0, None),
    "clip_norm": (0, None), "label_smoothing": (0, 0.9999), "dropout": (0, 0.9999),
    "attention_dropout": (0, 0.9999), "activation_dropout": (0, 0.9999), "validate_every": (0, None),
    "patience": (1, None), "average_count": (1, None), "average_every": (0, None), "beam": (1, None),
    "length_penalty": (0, None), "threads": (1, None), "checkpoint_minutes": (0, None),
    **dict.fromkeys(BUDGETS, (0, None)),
}


@dataclass(frozen=True)
class Recipe:
    """Everything that decides how a model is trained and scored, besides the data, the architecture and the seed.

    Numbers marked (*) below 1 are a share of the budget, 1 or more a number of updates.

    The budget; the first one reached ends training, and the learning rate follows the largest share used up.
    Validation, decoding and saving count towards none of them, so looking more often changes nothing learned:

    - ``steps``: updates. ``tokens``: real target tokens. ``epochs``: passes over the training pairs.
    - ``cpu_minutes``: CPU time of updates (all threads). ``minutes``: wall-clock time of updates.

    Updates:

    - ``max_tokens``: places in a batch, sentences times the longer side. ``accumulate``: batches an update.
    - ``lr``: the peak; ``warmup`` (*): linear from 0; then ``schedule``: ``cosine`` or ``linear`` to 0 at the
      budget's end, ``inverse_sqrt`` (lr · √(warmup / position)) or ``constant``.
    - ``beta1``, ``beta2``, ``eps``, ``weight_decay``: Adam; with a decay AdamW, for matrices only.
    - ``clip_norm``: bound on the gradient's 2-norm; 0 leaves it alone.
    - ``label_smoothing``; ``dropout`` (sub-layer outputs, embeddings), ``attention_dropout``,
      ``activation_dropout``; ``init``: scheme of the first weights.

    Looking, stopping, averaging:

    - ``validate_every`` (*), 0 for only at the end; ``validate_bleu``: also decode the validation split, greedily,
      for BLEU, or for the first metric of another task (ROUGE-L, F0.5).
    - ``patience``: stop after so many validations without a better ``watch`` (``loss``, or ``bleu`` for that metric).
    - ``average``: mean of the weights of the ``last`` ``average_count`` moments, ``average_every`` (*) apart, the
      end being one; or of the ``best`` validations by ``watch``; or ``none``, the last weights as they are.

    Scoring: ``beam`` (1: greedy) and ``length_penalty`` on the split ``score_on``; ``both`` scores on valid, which is
    what one chooses by, and reports test beside it. ``measure``: also the ``latency`` of a sentence and the peak
    ``memory`` of training (see :mod:`scalesearch.train.measure`), or ``both``; a study sets it by its objectives.

    Machine: ``precision`` (``auto``: bf16 where the hardware is fast at it), ``compile`` (``auto``: long runs on a
    GPU), ``device``, ``threads`` (None: as the process has it), ``checkpoint_minutes`` between saves for resuming.

    Raises:
        UserError: naming every field that is wrong, and what would be right.
    """

    steps: int | None = None
    tokens: int | None = None
    epochs: float | None = None
    cpu_minutes: float | None = None
    minutes: float | None = None

    max_tokens: int = 512
    accumulate: int = 1
    lr: float = 1.2e-3
    schedule: str = "cosine"
    warmup: float = 0.06
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-9
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    label_smoothing: float = 0.1
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    init: str = "xavier"

    validate_every: float = 0.1
    validate_bleu: bool = False
    watch: str = "loss"
    patience: int | None = None
    average: str = "last"
    average_count: int = 5
    average_every: float = 0.02

    beam: int = 5
    length_penalty: float = 1.0
    score_on: str = "both"
    measure: str = "none"

    precision: str = "auto"
    compile: str = "auto"
    device: str = "auto"
    threads: int | None = None
    checkpoint_minutes: float = 2.0
    name: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        problems = [problem for name in _TYPES for problem in _check(name, getattr(self, name))]
        if all(getattr(self, name) is None for name in BUDGETS):
            problems.append(f"no budget: give at least one of {', '.join(BUDGETS)}, for example steps: 2000")
        problems += [f"{name}: a budget of 0 trains nothing" for name in BUDGETS if getattr(self, name) == 0]
        if self.watch == "bleu" and not self.validate_bleu and (self.patience or self.average == "best"):
            problems.append("watch: bleu is only known with `validate_bleu: true`")
        _refuse(problems)
        for name in _FLOATS:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, float(getattr(self, name)))

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any] | str) -> "Recipe":
        """The recipe that a file's ``recipe:`` describes: a preset's name, or fields, laid over ``preset: NAME``.

        A budget that is given replaces the preset's. Text is read as the field's type (``"2e-3"``, ``"yes"``).

        Raises:
            UserError: an unknown key or preset, with the nearest known one, or a wrong value.
        """
        if isinstance(given, str):
            return preset(given)
        if not isinstance(given, Mapping):
            raise UserError(f"recipe: expected fields such as `steps: 2000` or a preset's name, not {given!r}")
        known = [*_TYPES, "preset"]
        _refuse([_unknown(str(key), known) for key in given if key not in known])
        values = {key: _read(key, value) for key, value in given.items() if key != "preset"}
        if "preset" not in given:
            return cls(**values)
        base = preset(str(given["preset"]))
        if any(values.get(name) is not None for name in BUDGETS):
            values = dict.fromkeys(BUDGETS) | values
        return replace(base, **values)

    def to_json(self) -> dict[str, Any]:
        """Every field as a JSON value; ``from_mapping`` reads them back."""
        return asdict(self)

    def describe(self) -> str:
        """One line for a person: budget, batch, optimiser, averaging."""
        budget = " or ".join(f"{getattr(self, name):g} {name}" for name in BUDGETS if getattr(self, name) is not None)
        averaged = "" if self.average == "none" else f", average of the {self.average} {self.average_count}"
        batch = f"{self.accumulate} x {self.max_tokens}" if self.accumulate > 1 else f"{self.max_tokens}"
        return (f"{budget.replace('_', '-')}; {batch} tokens a batch; Adam, lr {self.lr:g}, {self.schedule}; "
                f"dropout {self.dropout:g}{averaged}")


_TYPES = get_type_hints(Recipe)
_FLOATS = [name for name, kind in _TYPES.items() if kind in (float, float | None)]

# Short runs pass over the data once or twice: small batches for more updates, and nothing that regularises.
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {
        "cpu_minutes": 1.0, "max_tokens": 384, "lr": 1e-3, "dropout": 0.0, "label_smoothing": 0.0, "beam": 1,
        "validate_every": 0.25, "average_count": 4,
    },
    "short": {"cpu_minutes": 5.0, "max_tokens": 384, "lr": 1e-3, "dropout": 0.0, "label_smoothing": 0.0},
    "base": {
        "steps": 100_000, "max_tokens": 4096, "lr": 7e-4, "schedule": "inverse_sqrt", "warmup": 4000.0,
        "validate_every": 2000.0, "average_count": 10, "average_every": 1000.0, "patience": 10,
    },
    # A small Transformer on Multi30k to 41.02 tokenised BLEU: 8,192 tokens an update, about 50 updates an epoch.
    "transformer-tiny": {
        "steps": 8000, "max_tokens": 8192, "lr": 5e-3, "schedule": "inverse_sqrt", "warmup": 2000.0, "dropout": 0.3,
        "label_smoothing": 0.1, "validate_every": 500.0, "average_count": 10, "average_every": 50.0, "beam": 5,
    },
    # The papers' recipes for WMT En-De. Averages are of checkpoints an epoch apart there, 1,000 updates here.
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


def preset(name: str) -> Recipe:
    """The recipe called ``name``: ``quick`` (a CPU-minute, greedy), ``short`` (five), ``base`` (100,000 updates).

    And as published: ``transformer-tiny``, ``partialformer``, ``edgeformer``, ``anthe``.

    Raises:
        UserError: there is none of that name.
    """
    if name not in PRESETS:
        raise UserError(f"recipe: no preset `{name}`; {_nearest(name, list(PRESETS))}")
    return Recipe(**PRESETS[name], name=name)


def _check(name: str, value: Any) -> list[str]:
    """What is wrong with one value."""
    kind = _TYPES[name]
    if value is None and kind in (int | None, float | None, str | None):
        return []
    if name in CHOICES:
        legal = CHOICES[name]
        return [] if value in legal else [f"{name}: expected one of {', '.join(legal)}, found {value!r}"]
    if kind is bool or kind == str | None:
        wanted = bool if kind is bool else str
        return [] if isinstance(value, wanted) else [f"{name}: expected {_WORDS[wanted]}, found {value!r}"]
    whole = kind in (int, int | None)
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not math.isfinite(value):
        return [f"{name}: expected {'a whole number' if whole else 'a number'}, found {value!r}"]
    low, high = BOUNDS[name]
    if (low is not None and value < low) or (high is not None and value > high):
        return [f"{name}: expected {_range(low, high)}, found {value!r}"]
    return []


_WORDS = {bool: "true or false", str: "text"}


def _range(low: float | None, high: float | None) -> str:
    return f"at least {low}" if high is None else f"from {low} to below 1"


def _read(name: str, value: Any) -> Any:
    """``value`` in the field's type where it came as text; anything else as it is, for the check to judge."""
    kind = _TYPES[name]
    if name in CHOICES and isinstance(value, bool):
        return "yes" if value else "no"  # YAML reads a bare yes as true
    if not isinstance(value, str) or name in CHOICES or kind == str | None:
        return value
    text = value.strip().lower()
    if text in ("none", "null", "") and kind in (int | None, float | None):
        return None
    if kind is bool:
        return {"yes": True, "true": True, "no": False, "false": False}.get(text, value)
    try:
        number = float(text)
    except ValueError:
        return value
    return int(number) if kind in (int, int | None) and number.is_integer() else number


def _refuse(problems: list[str]) -> None:
    if problems:
        raise UserError("\n".join(f"recipe: {problem}" for problem in problems))


def _unknown(key: str, known: list[str]) -> str:
    return f"unknown key `{key}`; {_nearest(key, known)}"


def _nearest(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"
