"""Search spaces: parameters, constraints, budgets and a cost protocol."""

import hashlib
import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.errors import UserError, option
from scalesearch.spaces.binding.bind import BoundSpace, SpaceBinder
from scalesearch.spaces.binding.overrides import OverrideBinder
from scalesearch.spaces.binding.unknown_keys import check_file_type
from scalesearch.spaces.huggingface import (
    CONFIG_FILE,
    config_name,
    errors_named,
    load_config,
    read_config,
)
from scalesearch.spaces.parameters.constraints import Constraint
from scalesearch.spaces.parameters.count import count_configurations
from scalesearch.spaces.parameters.param_values import (
    InfiniteSpaceError,
    ParamValues,
    SuggestFunction,
    enumerate_runs,
)
from scalesearch.spaces.schema.builtin import architecture_schema
from scalesearch.spaces.schema.types import SchemaGroup
from scalesearch.spaces.schema.yaml_writer import (
    canonical_tree,
    format_lines,
    format_protocol,
    format_scalar,
)
from scalesearch.spaces.syntax.diagnostics import (
    PYTHON_VALUES,
    ConfigError,
    Problem,
    SourcePosition,
    SourceText,
    UnbuildableError,
    print_note,
)
from scalesearch.spaces.syntax.domains import whole_numbers
from scalesearch.spaces.syntax.lexer import ValueSyntaxError
from scalesearch.spaces.syntax.nodes import MappingNode
from scalesearch.spaces.syntax.parameters import Parameter
from scalesearch.spaces.syntax.parser import parse_schedule
from scalesearch.spaces.syntax.yaml_reader import parse_yaml, read_text
from scalesearch.terminal import format_count

if TYPE_CHECKING:
    from scalesearch.spaces.assembly.architecture import ModelSpec

N_SAMPLES = 50  # random candidates, of which none uses what is called unused


class Space(BoundSpace):
    """A search space of architectures.

    Immutable. Use ``read_space``, ``Space.parse`` or ``Space.from_python`` to create one.
    """

    @classmethod
    def bind(cls, document: MappingNode, schema: SchemaGroup, problems: list[Problem]) -> "Space":
        """The space of the nodes of a file.

        Raises:
            ConfigError: with every problem, including ``problems``.
        """
        return cls(**vars(SpaceBinder(document, schema, problems).bind_space()))

    @classmethod
    def parse(cls, text: str, name: str = "<string>", schema: SchemaGroup | None = None) -> "Space":
        """Read a space from YAML text. Raises ConfigError."""
        document, problems = parse_yaml(SourceText(name, text))
        return cls.bind(document, schema or architecture_schema(), problems)

    @classmethod
    def from_python(cls, values: Mapping[str, Any], schema: SchemaGroup | None = None) -> "Space":
        """Create a space from nested mappings.

        Values are constants, lists, texts, ``Range``, ``OneOf`` and the like.

        Raises:
            ConfigError: with the keys and lines of the YAML that is equivalent to ``values``.
        """
        from scalesearch.spaces.python_api import to_yaml

        return cls.parse(to_yaml(values), PYTHON_VALUES, schema)

    @classmethod
    def from_huggingface(cls, config: Mapping[str, Any], name: str = "",
                         file: Path | str = CONFIG_FILE) -> "Space":
        """Read the configuration of a Hugging Face model, as in its ``config.json``.

        Errors show lines of the space as those of ``file``, converted.

        Raises:
            UserError: the model type is not known, or the configuration is not complete.
        """
        architecture = read_config(config)
        space = cls.parse(architecture.to_yaml(name or architecture.model_type),
                          f"{file}, converted")
        return replace(space, not_expressed=tuple(architecture.differences),
                       max_positions=architecture.config.get("max_position_embeddings"))

    def with_overrides(self, overrides: Mapping[str, str], option_name: str = "set") -> "Space":
        """This space with some keys replaced, as by the option ``option_name``.

        Raises:
            ConfigError: an override is invalid; the message names the option.
        """
        return OverrideBinder(self.schema, option_name).override_space(self, overrides)

    def parameters(self) -> list[tuple[str, Parameter]]:
        """Every parameter that may be requested, with its name."""
        return self.parameter_space.parameters()

    def describe_unused(self) -> list[str]:
        """Describe parameters, written keys or an encoder that no model of the space reads.

        Empty if all are read.
        """
        from scalesearch.spaces.assembly.architecture import (
            describe_unread_encoder,
            describe_unused,
        )

        parameters = dict(self.parameters())
        model = parameters.get("model")
        models = (model.values() if model else None) or (self.sample(random.Random(0))["model"],)
        written = [key for key, nodes in self.parameter_space.nodes_by_key.items()
                   if any(node.is_given for node in nodes)]
        notes = describe_unused(dict.fromkeys([*parameters, *written]),
                                [str(word) for word in models])
        rng = random.Random(0)
        samples = (self.sample(rng) for _ in range(N_SAMPLES))
        if all(describe_unread_encoder(config) for config in samples):
            notes += describe_unread_encoder(self.sample(rng))
        return notes

    def vocabularies(self, max_sizes: int, key: str = "vocab") -> tuple[int, ...]:
        """The possible values of ``vocab`` in increasing order; empty without it.

        ``key`` is ``vocab`` or ``target_vocab``.

        Raises:
            UserError: they are computed, or more than ``max_sizes``.
        """
        nodes = self.parameter_space.nodes_by_key.get(key, [])
        try:
            sizes = sorted({size for node in nodes
                            for size in islice(whole_numbers(node.domain), max_sizes + 1)})
        except TypeError:
            sizes = []
        if len(sizes) > max_sizes or (nodes and not sizes):
            raise UserError(f"{key}: {nodes[0].domain} is not a list of at most {max_sizes} "
                            "sizes; each size needs a tokenizer",
                            help="write the sizes out, as in 1k | 2k | 4k", key="space",
                            code="too-many-vocabularies")
        return tuple(sizes)

    def resolve(self, suggest: SuggestFunction) -> ParamValues:
        """Determine the values of all keys.

        Args:
            suggest: called with the name and the parameter, returns a legal value of it. It is
                called only for parameters that exist under the values so far.

        Raises:
            UserError: a value is not legal.
        """
        return self.parameter_space.resolve(suggest)

    def sample(self, rng: random.Random) -> ParamValues:
        """Sample a configuration: uniform per parameter, log-uniform for log ranges."""
        return self.resolve(lambda name, parameter: parameter.sample(rng))

    def enumerate(self) -> Iterator[ParamValues]:
        """Yield every configuration, in a fixed order.

        Raises:
            UserError: the space has a continuous range.
        """
        try:
            yield from enumerate_runs(self.resolve)
        except InfiniteSpaceError as error:
            raise UserError(f"{error}: a continuous range cannot be enumerated; give it a step",
                            code="continuous-range") from None

    def n_configurations(self) -> int | None:
        """The exact number of configurations; None if it is infinite.

        A continuous range makes it infinite.

        Raises:
            UncountableSpaceError: counting would need too many combinations.
        """
        return count_configurations(self.parameter_space)

    def replay_values(self, values: Mapping[str, Any]) -> SuggestFunction:
        """A ``suggest`` function for :meth:`resolve` with the params of ``values``.

        Args:
            values: values of keys, also as JSON or from another space.

        Returns:
            A function that raises UserError for a parameter without a legal value in ``values``.
        """
        params: dict[str, Any] = {}
        for node in self.parameter_space.nodes:
            if node.key in values:
                value = values[node.key]
                if node.field.type == "schedule" and isinstance(value, str):
                    with suppress(ValueError, ValueSyntaxError):
                        value = parse_schedule(value)
                params.update(
                    self.parameter_space.domains[node.path].infer_params(value, values.__getitem__)
                    or {})
        if isinstance(values, ParamValues):
            params.update(values.params)

        def suggest(name: str, parameter: Parameter) -> Any:
            if name not in params:
                raise UserError(f"{name}: no legal value is given; expected {parameter}",
                                code="value-missing")
            return params[name]

        return suggest

    def contains(self, values: ParamValues) -> bool:
        """Whether this space contains the network of ``values``.

        The values may be those of another space.
        """
        architecture_id = self.architecture(values).id
        try:
            own_values = self.resolve(self.replay_values(values))
            return (self.architecture(own_values).id == architecture_id
                    and not self.violated_constraints(own_values))
        except UserError:
            return False

    def violated_constraints(self, values: Mapping[str, Any]) -> list[Constraint]:
        """The constraints without costs that ``values`` violate."""
        return [constraint for constraint in self.constraints
                if not constraint.costs and not constraint.is_satisfied(values.__getitem__)]

    def architecture(self, values: ParamValues) -> "ModelSpec":
        """The network that ``values`` describe.

        Raises UnbuildableError if it cannot be built, with the name of the parameter as its key.
        """
        from scalesearch.spaces.assembly import architecture

        for path, reason in values.infeasible_values:
            raise UnbuildableError(path, reason)
        try:
            return architecture.assemble(values)
        except UnbuildableError as error:
            group, _, key = error.key.rpartition(".")
            name = f"{group}.{values.get(group)}.{key}"  # with the variant, if there is one
            if name not in self.parameter_space.domains:
                raise
            raise UnbuildableError(name, error.reason) from None

    def single_architecture(self, name: str | None = None) -> "ModelSpec":
        """The network of a space without open parameters.

        Args:
            name: name of the space in errors; by default that of its file.

        Raises:
            UserError: parameters are open, or the network cannot be built.
        """
        names = [*self.parameter_space.open_parameters()]
        if names:
            shown = ", ".join(names[:6]) + f" and {len(names) - 6} more" * (len(names) > 6)
            raise UserError(f"{name or self.document.position.source.name} leaves {shown} open; "
                            f"set one value for each ({option('set', 'key=value')}, in a study "
                            "file under set:)", code="open-parameters")
        # each parameter that is requested has a single value
        values = self.resolve(lambda name, parameter: (parameter.values() or ())[0])
        return replace(self.architecture(values), protocol=self.protocol)

    def problem_of(self, error: UnbuildableError, message: str = "") -> Problem:
        """``error`` at the position of its key; ``message`` is put before the reason."""
        node = next((node for node in self.parameter_space.nodes
                     if error.key in (node.path, node.key)), None)
        position = node.position_of((0, 0)) if node else self.document.position
        return Problem(position, f"{message}{error}", code=error.code)

    def to_yaml(self) -> str:
        """The canonical YAML, with defaults and full names.

        The space that is read from it is equal.
        """
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
        """Digest of the canonical text, without name and notes.

        Equal spaces have equal hashes.

        Keys with default values are left out, so that a new key does not change the hash of spaces
        that do not use it.
        """
        try:
            defaults = canonical_tree(Space.parse("width: 1", "<plain>", self.schema).root)
        except ConfigError:  # more keys are required
            defaults = {}
        differences = format_lines(_differences(canonical_tree(self.root), defaults))
        constraints = sorted(constraint.text for constraint in self.constraints)
        parts = [*differences, *constraints, *format_lines(self._cost())]
        text = "\n".join(parts)
        # Digest the first spelling of these two names, so that hashes never change.
        text = text.replace("artifact: ", "artefact: ").replace("artifact.bytes", "artefact.bytes")
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.to_yaml() == other.to_yaml()

    def __hash__(self) -> int:
        return hash(self.hash)

    def __repr__(self) -> str:
        n_parameters = format_count(len(self.parameters()), "parameter")
        return f"<Space {self.name or 'without a name'}, {n_parameters}>"


def _differences(tree: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of ``tree`` that differ from ``default`` or are missing there."""
    differences: dict[str, Any] = {}
    for name, value in tree.items():
        other = default.get(name)
        if value != other:
            if isinstance(value, Mapping) and isinstance(other, Mapping):
                differences[name] = _differences(value, other)
            else:
                differences[name] = value
    return differences


def read_space(path: Path | str, schema: SchemaGroup | None = None) -> Space:
    """Read a space file, or the configuration of a Hugging Face model (a file or its folder).

    ``schema`` defaults to the built-in keys. Differences to the Hugging Face model are printed as
    warnings.

    Raises:
        ConfigError: all problems of the file, each with file, line, column, the text underlined and
            a suggestion.
    """
    if (config := load_config(Path(path))) is not None:
        with errors_named(Path(path)):
            space = Space.from_huggingface(config, config_name(Path(path)), path)
        position = SourcePosition(SourceText(str(path), "", has_lines=False), 0, 0, 1)
        for difference in space.not_expressed:
            print_note(position, f"not expressed: {difference}", "warning")
        return space
    document, problems = parse_yaml(SourceText(str(path), read_text(Path(path))))
    check_file_type(document, "space")
    return Space.bind(document, schema or architecture_schema(), problems)
