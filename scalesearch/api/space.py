"""Search spaces: read from a file, a name, a text or Python forms, and asked what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.api.architecture import Architecture, named_protocol
from scalesearch.api.html import Shown, dressed
from scalesearch.api.questions import Answered, Feasible
from scalesearch.api.words import in_python
from scalesearch.library import find_file
from scalesearch.space import Space, read_space
from scalesearch.space.binding.config_reader import flatten
from scalesearch.space.parameters.count import UncountableSpaceError
from scalesearch.space.python_api import format_value
from scalesearch.terminal import make_table

if TYPE_CHECKING:
    from rich.table import Table

    from scalesearch.cost import Protocol

Budgets = str | Sequence[str]
Sizes = str | Sequence[str] | Mapping[str, str | Sequence[int] | None]


def space(source: str | Path | Mapping[str, Any] | Space | SearchSpace) -> SearchSpace:
    """The search space that ``source`` describes.

    Args:
        source: a file, the name of a shipped space, the text of a file, or Python forms.

    Raises:
        UserError: there is none, or something is wrong with it: every problem with its place.

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
class SearchSpace(Shown):
    """A search space: the architectures that may be proposed.

    Attributes:
        form: the space of the language, :class:`scalesearch.space.Space`.
    """

    form: Space

    @property
    def name(self) -> str:
        """What the space calls itself."""
        return self.form.name

    @property
    def size(self) -> int | None:
        """Number of answer sheets; None where a range is continuous, or they are too many to be counted."""
        try:
            return self.form.n_configurations()
        except UncountableSpaceError:
            return None

    @property
    def parameters(self) -> dict[str, str]:
        """Each open choice with its values."""
        return {name: str(parameter) for name, parameter in self.form.parameters()}

    @property
    def budgets(self) -> dict[str, str]:
        """Name to condition."""
        return {name: constraint.text for name, constraint in self.form.budgets.items()}

    @in_python()
    def set(self, answers: Mapping[str, Any] | None = None, /, **more: Any) -> SearchSpace:
        """This space with some keys given anew; keys with dots stand in a mapping.

        Example:
            >>> space("transformer").set({"encoder.depth": "2 | 4"}, width=256).parameters
            {'encoder.depth': '2 | 4'}
        """
        given = dict(flat({**(answers or {}), **more}))
        return SearchSpace(self.form.with_overrides(given)) if given else self

    @in_python()
    def architecture(self, answers: Mapping[str, Any] | None = None, /, **more: Any) -> Architecture:
        """The one architecture with these answers.

        Raises:
            UserError: they leave something open, are not of the space, or no network can be built of them.

        Example:
            >>> space("transformer").architecture({"encoder.depth": 2}, width=128).cost()["params.encoder"]
            396544
        """
        return dressed(Architecture, self.set(answers, **more).form.single_architecture())

    def sample(self, seed: int = 0) -> Architecture:
        """A random architecture that can be built and meets the space's constraints.

        Example:
            >>> one = space("slim").sample(3)
            >>> one == space("slim").sample(3)
            True
        """
        return self._picked("random", seed)

    def smallest(self) -> Architecture:
        """The architecture with the fewest params; of a space too large to search, of 2,000 random ones."""
        return self._picked("smallest", 0)

    def largest(self) -> Architecture:
        """The architecture with the most params; of a space too large to search, of 2,000 random ones."""
        return self._picked("largest", 0)

    @in_python()
    def _picked(self, way: str, seed: int) -> Architecture:
        from scalesearch.feasible.pick import pick_candidate

        answers, _ = pick_candidate(self.form, way, seed, named_protocol(self.form.protocol))
        return dressed(Architecture, self.form.architecture(answers), protocol=self.form.protocol)

    @in_python()
    def feasible(self, budget: Budgets = (), protocol: str | Protocol | None = None, *, draws: int = 4000,
                 seed: int = 1, **lengths: int | str) -> Feasible:
        """What of the space fits a budget, exactly wherever it can be counted.

        Args:
            budget: names of the space's budgets, or conditions; all that it names, if not given.
            protocol, lengths: as of :meth:`Architecture.cost`.
            draws, seed: of the random candidates where it cannot be counted.
        """
        return Feasible.ask(self.form, budget, named_protocol(self.form.protocol, protocol, lengths), draws, seed)

    @in_python()
    def solve(self, goal: str, budget: Budgets = (), each: Sizes | None = None,
              protocol: str | Protocol | None = None, *, step: int = 1, **lengths: int | str) -> Answered:
        """The largest or smallest size within a budget: ``max width``, ``min encoder.depth``.

        Args:
            budget: names of the space's budgets, or conditions.
            each: sizes for each of which to ask, such as ``{"encoder.depth": "1..6"}``; of keys alone, or with
                None, those of the space.
            step: of the values, where the space gives none.

        Raises:
            UserError: the space leaves something else open, the key is no size, or nothing limits it.

        Example:
            >>> space("transformer").solve("max width", "params.total <= 10M", step=8).value
            160
        """
        from scalesearch.whatif import solve
        from scalesearch.whatif.free_sizes import parse_sizes

        chosen = named_protocol(self.form.protocol, protocol, lengths)
        return Answered(solve(self.form, goal, budget, parse_sizes(self.form, each or {}), chosen, step), chosen)

    @in_python()
    def trade(self, keys: str | Sequence[str], hold: Budgets, each: Sizes | None = None,
              protocol: str | Protocol | None = None, *, of: Architecture | None = None,
              **lengths: int | str) -> Answered:
        """Pairs of sizes that keep costs as they are: ``trade("encoder.depth, width", "macs.total within 1%")``.

        Args:
            of: whose costs to keep; without it, those of the space as it is.
        """
        from scalesearch.whatif import find_trade_offs
        from scalesearch.whatif.free_sizes import parse_sizes

        named = [key.strip() for key in keys.split(",")] if isinstance(keys, str) else list(keys)
        holds = [hold] if isinstance(hold, str) else list(hold)
        chosen, sizes = named_protocol(self.form.protocol, protocol, lengths), parse_sizes(self.form, each or {})
        return Answered(find_trade_offs(self.form, named, holds, of.config if of else None, (), chosen, sizes), chosen)

    def to_yaml(self) -> str:
        """The space as a file, with defaults and full names."""
        return self.form.to_yaml()

    def _parts(self) -> Iterator[Table | str]:
        yield f"{self.name or 'a space without a name'}: {size_words(len(self.form.parameters()), size_of(self.form))}"
        rows = [(name, parameter, parameter.count()) for name, parameter in self.form.parameters()]
        if rows:
            yield parameters_table(rows)
        yield from (f"where {one.text}" for one in self.form.constraints)
        yield from (f"budget {name}: {text}" for name, text in self.budgets.items())
        yield f"protocol {named_protocol(self.form.protocol)}"


def flat(answers: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Keys with dots and the texts of their values, of answers that may be nested."""
    return ((key, format_value(value)) for key, value in flatten(answers))


def size_of(space: Space) -> int | str:
    """How many answer sheets there are, or why that is not known."""
    try:
        size = space.n_configurations()
    except UncountableSpaceError as error:
        return f"not counted: {error}"
    return "endless: a range is continuous" if size is None else size


def size_words(count: int, size: int | str) -> str:
    """``7 parameters, 392 answer sheets``."""
    sheets = f"{size:,} answer sheet{'s' * (size != 1)}" if isinstance(size, int) else size
    return f"{count} parameter{'s' * (count != 1)}, {sheets}"


def parameters_table(rows: Iterable[tuple[str, object, int | None]]) -> Table:
    """Name, values and their number of each parameter."""
    cells = [(name, str(values), "∞" if count is None else f"{count:,}") for name, values, count in rows]
    return make_table(("parameter", "values", "count"), cells, (0, 1))
