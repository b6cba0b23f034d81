"""Spaces that a study file names, contains or changes."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from scalesearch.config.model import REQUIRED, Config, Text, setting
from scalesearch.config.reader import read_config
from scalesearch.errors import UserError, option_prefix
from scalesearch.library import ARCHITECTURE_FILE, find_file
from scalesearch.spaces import ConfigError, Space, read_space
from scalesearch.spaces.schema.builtin import architecture_schema
from scalesearch.spaces.syntax.diagnostics import Problem, SourcePosition
from scalesearch.spaces.syntax.nodes import MappingNode, Node, ScalarNode
from scalesearch.studies.config.sections import TeacherSpec, expand_path
from scalesearch.studies.config.spec import SPACE_FORM
from scalesearch.studies.config.values import PARAMS_FORM, Params


class FileAndParams(Config):
    """A space file, and params that replace some of its parameters."""

    file: Text = setting(REQUIRED, "a space file, or the name of a shipped one")
    set: Params = setting({}, "params, or narrower domains", expected=PARAMS_FORM)


def open_space(study_file: Path, name: str) -> Space:
    """The space in a file next to the study, or the shipped space ``name``.

    Raises:
        UserError: the file does not exist, or is invalid.
    """
    file = study_file.parent / name
    return read_space(file if os.path.isfile(file) else find_file(name, "spaces"))


def read_space_node(study_file: Path, node: Node) -> Space:
    """The space at ``node``: a file, a file with changes, or the space itself.

    Raises:
        UserError: it is invalid.
    """
    if isinstance(node, ScalarNode) and node.text:
        return open_space(study_file, node.text)
    if not isinstance(node, MappingNode):
        raise UserError(f"expected {SPACE_FORM}", code="bad-value")
    if node.get("file"):
        source = read_config(FileAndParams, node)
        return change_space(open_space(study_file, source.file), source.set, node.get("set"))
    return Space.bind(node, architecture_schema(), [])


def read_parent(study_file: Path, parent: TeacherSpec, changes: Node | None) -> Space:
    """The architecture of the parent of a compression, as a space.

    Args:
        changes: the node of ``set``.

    Raises:
        UserError: it is invalid, or not a finished training run.
    """
    if parent.folders:
        folder = expand_path(parent.folders[0])
        if len(parent.folders) > 1 or not os.path.isfile(folder / ARCHITECTURE_FILE):
            raise UserError(f"parent: {', '.join(parent.folders)} is not the folder of one "
                            "finished training run", help="give a folder that `scalesearch "
                            "train --out` has written", key="parent", code="no-teacher")
        return read_space(folder / ARCHITECTURE_FILE)
    if parent.file is None:
        raise UserError("parent: give `folder`, or the `file` of a model to train first",
                        key="parent", code="missing-key")
    return change_space(open_space(study_file, parent.file), parent.set, changes)


def change_space(space: Space, changes: Mapping[str, str], node: Node | None) -> Space:
    """``space`` with the ``changes`` in ``node``, at which problems are reported."""
    try:
        return space.with_overrides(changes) if changes else space
    except ConfigError as error:
        assert node is not None
        raise ConfigError([replace(problem, position=position_of_change(problem, node))
                           for problem in error.problems]) from None


def position_of_change(problem: Problem, node: Node) -> SourcePosition:
    """The position in a file of a problem of changes, whose positions are those of an option."""
    column = problem.position.column
    line = problem.position.source.lines[0]
    for key, value in node if isinstance(node, MappingNode) else ():
        before_value = f"{option_prefix('set')}{key.text}="
        if line.startswith(before_value):
            return (key.position if column < len(before_value) else value.display_position)
    return node.display_position
