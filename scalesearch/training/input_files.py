"""Read recipes and data from files, mappings or objects.

Errors name file and line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalesearch.config.model import Config, schema_of
from scalesearch.config.reader import ConfigReader, apply_override, to_node, with_position
from scalesearch.data import Corpus, DataSpec, Tokenizer, load_corpus
from scalesearch.data.files import table_format
from scalesearch.errors import UserError, option
from scalesearch.spaces.schema.types import SchemaGroup
from scalesearch.spaces.syntax.diagnostics import (
    ConfigError,
    SourcePosition,
    SourceText,
)
from scalesearch.spaces.syntax.nodes import MappingNode, Node, ScalarNode
from scalesearch.spaces.syntax.yaml_reader import parse_yaml, read_text
from scalesearch.training.recipe import PRESETS, Recipe, check_compatible, check_model_type

ConfigSource = str | Path | Mapping[str, Any]  # a file, a name, or keys


@dataclass
class ConfigSection:
    """Content of a file, or of one of its keys.

    Attributes:
        file: path of the file.
        name: name of the key.
        node: value of the key.
        positions: position of the value of each key, by dotted path; set by :meth:`parse`.
    """

    file: Path
    name: str
    node: Node
    positions: dict[str, SourcePosition] = field(default_factory=dict)

    def parse(self, model: type[Config], settings: Sequence[str] = ()) -> Any:
        """Parse the content as ``model``, with overrides such as ``recipe.lr=1e-3``.

        Raises:
            ConfigError: lists every problem with its position.
        """
        file = MappingNode(self.node.position,
                           ((ScalarNode(self.node.position, self.name), self.node),))
        whole = SchemaGroup({self.name: schema_of(model)})
        for setting in settings:
            file = apply_override(file, whole, setting)
        node = file.get(self.name) or self.node
        reader = ConfigReader(model, self.name)
        value = reader.read(node)
        if reader.problems:
            raise ConfigError(reader.problems)
        self.positions = ({f"{self.name}.{key}": place for key, place in reader.positions.items()}
                          | {self.name: node.display_position})
        return value

    @contextmanager
    def locate_errors(self) -> Iterator[None]:
        """Context that adds the position of the invalid key to errors."""
        try:
            yield
        except UserError as error:
            raise with_position(error, self.positions) from None


def read_section(file: Path, name: str, hint: str,
                 presets: Sequence[str] = ()) -> ConfigSection:
    """Read a file, or its key ``name`` if it has this key.

    Args:
        hint: help for a missing or empty file.
        presets: names that may be written instead of a file.

    Raises:
        UserError: the file is missing, empty, not a text or not YAML.
    """
    text = read_text(file, hint, presets)
    if not text.strip():
        raise UserError(f"{file}: the file is empty", help=hint, code="empty-file")
    table, problems = parse_yaml(SourceText(str(file), text), "a file", f"{name}: {{…}}")
    if problems:
        raise ConfigError(problems)
    return ConfigSection(file, name, table.get(name) or table)


def _check_source(name: str, source: object) -> None:
    if not isinstance(source, str | Path | Mapping):
        raise UserError(f"{name}: expected a file, a name, or a mapping of keys, found {source!r}",
                        key=name, code="bad-value")


def load_recipe(source: ConfigSource | Recipe, settings: tuple[str, ...] = ()) -> Recipe:
    """Load a recipe.

    Args:
        source: a preset, a file, or keys.
        settings: overrides such as ``recipe.lr=1e-3``.

    Raises:
        UserError: the preset or the file does not exist, or a key is invalid.

    Example:
        >>> load_recipe({"preset": "quick", "steps": 500}).steps
        500
    """
    if isinstance(source, Recipe):
        return source
    _check_source("recipe", source)
    if isinstance(source, Mapping) or str(source) in PRESETS:
        keys = source if isinstance(source, Mapping) else {"preset": source}
        section = ConfigSection(Path("recipe"), "recipe", to_node("recipe", keys))
    else:
        section = read_section(Path(source), "recipe", "give a file or one of the presets "
                               f"{', '.join(PRESETS)}", tuple(PRESETS))
    recipe: Recipe = section.parse(Recipe, settings)
    return recipe


def load_training_costs(source: ConfigSource | Recipe, pairs: int | None = None) -> dict[str, Any]:
    """Load a recipe as settings of a cost protocol.

    Args:
        pairs: sentence pairs of an epoch.

    Raises:
        UserError: the recipe is invalid, or pairs are given and it has no length in epochs.
    """
    settings = load_recipe(source).protocol_settings(pairs)
    if pairs is not None and "pairs" not in settings:
        raise UserError(f"{option('pairs')} has no effect: the length of the recipe is not in "
                        "epochs", help=f"remove {option('pairs')}", code="options-conflict")
    return settings


def read_data_spec(source: ConfigSource | DataSpec) -> tuple[DataSpec, ConfigSection]:
    """Read the description of training data.

    Args:
        source: a data file, its keys, `builtin`, a study file, or the data.json of a training run.

    Raises:
        UserError: the file does not exist, or a key is invalid.
    """
    if not isinstance(source, DataSpec):
        _check_source("data", source)
    if source == "builtin":
        source = {"builtin": "grammar"}
    if not isinstance(source, str | Path):
        section = ConfigSection(Path("data"), "data", to_node("data", source))
    elif table_format(source) and Path(source).is_file():
        raise UserError(f"{source}: this is a table of sentences, not a data file",
                        help="write a YAML file with the keys `train`, `validation` and `test`, "
                        "which name tables, and give that file", code="wrong-type")
    else:
        section = read_section(Path(source), "data", "give `builtin` or a file")
        # the data.json of a training run has its data under `spec`
        spec_node = section.node.get("spec") if isinstance(section.node, MappingNode) else None
        section.node = spec_node or section.node
    return section.parse(DataSpec), section


def load_data_spec(source: ConfigSource | DataSpec) -> DataSpec:
    """Read data as :func:`read_data_spec` does, with absolute paths."""
    spec, section = read_data_spec(source)
    with section.locate_errors():
        return spec.with_absolute_paths(section.file.parent)


def load_data(source: ConfigSource | DataSpec, recipe: Recipe | None = None,
              vocab_sizes: tuple[int | None, int | None] = (None, None),
              tokenizer: Path | None = None, model_type: str | None = None) -> Corpus:
    """Load a corpus; paths in a file are relative to its folder.

    Args:
        source: as in :func:`read_data_spec`.
        recipe: recipe of the training run, to check that it fits the data.
        vocab_sizes: sizes of the vocabulary and of a separate target vocabulary if the model fixes
            them.
        tokenizer: tokenizer file of a model that is fine-tuned; the data may name no other
            vocabulary.
        model_type: type of the model, to check that the task supports it before the text is read.

    Raises:
        UserError: file, data or recipe are invalid.
    """
    spec, section = read_data_spec(source)
    with section.locate_errors():
        if recipe is not None:
            check_compatible(spec, recipe)
        if model_type is not None:
            check_model_type(spec.task, model_type)
        if isinstance(source, str | Path):  # a training run stores the paths of its text
            spec = spec.with_absolute_paths(section.file.parent)
        spec = (spec.with_vocab(*vocab_sizes) if tokenizer is None else
                spec.with_tokenizer(Tokenizer.from_file(tokenizer), tokenizer))
        return load_corpus(spec)
