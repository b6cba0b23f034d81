"""Search spaces: read from a file, a name, a text or Python forms, and asked what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.api.architecture import Architecture, resolve_protocol
from scalesearch.api.display import Displayable, as_subclass
from scalesearch.api.error_messages import python_error_messages
from scalesearch.api.queries import FeasibilityResult, SolveResult
from scalesearch.files import flatten
from scalesearch.library import find_file
from scalesearch.space import Space, read_space
from scalesearch.space.parameters.count import UncountableSpaceError
from scalesearch.space.python_api import format_value
from scalesearch.terminal import make_table

if TYPE_CHECKING:
    from rich.table import Table

    from scalesearch.cost import Protocol

Budgets = str | Sequence[str]
SizeRanges = str | Sequence[str] | Mapping[str, str | Sequence[int] | None]


def space(source: str | Path | Mapping[str, Any] | Space | SearchSpace) -> SearchSpace:
    """The search space that ``source`` describes.

    Args:
        source: a file, the name of a shipped space, the text of a file, or Python forms.

    Raises:
        UserError: it does not exist or is invalid; all problems are listed with their places.

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


@dataclass(frozen=True, repr=False)
class SearchSpace(Displayable):
    """A search space: the architectures that may be proposed.

    Attributes:
        definition: the space of the language, :class:`scalesearch.space.Space`.
    """

    definition: Space

    @property
    def name(self) -> str:
        """Name of the space."""
        return self.definition.name

    @property
    def size(self) -> int | None:
        """Number of configurations; None if it is infinite or too large to be counted."""
        try:
            return self.definition.n_configurations()
        except UncountableSpaceError:
            return None

    @property
    def parameters(self) -> dict[str, str]:
        """Each open choice with its values."""
        return {name: str(parameter) for name, parameter in self.definition.parameters()}

    @property
    def budgets(self) -> dict[str, str]:
        """Name to condition."""
        return {name: constraint.text for name, constraint in self.definition.budgets.items()}

    @python_error_messages()
    def set(self, values: Mapping[str, Any] | None = None, /, **more_values: Any) -> SearchSpace:
        """Return this space with changed keys; keys with dots are passed in a mapping.

        Example:
            >>> space("transformer").set({"encoder.depth": "2 | 4"}, width=256).parameters
            {'encoder.depth': '2 | 4'}
        """
        overrides = dict(flatten_values({**(values or {}), **more_values}))
        return SearchSpace(self.definition.with_overrides(overrides)) if overrides else self

    @python_error_messages()
    def architecture(self, values: Mapping[str, Any] | None = None, /,
                     **more_values: Any) -> Architecture:
        """Return the architecture with these values.

        Raises:
            UserError: they leave something open, are not of the space, or no network can be built
                of them.

        Example:
            >>> space("transformer").architecture({"encoder.depth": 2}, width=128).cost()["params.encoder"]
            396544
        """
        return as_subclass(Architecture,
                           self.set(values, **more_values).definition.single_architecture())

    def sample(self, seed: int = 0) -> Architecture:
        """A random architecture that can be built and meets the space's constraints.

        Example:
            >>> one = space("slim").sample(3)
            >>> one == space("slim").sample(3)
            True
        """
        return self._pick("random", seed)

    def smallest(self) -> Architecture:
        """The architecture with the fewest params; of a space too large to search, of 2,000 random ones."""
        return self._pick("smallest", 0)

    def largest(self) -> Architecture:
        """The architecture with the most params; of a space too large to search, of 2,000 random ones."""
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
            budget: names of the space's budgets, or conditions; all that it names, if not given.
            protocol, lengths: as of :meth:`Architecture.cost`.
            samples, seed: of the random candidates where it cannot be counted.
        """
        return FeasibilityResult.compute(
            self.definition, budget,
            resolve_protocol(self.definition.protocol, protocol, overrides), samples, seed)

    @python_error_messages()
    def solve(self, goal: str, budget: Budgets = (), for_each: SizeRanges | None = None,
              protocol: str | Protocol | None = None, *, step: int = 1,
              **overrides: int | str) -> SolveResult:
        """The largest or smallest size within a budget: ``max width``, ``min encoder.depth``.

        Args:
            budget: names of the space's budgets, or conditions.
            for_each: sizes for each of which to ask, such as ``{"encoder.depth": "1..6"}``; of keys
                alone, or with
                None, those of the space.
            step: of the values, where the space gives none.

        Raises:
            UserError: other parameters are open, the key is not a size, or no budget limits
                it.

        Example:
            >>> space("transformer").solve("max width", "params.total <= 10M", step=8).value
            160
        """
        from scalesearch.whatif import solve
        from scalesearch.whatif.free_sizes import parse_sizes

        chosen = resolve_protocol(self.definition.protocol, protocol, overrides)
        return SolveResult(solve(self.definition, goal, budget,
                                 parse_sizes(self.definition, for_each or {}), chosen, step),
                           chosen)

    @python_error_messages()
    def trade(self, keys: str | Sequence[str], hold: Budgets, for_each: SizeRanges | None = None,
              protocol: str | Protocol | None = None, *, reference: Architecture | None = None,
              **overrides: int | str) -> SolveResult:
        """Pairs of sizes that keep costs as they are: ``trade("encoder.depth, width", "macs.total within 1%")``.

        Args:
            reference: whose costs to keep; without it, those of the space as it is.
        """
        from scalesearch.whatif import find_trade_offs
        from scalesearch.whatif.free_sizes import parse_sizes

        named = [key.strip() for key in keys.split(",")] if isinstance(keys, str) else list(keys)
        holds = [hold] if isinstance(hold, str) else list(hold)
        chosen = resolve_protocol(self.definition.protocol, protocol, overrides)
        sizes = parse_sizes(self.definition, for_each or {})
        return SolveResult(find_trade_offs(self.definition, named, holds,
                                           reference.config if reference else None, (), chosen,
                                           sizes), chosen)

    def to_yaml(self) -> str:
        """The space as a file, with defaults and full names."""
        return self.definition.to_yaml()

    def _display_parts(self) -> Iterator[Table | str]:
        yield f"{self.name or 'a space without a name'}: {format_space_size(len(self.definition.parameters()), space_size_or_reason(self.definition))}"  # noqa: E501
        rows = [(name, parameter, parameter.count())
                for name, parameter in self.definition.parameters()]
        if rows:
            yield make_parameters_table(rows)
        yield from (f"where {constraint.text}" for constraint in self.definition.constraints)
        yield from (f"budget {name}: {text}" for name, text in self.budgets.items())
        yield f"protocol {resolve_protocol(self.definition.protocol)}"


def flatten_values(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield keys with dots and the texts of their values, from nested values."""
    return ((key, format_value(value)) for key, value in flatten(values))


def space_size_or_reason(space: Space) -> int | str:
    """Return the number of configurations, or why it is unknown."""
    try:
        size = space.n_configurations()
    except UncountableSpaceError as error:
        return f"not counted: {error}"
    return "infinite: a range is continuous" if size is None else size


def format_space_size(n_parameters: int, size: int | str) -> str:
    """Format a size, as ``7 parameters, 392 configurations``."""
    count = f"{size:,} configuration{'s' * (size != 1)}" if isinstance(size, int) else size
    return f"{n_parameters} parameter{'s' * (n_parameters != 1)}, {count}"


def make_parameters_table(rows: Iterable[tuple[str, object, int | None]]) -> Table:
    """Name, values and their number of each parameter."""
    cells = [(name, str(values), "∞" if count is None else f"{count:,}")
             for name, values, count in rows]
    return make_table(("parameter", "values", "count"), cells, (0, 1))
