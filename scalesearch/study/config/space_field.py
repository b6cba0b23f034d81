"""Reads the space of a study file: a file's name, ``{file: …, set: {…}}``, or the space itself, in its place."""

from collections.abc import Iterable
from pathlib import Path

from scalesearch.library import find_file
from scalesearch.space import Space, SpaceErrors, read_space
from scalesearch.space.syntax.nodes import Table, Text
from scalesearch.study.config.designs import space_key
from scalesearch.study.config.fields import Sections, written


class Spaces:
    """Of one study file.

    Args:
        path, text: of the file.
        top: its keys.
        opened: settings such as ``space.width=64 | 128``, which are the space language's to read.
    """

    def __init__(self, path: Path, text: str, top: Sections, opened: Iterable[str]) -> None:
        self.path, self.text, self.top = path, text, top
        pairs = (assignment.strip().partition(".")[2].partition("=") for assignment in opened)
        self.opened = {key.strip(): value.strip() for key, _, value in pairs}

    def read(self, kind: str) -> Space | None:
        """What a study of ``kind`` searches or begins with; None where it is wrong, or each row is a file."""
        key = space_key(self.top, kind)
        if not self.top.has(key) and self.top.has("rows"):
            return None
        found = self._given(key)
        return found.set(self.opened) if found and self.opened else found

    def file(self, name: str) -> Space:
        """The space in a file beside the study's, or of that name among those that are shipped. Raises UserError."""
        beside = self.path.parent / name
        return read_space(beside if beside.is_file() else find_file(name, "spaces"))

    def _given(self, key: str) -> Space | None:
        node = self.top.node(key)
        if node is None:
            self.top.missing(key, "transformer")
            return None
        if isinstance(node, Text):
            return self.top.trying(key, lambda: self.file(node.text))
        if isinstance(node, Table) and node.get("file"):
            part = self.top.part(key, ("file", "set"))
            sets = {key: written(value) for key, value in (part.value("set") or {}).items()}
            return self.top.trying(key, lambda: self.file(str(part.text("file"))).set(sets))
        if not isinstance(node, Table):
            self.top.complain(node.here, "a space is a file, a mapping of its keys, or {file: …, set: {…}}")
            return None
        try:
            return Space.parse(self._inline(key), name=str(self.path))
        except SpaceErrors as errors:
            self.top.problems += errors.problems
            return None

    def _inline(self, name: str) -> str:
        """The lines of an inline space, with empty ones before them, so that positions stay those of the file."""
        lines = self.text.splitlines(keepends=True)
        keys = [key.place.line for key, _ in self.top.table if key.place.source.numbered]
        key = next(key for key, _ in self.top.table if key.text == name)
        node = self.top.node(name)
        assert node is not None
        start = node.place.line
        end = min((line for line in keys if line > key.place.line), default=len(lines))
        first = " " * node.place.column + lines[start][node.place.column :]
        return "\n" * start + first + "".join(lines[start + 1 : end])
