"""Parts of a split in a data spec: prefixes, pairs of files, M2 files, text files."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scalesearch.space.schema.types import ReportNodeError
from scalesearch.space.syntax.nodes import MappingNode, Node, ScalarNode, SequenceNode

M2_ENDINGS = (".m2", ".m2.gz")
PARTS_SYNTAX = ("a path (for pairs without the ending), `{source: FILE, target: FILE}`, or a list "
                "of these")


@dataclass(frozen=True)
class FilePair:
    """Pair of files whose lines translate each other, where no common prefix names them.

    ``references`` are further files of references beside ``target``, for corrections.
    """

    source: str
    target: str
    references: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Mapping as in a data file."""
        return {"source": self.source,
                "target": [self.target, *self.references] if self.references else self.target}

    def map_paths(self, function: Callable[[str], str]) -> "FilePair":
        """Copy with ``function`` applied to each path."""
        return FilePair(function(self.source), function(self.target),
                        tuple(map(function, self.references)))

    def __str__(self) -> str:
        return f"{self.source} + {self.target}"


SplitPart = str | FilePair


def is_m2(part: Any) -> bool:
    """Whether a part of a split is a file of gold edits."""
    return isinstance(part, str) and part.endswith(M2_ENDINGS)


def read_parts(node: Node, complain: ReportNodeError) -> tuple[SplitPart, ...]:
    """Parts of a split: a path, ``{source: FILE, target: FILE}``, or a list of these."""
    items = node.items if isinstance(node, SequenceNode) else (node,)
    return tuple(part for item in items if (part := _part(item, complain)) is not None)


def _part(item: Node, complain: ReportNodeError) -> SplitPart | None:
    if isinstance(item, ScalarNode) and item.text.strip():
        return item.text
    if isinstance(item, MappingNode) and {key.text for key, _ in item} == {"source", "target"}:
        source = _texts(item.get("source"))
        target = _texts(item.get("target"))
        if len(source) == 1 and target:
            return FilePair(source[0], target[0], target[1:])
    complain(item, f"expected {PARTS_SYNTAX}", None)
    return None


def _texts(node: Node | None) -> tuple[str, ...]:
    """One path or several; none where anything else stands there."""
    items = node.items if isinstance(node, SequenceNode) else (node,)
    found = tuple(item.text for item in items if isinstance(item, ScalarNode) and item.text)
    return found if len(found) == len(items) else ()


def parts_to_json(parts: tuple[SplitPart, ...]) -> Any:
    """Parts as JSON values, as in a data file."""
    values = [part if isinstance(part, str) else part.to_json() for part in parts]
    return values[0] if len(values) == 1 else values
