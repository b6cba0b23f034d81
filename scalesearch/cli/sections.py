"""One section of a YAML file and the lines of its keys, so that an error can say where to look."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalesearch.errors import UserError

KEY = re.compile(r"(?:data|recipe): (?:unknown key )?`?(\w+)")  # how messages about a section begin


@dataclass(frozen=True)
class Section:
    """What a file says.

    Args:
        value: as YAML reads it.
        lines: of its keys, from 1.
    """

    file: Path
    value: Any
    lines: Mapping[str, int]

    @contextmanager
    def naming(self, elsewhere: Collection[str] = ()) -> Iterator[None]:
        """Puts file and line before the messages of errors raised inside; ``elsewhere`` are keys given otherwise."""
        try:
            yield
        except UserError as error:
            raise UserError("\n".join(self._named(line, elsewhere) for line in str(error).split("\n"))) from None

    def _named(self, message: str, elsewhere: Collection[str]) -> str:
        found = KEY.match(message)
        if found is None or found[1] in elsewhere:
            return message
        line = self.lines.get(found[1])
        return f"{self.file}: {message}" if line is None else f"{self.file}:{line}: {message}"


def read_section(file: Path, name: str, otherwise: str) -> Section:
    """What ``file`` says, beneath ``name:`` if it has that.

    Raises:
        UserError: missing, not text, not YAML (with its place) or empty; ``otherwise`` says what could be given.
    """
    import yaml

    from scalesearch.space.syntax.diagnostics import Source
    from scalesearch.space.syntax.yaml_reader import compose

    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {getattr(error, 'strerror', None) or error}. {otherwise}") from None
    try:
        value, root = yaml.safe_load(text), yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        compose(Source(str(file), text))  # complains too, and shows the place
        raise UserError(f"{file}: not YAML: {error}") from None
    if value is None:
        raise UserError(f"{file}: the file is empty. {otherwise}")
    if isinstance(value, dict) and name in value:
        value, root = value[name], next(node for key, node in root.value if key.value == name)
    entries = root.value if isinstance(root, yaml.MappingNode) else ()
    return Section(file, value, {str(key.value): key.start_mark.line + 1 for key, _ in entries})
