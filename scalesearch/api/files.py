"""Recipes and data, as files, mappings or objects, read by their schema: every error can say where to look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.errors import UserError

if TYPE_CHECKING:
    from scalesearch.data import Corpus, DataSpec
    from scalesearch.space.schema.types import SchemaGroup
    from scalesearch.space.syntax.diagnostics import SourcePosition
    from scalesearch.space.syntax.nodes import Node
    from scalesearch.train import Recipe

Given = str | Path | Mapping[str, Any]  # a file, a name, or keys


@dataclass
class Section:
    """What a file says under a name, or as a whole.

    Attributes:
        node: its value.
        places: where each key's value stands, by dotted path; known once it has been read.
    """

    file: Path
    name: str
    node: Node
    places: dict[str, SourcePosition] = field(default_factory=dict)

    def read(self, schema: SchemaGroup, settings: Sequence[str] = ()) -> Any:
        """What ``schema`` makes of it, changed by settings such as ``recipe.lr=1e-3``. Raises UserError."""
        from scalesearch.space.binding.config_reader import ConfigReader, apply_override
        from scalesearch.space.syntax.diagnostics import ConfigError
        from scalesearch.space.syntax.nodes import MappingNode, ScalarNode

        file = MappingNode(self.node.position, ((ScalarNode(self.node.position, self.name), self.node),))
        whole = replace(schema, fields={self.name: schema})
        for setting in settings:
            file = apply_override(file, whole, setting)
        node = file.get(self.name) or self.node
        reader = ConfigReader(schema, self.name)
        value = reader.read(node)
        if reader.problems:
            raise ConfigError(reader.problems)
        self.places = {f"{self.name}.{key}": place for key, place in reader.positions.items()} | {self.name: node.display_position}
        return value

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Puts the place of their key before the messages of errors raised inside."""
        from scalesearch.space.binding.config_reader import with_position

        try:
            yield
        except UserError as error:
            raise with_position(error, self.places) from None


def read_section(file: Path, name: str, otherwise: str) -> Section:
    """What ``file`` says, beneath ``name:`` if it has that.

    Raises:
        UserError: missing, not text, not YAML (with its place) or empty; ``otherwise`` says what could be given.
    """
    from scalesearch.space.syntax.diagnostics import ConfigError, SourceText
    from scalesearch.space.syntax.yaml_reader import parse_yaml, read_text

    try:
        text = read_text(file)
    except ConfigError as error:
        raise UserError(f"{error.message}\n  = help: {otherwise}", code=error.code) from None
    if not text.strip():
        raise UserError(f"{file}: the file is empty. {otherwise}", code="empty-file")
    table, problems = parse_yaml(SourceText(str(file), text), "a file", f"{name}: {{…}}")
    if problems:
        raise ConfigError(problems)
    return Section(file, name, table.get(name) or table)


def load_recipe(given: Given | Recipe, settings: tuple[str, ...] = ()) -> Recipe:
    """The recipe ``given``: a preset, a file, or its keys, changed by settings such as ``recipe.lr=1e-3``.

    Raises:
        UserError: no such preset or file, or a wrong field.

    Example:
        >>> load_recipe({"preset": "quick", "steps": 500}).steps
        500
    """
    from scalesearch.space.binding.config_reader import to_node
    from scalesearch.train.recipe import PRESETS, RECIPE_SCHEMA, Recipe

    if isinstance(given, Recipe):
        return given
    if isinstance(given, Mapping) or str(given) in PRESETS:
        keys = given if isinstance(given, Mapping) else {"preset": given}
        section = Section(Path("recipe"), "recipe", to_node("recipe", keys))
    else:
        section = read_section(Path(given), "recipe", f"The presets are {', '.join(PRESETS)}; or give a file")
    recipe: Recipe = section.read(RECIPE_SCHEMA, settings)
    return recipe


def read_data(given: Given | DataSpec) -> tuple[DataSpec, Section]:
    """What a YAML file, or its keys, say of data; `builtin`, a study file and a training's data.json do as well.

    Raises:
        UserError: no such file, or something wrong with it.
    """
    from scalesearch.data.spec import DATA_SCHEMA
    from scalesearch.space.binding.config_reader import to_node
    from scalesearch.space.syntax.nodes import MappingNode

    if given == "builtin":
        given = {"builtin": "grammar"}
    if not isinstance(given, str | Path):
        section = Section(Path("data"), "data", to_node("data", given))
    else:
        section = read_section(Path(given), "data", "Give `builtin` or a file")
        trained = section.node.get("spec") if isinstance(section.node, MappingNode) else None
        section.node = trained or section.node  # the data.json that a training leaves has more keys
    return section.read(DATA_SCHEMA), section


def data_spec(given: Given | DataSpec) -> DataSpec:
    """What ``given`` says of data (see :func:`read_data`), with whole paths."""
    spec, section = read_data(given)
    with section.naming():
        return spec.with_absolute_paths(section.file.parent)


def load_data(given: Given | DataSpec, recipe: Recipe | None = None,
              vocab: int | None = None) -> Corpus:
    """The corpus that ``given`` describes (see :func:`read_data`); the paths of a file start at its own folder.

    Args:
        vocab: of the model, where it has its own.

    Raises:
        UserError: something wrong with file or data, or with training on it by ``recipe``.
    """
    from scalesearch.data import load_corpus
    from scalesearch.train.recipe import check_compatible

    spec, section = read_data(given)
    with section.naming():
        if recipe is not None:
            check_compatible(spec, recipe)
        if isinstance(given, str | Path):  # a training remembers where its text is
            spec = spec.with_absolute_paths(section.file.parent)
        return load_corpus(spec.with_vocab(vocab))
