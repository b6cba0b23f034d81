"""Rows: the named architectures that a study without a search trains.

A *grid* is a list of them or every combination of a space, an *ablation* a base and what is changed
of it, a *scaling* study a base and the rules by which it grows. All are trained in the same way;
they differ in what is made of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from scalesearch.errors import UserError
from scalesearch.spaces import Space
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.spaces.parameters.count import UncountableSpaceError
from scalesearch.terminal import format_count

SEARCH = "search"
GRID = "grid"
ABLATION = "ablation"
SCALING = "scaling"
COMPRESS = "compress"
STUDY_TYPES = (SEARCH, GRID, ABLATION, SCALING, COMPRESS)
# Noun for the named architectures of a study, by its type.
ARCHITECTURE_NOUNS = {SEARCH: "reference", GRID: "architecture", ABLATION: "ablation row",
                      SCALING: "scaling size", COMPRESS: "reference"}
HOLD_OUT_LARGEST = "largest"
NONE_WORD = "none"
MAX_ARCHITECTURES = 10_000  # rows: each is a training run


@dataclass(frozen=True)
class FixedArchitecture:
    """Named architecture: a reference of a search, or a row.

    ``params`` are its parameters where the study's space could have proposed it, else None.
    ``recipe_params`` are the values of the searched keys of the recipe. ``predictions`` are
    predicted scores, such as ``predicted.loss``, which are recorded with the costs.
    """

    label: str
    architecture: ModelSpec
    params: Mapping[str, Any] | None = None
    recipe_params: Mapping[str, Any] = field(default_factory=dict)
    predictions: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ArchitectureSet:
    """Rows of a study, in the order of its file.

    Attributes:
        base: the row that others are compared with.
        space: what the rows begin with; that of the first one where they are files.
        rules: of a scaling study, rule to its steps, the smallest first and the base not among
            them.
        held_out: of each rule, which size its fit is checked by: ``largest`` or ``none``.
        excluded: rows that violate a limit of the study, and the reason; they are not trained.
    """

    type: str
    architectures: tuple[FixedArchitecture, ...]
    base: str
    space: Space | None = None
    rules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    held_out: str = HOLD_OUT_LARGEST
    excluded: Mapping[str, str] = field(default_factory=dict)

    @property
    def scaling(self) -> dict[str, Any] | None:
        """The plan of a scaling study, as in ``study.json``."""
        if self.type != SCALING:
            return None
        return {"base": self.base, "rules": self.rules, "held_out": self.held_out}

    def filter_by_limits(self, violations_of: Callable[[ModelSpec], str]) -> "ArchitectureSet":
        """Rows that are trained under limits.

        ``violations_of`` returns the limits that an architecture violates, or an empty text.

        Raises:
            UserError: nothing is left.
        """
        if self.type == COMPRESS:
            return self  # its rows are found later
        if not self.architectures:
            assert self.space is not None, "every combination of a space"
            fitting = enumerate_architectures(
                self.space, lambda architecture: not violations_of(architecture))
            return replace(self, architectures=fitting, base=fitting[0].label)
        reasons = {row.label: violations_of(row.architecture) for row in self.architectures}
        rows = tuple(row for row in self.architectures if not reasons[row.label])
        if not rows:
            first, reason = next(iter(reasons.items()))
            count = format_count(len(self.architectures), "architecture")
            raise UserError(f"budget: none of the {count} meets it; {first}: {reason}",
                            key="budget", code="budget-unmet")
        if self.type != GRID and reasons[self.base]:
            raise UserError(f"budget: the base violates it: {reasons[self.base]}; every "
                            "architecture is compared with it", key="budget",
                            code="base-exceeds-budget")
        base = rows[0].label if reasons[self.base] else self.base
        return replace(self, architectures=rows, base=base,
                       excluded={name: why for name, why in reasons.items() if why})


def enumerate_architectures(space: Space,
                            fits: Callable[[ModelSpec], bool]) -> tuple[FixedArchitecture, ...]:
    """Make a row per distinct network of ``space`` that can be built and ``fits``.

    It is named by the values that differ.

    Raises:
        UserError: the number of architectures is infinite, too large, or zero.
    """
    try:
        size = space.n_configurations()
    except UncountableSpaceError:
        size = None
    if size is None or size > MAX_ARCHITECTURES:
        count = "too many to count" if size is None else f"{size:,}"
        raise UserError(f"space: its combinations are {count}, and a grid trains at most "
                        f"{MAX_ARCHITECTURES:,}; fix some parameters, or set type: search",
                        key="space", code="grid-too-large")
    names = shorten_paths([path for path, _ in space.parameters()])
    rows: dict[str, FixedArchitecture] = {}
    for values in space.enumerate():
        try:
            architecture = space.architecture(values)
        except UserError:
            continue
        if architecture.id not in rows and fits(architecture):
            label = ", ".join(f"{names[path]} {value}" for path, value in values.params.items())
            rows[architecture.id] = FixedArchitecture(
                label or space.name, architecture, dict(values.params))
    if not rows:
        raise UserError(f"budget: none of the space's {size:,} combinations can be built and meets "
                        "it", key="budget", code="budget-unmet")
    return tuple(rows.values())


def shorten_paths(paths: list[str]) -> dict[str, str]:
    """Each path by as many of its last words as tell it from the others."""
    names = {}
    for path in paths:
        words = path.split(".")
        ends = [".".join(words[-length:]) for length in range(1, len(words) + 1)]
        names[path] = next((end
                            for end in ends
                            if sum(f".{other}".endswith(f".{end}") for other in paths) == 1), path)
    return names
