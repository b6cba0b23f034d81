"""One section of a YAML file, read by its schema, so that every error can say where to look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.errors import UserError

if TYPE_CHECKING:
    from scalesearch.space.schema.types import Group
    from scalesearch.space.syntax.diagnostics import Place
    from scalesearch.space.syntax.nodes import Node


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
    places: dict[str, Place] = field(default_factory=dict)

    def read(self, schema: Group, option: str = "", settings: Sequence[str] = ()) -> Any:
        """What ``schema`` makes of it, changed by ``key=value`` settings given to ``option``. Raises UserError."""
        from scalesearch.space.binding.constants import Reader, override
        from scalesearch.space.syntax.diagnostics import SpaceErrors
        from scalesearch.space.syntax.nodes import Table, Text

        node = self.node
        if settings and isinstance(node, Text) and schema.bare:
            node = Table(node.place, ((Text(node.place, schema.bare), node),))
        for setting in settings:
            node = override(node, schema, setting, option) if isinstance(node, Table) else node
        reader = Reader(schema, self.name)
        found = reader.read(node)
        if reader.problems:
            raise SpaceErrors(reader.problems)
        self.places = {f"{self.name}.{key}": place for key, place in reader.places.items()} | {self.name: node.here}
        return found

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Puts the place of their key before the messages of errors raised inside."""
        from scalesearch.space.binding.constants import placed

        try:
            yield
        except UserError as error:
            raise placed(error, self.places) from None


def read_section(file: Path, name: str, otherwise: str) -> Section:
    """What ``file`` says, beneath ``name:`` if it has that.

    Raises:
        UserError: missing, not text, not YAML (with its place) or empty; ``otherwise`` says what could be given.
    """
    from scalesearch.space.syntax.diagnostics import Source, SpaceErrors
    from scalesearch.space.syntax.yaml_reader import compose

    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {getattr(error, 'strerror', None) or error}. {otherwise}",
                        code="cannot-read") from None
    if not text.strip():
        raise UserError(f"{file}: the file is empty. {otherwise}", code="empty-file")
    table, problems = compose(Source(str(file), text), "a file", f"{name}: {{…}}")
    if problems:
        raise SpaceErrors(problems)
    return Section(file, name, table.get(name) or table)
