"""A space: a questionnaire with a name, constraints, budgets and a protocol."""

import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.errors import UserError
from scalesearch.space.binding.bind import BoundSpace, bind_space, canonical_spelling
from scalesearch.space.binding.file_type_check import check_not_study
from scalesearch.space.parameters.constraints import Constraint
from scalesearch.space.parameters.count import count_configurations
from scalesearch.space.parameters.param_values import InfiniteSpaceError, ParamValues, SuggestFunction, enumerate_runs
from scalesearch.space.schema.types import SchemaField, SchemaGroup
from scalesearch.space.schema.yaml_writer import canonical_tree, format_lines, format_protocol, format_scalar
from scalesearch.space.syntax.composite_domains import whole_numbers
from scalesearch.space.syntax.diagnostics import ConfigError, Problem, SourceText, UnbuildableError
from scalesearch.space.syntax.lexer import ValueSyntaxError
from scalesearch.space.syntax.nodes import MappingNode
from scalesearch.space.syntax.parameters import Parameter
from scalesearch.space.syntax.value_parser import parse_schedule
from scalesearch.space.syntax.yaml_reader import parse_yaml, read_text

if TYPE_CHECKING:
    from scalesearch.space.assembly.architecture import ModelSpec


class Space:
    """A search space of architectures.

    Made by ``read_space``, ``Space.parse`` or ``Space.of``; never changed after.

    Attributes:
        name: what the file calls itself, or an empty text.
        notes: free text.
        where: constraints over answers and costs.
        budgets: named constraints.
        protocol: ``name`` and, where given, ``source``, ``target``, ``vocab``.
        root: the bound tree.
    """

    def __init__(self, document: MappingNode, schema: SchemaGroup, problems: list[Problem]) -> None:
        """Binds ``document``. Raises SpaceErrors with every problem, ``problems`` included."""
        document = canonical_spelling(document, schema, problems)
        bound: BoundSpace = bind_space(document, schema, problems)
        self.document = document
        self.schema = schema
        self.name = bound.name
        self.notes = bound.notes
        self.parameter_space = bound.parameter_space
        self.root = bound.root
        self.constraints = bound.constraints
        self.budgets = dict(bound.budgets)
        self.protocol = dict(bound.protocol)

    @classmethod
    def parse(cls, text: str, name: str = "<string>", schema: SchemaGroup | None = None) -> "Space":
        """The space that a YAML text describes. Raises SpaceErrors."""
        document, problems = parse_yaml(SourceText(name, text))
        return cls(document, schema or default_schema(), problems)

    @classmethod
    def from_python(cls, values: Mapping[str, Any], schema: SchemaGroup | None = None) -> "Space":
        """The space that Python forms describe: dicts, lists, constants, texts of the language, ``Range``, ``OneOf``…

        Raises SpaceErrors, with lines of the YAML that the forms stand for.
        """
        from scalesearch.space.python_api import to_yaml

        return cls.parse(to_yaml(values), "<python>", schema)

    def with_overrides(self, overrides: Mapping[str, str], option: str = "--set") -> "Space":
        """This space with some keys given anew, as by ``option``, which errors name.

        Raises SpaceErrors.
        """
        from scalesearch.space.binding.overrides import apply_overrides

        problems: list[Problem] = []
        document = apply_overrides(self.document, self.schema, overrides, problems, option)
        return Space(document, self.schema, problems)

    def parameters(self) -> list[tuple[str, Parameter]]:
        """Every parameter that may be asked, with its name."""
        return self.parameter_space.parameters()

    def vocabularies(self, max_sizes: int) -> tuple[int, ...]:
        """The values that the key ``vocab`` may have, rising; none where the space has no such key.

        Raises:
            UserError: they are computed, or more than ``max_sizes``.
        """
        leaves = self.parameter_space.nodes_by_key.get("vocab", [])
        try:
            sizes = sorted({size for leaf in leaves
                            for size in islice(whole_numbers(leaf.domain), max_sizes + 1)})
        except TypeError:
            sizes = []
        if len(sizes) > max_sizes or (leaves and not sizes):
            raise UserError(f"vocab: {leaves[0].domain} is no list of at most {max_sizes} sizes, "
                            "each of which takes a tokenizer",
                            help="write the sizes out, as in 1k | 2k | 4k", key="space",
                            code="too-many-vocabularies")
        return tuple(sizes)

    def resolve(self, suggest: SuggestFunction) -> ParamValues:
        """Decides every key; ``ask(name, parameter)`` gives a legal answer to what has to be known.

        Raises UserError where an answer is not legal.
        """
        return self.parameter_space.resolve(suggest)

    def sample(self, rng: random.Random) -> ParamValues:
        """Random answers: uniform per parameter, log-uniform for log ranges."""
        return self.resolve(lambda name, parameter: parameter.sample(rng))

    def enumerate(self) -> Iterator[ParamValues]:
        """Every answer sheet, in a fixed order.

        Raises UserError where a continuous range makes them endless.
        """
        try:
            yield from enumerate_runs(self.resolve)
        except InfiniteSpaceError as endless:
            raise UserError(f"{endless}: a continuous range cannot be enumerated; give it a step",
                            code="continuous-range") from None

    def n_configurations(self) -> int | None:
        """The exact number of answer sheets; ``None`` where a range makes them endless.

        Raises TooTangled.
        """
        return count_configurations(self.parameter_space)

    def replay_values(self, values: Mapping[str, Any]) -> SuggestFunction:
        """An ``ask`` that repeats given answers, or the JSON of some.

        The function raises UserError for a parameter to which the sheet holds no legal answer.
        """
        known: dict[str, Any] = {}
        for leaf in self.parameter_space.nodes:
            if leaf.key in values:
                value = _parse_json_value(leaf.field, values[leaf.key])
                known.update(
                    self.parameter_space.domains[leaf.path].infer_params(value, values.__getitem__)
                    or {})
        if isinstance(values, ParamValues):
            known.update(values.params)

        def ask(name: str, parameter: Parameter) -> Any:
            if name not in known:
                raise UserError(f"{name}: the given answers hold no legal value; expected "
                                f"{parameter}", code="value-missing")
            return known[name]

        return ask

    def contains(self, values: ParamValues) -> bool:
        """True if this space contains the network of ``values``, a sheet of another space."""
        wanted = self.architecture(values).id
        try:
            mine = self.resolve(self.replay_values(values))
            return self.architecture(mine).id == wanted and not self.violated_constraints(mine)
        except UserError:
            return False

    def violated_constraints(self, values: Mapping[str, Any]) -> list[Constraint]:
        """The constraints over answers alone that ``values`` violate."""
        return [one
                for one in self.constraints
                if not one.costs and not one.is_satisfied(values.__getitem__)]

    def architecture(self, values: ParamValues) -> "ModelSpec":
        """The network that ``values`` describe. Raises Unbuildable where there is none."""
        from scalesearch.space.assembly import architecture

        for path, reason in values.infeasible_values:
            raise UnbuildableError(path, reason)
        return architecture.assemble(values)

    def single_architecture(self, name: str | None = None) -> "ModelSpec":
        """The one network of a space that leaves nothing to choose; ``name`` is what an error calls it.

        Raises UserError where parameters are open, or no network can be built.
        """
        names = [name for name, _ in self.parameters()]
        if names:
            shown = ", ".join(names[:6]) + f" and {len(names) - 6} more" * (len(names) > 6)
            raise UserError(f"{name or self.document.position.source.name} leaves {shown} open; "
                            "choose one value for each (--set key=value, in a study file under "
                            "set:)", code="open-parameters")
        return replace(self.architecture(self.resolve(self.replay_values({}))),
                       protocol=self.protocol)

    def problem_of(self, error: UnbuildableError, message: str = "") -> Problem:
        """The problem at the key that keeps a network from being built; ``message`` comes before the reason."""
        leaf = next(iter(self.parameter_space.nodes_by_key.get(error.key, ())), None)
        place = leaf.position_of((0, 0)) if leaf else self.document.position
        return Problem(place, f"{message}{error}", code=error.code)

    def to_yaml(self) -> str:
        """The canonical YAML, with defaults and full names; reads back to an equal space."""
        head = {key: format_scalar(text)
                for key, text in (("space", self.name), ("notes", self.notes)) if text}
        where = {"where": [format_scalar(constraint.text)
                           for constraint in self.constraints]} if self.constraints else {}
        return "\n".join(format_lines({**head, **canonical_tree(self.root, self.schema), **where,
                                       **self._cost()})) + "\n"

    def _cost(self) -> dict[str, Any]:
        cost: dict[str, Any] = {"protocol": format_protocol(self.protocol)}
        if self.budgets:
            cost["budgets"] = {name: format_scalar(constraint.text)
                               for name, constraint in self.budgets.items()}
        return {"cost": cost}

    @cached_property
    def hash(self) -> str:
        """Identifies the space: equal for equal canonical texts, whatever the file is called or notes.

        Keys that say what they say by default are left out, so that a new key changes no space that
        does not use it.
        """
        own = format_lines(_differences(canonical_tree(self.root), self._plain()))
        parts = [*own, *sorted(c.text for c in self.constraints), *format_lines(self._cost())]
        # Hashes digest the first spelling of these two names, so that they never change.
        text = "\n".join(parts).replace("artifact.bytes", "artefact.bytes")
        text = text.replace("artifact: ", "artefact: ")
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _plain(self) -> dict[str, Any]:
        """The canonical tree of a space that gives a width alone; empty where the schema asks for more."""
        try:
            return canonical_tree(Space.parse("width: 1", "<plain>", self.schema).root)
        except ConfigError:
            return {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.to_yaml() == other.to_yaml()

    def __hash__(self) -> int:
        return hash(self.hash)

    def __repr__(self) -> str:
        return f"<Space {self.name or 'without a name'}, {len(self.parameters())} parameters>"


def _differences(given: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """What ``given`` says otherwise than ``plain``, or beyond it."""
    return {name: _differences(value, other)
            if isinstance(value, Mapping) and isinstance(other, Mapping) else value
            for name, value in given.items() if value != (other := plain.get(name))}


def _parse_json_value(field: SchemaField, value: Any) -> Any:
    """The object of a JSON value; a text that is no schedule stays a text."""
    try:
        return parse_schedule(value) if field.type == "schedule" and isinstance(
            value, str) else value
    except (ValueError, ValueSyntaxError):
        return value


def default_schema() -> SchemaGroup:
    """The built-in keys."""
    from scalesearch.space.schema.builtin import architecture_schema

    return architecture_schema()


def read_space(path: Path | str, schema: SchemaGroup | None = None) -> Space:
    """Reads a space file, by the built-in keys where no schema is given.

    Raises:
        SpaceErrors: all problems of the file, each with file, line, column, the text underlined and
            a suggestion.
    """
    document, problems = parse_yaml(SourceText(str(path), read_text(Path(path))))
    check_not_study(document)
    return Space(document, schema or default_schema(), problems)
