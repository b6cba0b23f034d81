"""Search spaces: read from a file, a name, a text or Python values, and queried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.api.architecture import Architecture, resolve_protocol
from scalesearch.api.base import Displayable, Row, as_subclass, python_error_messages
from scalesearch.blocks.core import join_path
from scalesearch.errors import UserError
from scalesearch.library import find_file
from scalesearch.spaces import Space, read_space
from scalesearch.spaces.binding.binder import ONE_OF_KEY
from scalesearch.spaces.huggingface import Difference, config_name, errors_named, require_config
from scalesearch.spaces.parameters.count import (
    UncountableSpaceError,
    format_space_size,
    make_parameters_table,
    space_size_or_reason,
)
from scalesearch.spaces.python_api import OneOf, format_value
from scalesearch.spaces.schema.bound_tree import build_index
from scalesearch.spaces.schema.cost_names import COST_NAMES
from scalesearch.spaces.schema.types import SchemaGroup

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table
    from transformers import PreTrainedConfig

    from scalesearch.cost import Protocol
    from scalesearch.feasible.report import FeasibilityReport
    from scalesearch.whatif import Solutions, TradeOffs

Budgets = str | Sequence[str]
SizeRanges = str | Sequence[str] | Mapping[str, str | Sequence[int] | None]


@python_error_messages()
def space(source: str | Path | Mapping[str, Any] | Space | SearchSpace) -> SearchSpace:
    """Read a search space.

    Args:
        source: a file, the name of a shipped space, the text of a file, or Python values.

    Raises:
        UserError: the file does not exist or is invalid; all problems are listed with positions.

    Example:
        >>> space({"width": "64 | 128", "encoder": {"depth": "1..4"}, "norm": "pre"}).size
        8
    """
    if isinstance(source, SearchSpace):
        return source
    if isinstance(source, Space):
        return SearchSpace(source)
    if isinstance(source, Mapping):
        return SearchSpace(Space.from_python(source))
    if isinstance(source, str) and "\n" in source:
        return SearchSpace(Space.parse(source))
    return SearchSpace(read_space(find_file(str(source), "spaces")))


@python_error_messages()
def from_huggingface(config: str | Path | Mapping[str, Any] | PreTrainedConfig) -> SearchSpace:
    """Read the architecture of a Hugging Face model from its configuration.

    Weights, network access and the transformers package are not needed. Differences that the space
    language cannot express are in ``not_expressed``.

    Args:
        config: a ``config.json``, its folder, its content, or a ``PreTrainedConfig``.

    Raises:
        UserError: the model type is not known, or the configuration is not complete.

    Example:
        >>> space = from_huggingface({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768,
        ...                           "n_layer": 12, "n_head": 12, "n_positions": 1024})
        >>> space.architecture().cost()["params.total"]
        124439808
    """
    if isinstance(config, (str, PathLike)):
        path = Path(config)
        with errors_named(path):
            return SearchSpace(Space.from_huggingface(require_config(path), config_name(path),
                                                      path))
    if not isinstance(config, Mapping) and not hasattr(config, "to_dict"):
        raise UserError("expected a config.json, its folder, its content or a PreTrainedConfig, "
                        f"found {config!r}", code="not-huggingface-config")
    values = config if isinstance(config, Mapping) else config.to_dict()
    return SearchSpace(Space.from_huggingface(values))


@dataclass(frozen=True, repr=False)
class SearchSpace(Displayable):
    """A search space: the architectures that may be proposed.

    Attributes:
        definition: the parsed :class:`scalesearch.spaces.Space`.
    """

    definition: Space

    @property
    def name(self) -> str:
        """Name of the space."""
        return self.definition.name

    @property
    def not_expressed(self) -> tuple[Difference, ...]:
        """Differences to the Hugging Face model from which the space was read, if any."""
        return self.definition.not_expressed

    @property
    def size(self) -> int | None:
        """Number of configurations; None if it is infinite or too large to be counted."""
        try:
            return self.definition.n_configurations()
        except UncountableSpaceError:
            return None

    @property
    def parameters(self) -> dict[str, str]:
        """Values of each open parameter."""
        return {name: str(parameter) for name, parameter in self.definition.parameters()}

    @property
    def budgets(self) -> dict[str, str]:
        """Condition of each budget."""
        return {name: constraint.text for name, constraint in self.definition.budgets.items()}

    @python_error_messages()
    def set(self, values: Row | None = None, /, **more_values: Any) -> SearchSpace:
        """Return this space with changed keys; keys with dots are passed in a mapping.

        Costs and NaN, as in rows of frames, are ignored.

        Example:
            >>> space("transformer").set({"encoder.depth": "2 | 4"}, width=256).parameters
            {'encoder.depth': '2 | 4'}
        """
        merged = {**({} if values is None else values), **more_values}
        overrides = dict(flatten_values(merged, self.definition.schema))
        return SearchSpace(self.definition.with_overrides(overrides)) if overrides else self

    @python_error_messages()
    def architecture(self, values: Row | None = None, /,
                     **more_values: Any) -> Architecture:
        """Return the architecture with these values.

        Values outside the ranges of the space are permitted. ``values`` may be a row of
        ``feasible().front()``, whose costs are ignored.

        Raises:
            UserError: parameters stay open, no value meets a constraint of the space, or the
                network cannot be built.

        Example:
            >>> architecture = space("transformer").architecture({"encoder.depth": 2}, width=128)
            >>> architecture.cost()["params.encoder"]
            396544
        """
        return as_subclass(Architecture,
                           self.set(values, **more_values).definition.single_architecture())

    def sample(self, seed: int = 0) -> Architecture:
        """Draw a random architecture that meets the constraints of the space.

        Example:
            >>> architecture = space("slim").sample(3)
            >>> architecture == space("slim").sample(3)
            True
        """
        return self._pick("random", seed)

    def smallest(self) -> Architecture:
        """Return the smallest architecture; in a large space, of 2,000 samples."""
        return self._pick("smallest", 0)

    def largest(self) -> Architecture:
        """Return the largest architecture; in a large space, of 2,000 samples."""
        return self._pick("largest", 0)

    @python_error_messages()
    def _pick(self, method: str, seed: int) -> Architecture:
        from scalesearch.feasible.pick import pick_candidate

        config, _ = pick_candidate(self.definition, method, seed,
                                   resolve_protocol(self.definition.protocol))
        return as_subclass(Architecture, self.definition.architecture(config),
                           protocol=self.definition.protocol)

    @python_error_messages()
    def feasible(self, budget: Budgets = (), protocol: str | Protocol | None = None, *,
                 samples: int = 4000, seed: int = 1, **overrides: int | str) -> FeasibilityResult:
        """Count the feasible candidates of the space, exactly if possible.

        Args:
            budget: names of budgets of the space, or conditions; by default all budgets of the
                space.
            protocol, overrides: as in :meth:`Architecture.cost`.
            samples, seed: number and seed of random candidates if the space is too large to count.

        Raises:
            UserError: a budget is missing or invalid, or ``samples`` is below 1.
        """
        from scalesearch.feasible.limits import select_budgets
        from scalesearch.feasible.report import analyze_feasibility

        resolved = resolve_protocol(self.definition.protocol, protocol, overrides)
        if samples < 1:
            raise UserError(f"samples: expected at least 1, found {samples}", code="below-one")
        limits = select_budgets(self.definition, [budget] if isinstance(budget, str) else budget)
        report = analyze_feasibility(self.definition, resolved, limits, samples, seed)
        return FeasibilityResult(report, self.definition, tuple(limit.text for limit in limits),
                                 resolved)

    @python_error_messages()
    def solve(self, goal: str, budget: Budgets = (), for_each: SizeRanges | None = None,
              protocol: str | Protocol | None = None, *, step: int = 1,
              **overrides: int | str) -> SolveResult:
        """Find the largest or smallest size within a budget.

        Args:
            goal: ``max width`` or ``min encoder.depth``, for example.
            budget: names of budgets of the space, or conditions.
            for_each: one query per value of these sizes, such as ``{"encoder.depth": "1..6"}``. A
                key alone, or with None, has its values in the space.
            protocol, overrides: as in :meth:`Architecture.cost`.
            step: step of the values if the space has none.

        Raises:
            UserError: other parameters are open, the key is not a size, or no budget limits it.

        Example:
            >>> space("transformer").solve("max width", "params.total <= 10M", step=8).value
            160
        """
        from scalesearch.whatif import solve
        from scalesearch.whatif.free_sizes import parse_sizes

        resolved = resolve_protocol(self.definition.protocol, protocol, overrides)
        sizes = parse_sizes(self.definition, for_each or {})
        solutions = solve(self.definition, goal, budget, sizes, resolved, step)
        return SolveResult(solutions, resolved)

    @python_error_messages()
    def trade(self, keys: str | Sequence[str], hold: Budgets, for_each: SizeRanges | None = None,
              protocol: str | Protocol | None = None, *, step: int = 1,
              reference: Architecture | None = None, **overrides: int | str) -> SolveResult:
        """Find pairs of sizes that keep costs constant.

        Args:
            keys: two sizes, such as ``"encoder.depth, width"``.
            hold: costs with tolerances, such as ``"macs.total within 1%"``.
            for_each: values of the sizes, as in :meth:`solve`.
            protocol, overrides: as in :meth:`Architecture.cost`.
            step: step of the values of sizes without ``for_each``.
            reference: architecture whose costs are kept; by default that of the space.
        """
        from scalesearch.whatif import find_trade_offs
        from scalesearch.whatif.free_sizes import parse_sizes

        names = [key.strip() for key in keys.split(",")] if isinstance(keys, str) else list(keys)
        tolerances = [hold] if isinstance(hold, str) else list(hold)
        resolved = resolve_protocol(self.definition.protocol, protocol, overrides)
        sizes = parse_sizes(self.definition, for_each or {})
        trade_offs = find_trade_offs(self.definition, names, tolerances,
                                     reference.config if reference else None, (), resolved, sizes,
                                     step)
        return SolveResult(trade_offs, resolved)

    def to_yaml(self) -> str:
        """Return the space as the text of a file, with defaults and full names."""
        return self.definition.to_yaml()

    def _display_parts(self) -> Iterator[Table | str]:
        rows = [(name, parameter, parameter.count())
                for name, parameter in self.definition.parameters()]
        size = format_space_size(len(rows), space_size_or_reason(self.definition))
        yield f"{self.name or 'a space without a name'}: {size}"
        if rows:
            yield make_parameters_table(rows)
        yield from (f"where {constraint.text}" for constraint in self.definition.constraints)
        yield from (f"budget {name}: {text}" for name, text in self.budgets.items())
        yield f"protocol {resolve_protocol(self.definition.protocol)}"


@dataclass(frozen=True, repr=False)
class FeasibilityResult(Displayable):
    """Feasible part of a space.

    Attributes:
        feasibility: counts, shares, frames, front and extremes; see
            :class:`scalesearch.feasible.report.FeasibilityReport`.
        budgets: the conditions.
    """

    feasibility: FeasibilityReport
    space: Space
    budgets: tuple[str, ...]
    protocol: Protocol

    @property
    def share(self) -> float:
        """Feasible share of the configurations; of the samples if they are not counted."""
        return self.feasibility.share

    @property
    def count(self) -> int | None:
        """Number of distinct feasible networks; None if they are not counted."""
        return self.feasibility.n_distinct_feasible

    @property
    def value_shares(self) -> pd.DataFrame:
        """Feasible share per parameter and value."""
        return self.feasibility.value_shares

    @property
    def violations(self) -> pd.DataFrame:
        """A row for each set of conditions that candidates violate."""
        return self.feasibility.violations

    @property
    def sampled_candidates(self) -> pd.DataFrame:
        """Costs of some candidates, and whether each fits."""
        return self.feasibility.sample

    def front(self) -> pd.DataFrame:
        """Return the front of non-embedding params (max) and MACs (min): costs and params.

        If the candidates are not counted, it is the front of the samples.
        """
        import pandas as pd

        return pd.DataFrame([{**point.costs, **point.param_values.params}
                             for point in self.feasibility.front])

    def to_dict(self) -> dict[str, Any]:
        """Return all results as JSON values."""
        from scalesearch.feasible.tables import report_to_json

        return {**report_to_json(self.feasibility), "budgets": list(self.budgets),
                "protocol": self.protocol.facts, "conventions": self.protocol.conventions}

    def _display_parts(self) -> Iterator[Table | str]:
        from scalesearch.feasible.tables import render_report

        yield f"{self.space.name or 'space'}: {' and '.join(self.budgets)}"
        yield f"{self.protocol}\n{self.protocol.conventions}"
        yield from render_report(self.feasibility)


@dataclass(frozen=True, repr=False)
class SolveResult(Displayable):
    """Solutions of an inverse query.

    Attributes:
        solution: the solutions, or pairs of sizes that keep costs constant.
        protocol: protocol of the costs.
    """

    solution: Solutions | TradeOffs
    protocol: Protocol

    @property
    def value(self) -> int | None:
        """The size of the first solution; None if no size is within the budget."""
        first = self.solution[0] if isinstance(self.solution, tuple) else None
        return first.best.value if first and first.best else None

    def frame(self) -> pd.DataFrame:
        """Return one row per solution."""
        return self.solution.frame()

    def to_dict(self) -> dict[str, Any]:
        """Return all solutions as JSON values."""
        from scalesearch.whatif.tables import solution_to_json

        solutions = ({"solutions": [*map(solution_to_json, self.solution)]}
                     if isinstance(self.solution, tuple) else asdict(self.solution))
        return {**solutions, "protocol": self.protocol.facts,
                "conventions": self.protocol.conventions}

    def _display_parts(self) -> Iterator[Table | str]:
        from scalesearch.whatif.tables import render_solutions, render_trades

        if isinstance(self.solution, tuple):
            yield from render_solutions(self.solution, self.protocol)
        else:
            yield from render_trades(self.solution, "the space as it is", self.protocol)


def flatten_values(values: Mapping[str, Any], schema: SchemaGroup) -> Iterator[tuple[str, str]]:
    """Yield keys with dots and the texts of their values, from nested values.

    A mapping of variants, such as ``{"ffn": {"relu": {"hidden": 64}}}``, also selects them. Numbers
    of costs and NaN, as in rows of frames, are left out.
    """
    index = build_index(schema)

    def flatten(values: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
        for name, value in values.items():
            key = join_path(path, str(name))
            if isinstance(value, Mapping):
                group = index.groups.get(index.spellings.get(key, key))
                options = value.get(ONE_OF_KEY)
                inner = options if isinstance(options, Mapping) else value
                if group and (variants := [name for name in inner if name in group.variants]):
                    yield key, OneOf(*variants)
                yield from flatten(inner, key)
            elif not isinstance(value, Real) or (value == value and key not in COST_NAMES):
                yield key, format_value(value)

    return flatten(values, "")
