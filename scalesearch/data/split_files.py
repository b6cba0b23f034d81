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
    """Pair of aligned files without a common prefix.

    ``references`` are further files of references, next to ``target``, for corrections.
    """

    source: str
    target: str
    references: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the mapping of a data file."""
        return {"source": self.source,
                "target": [self.target, *self.references] if self.references else self.target}

    def map_paths(self, function: Callable[[str], str]) -> "FilePair":
        """Return a copy with ``function`` applied to each path."""
        return FilePair(function(self.source), function(self.target),
                        tuple(map(function, self.references)))

    def __str__(self) -> str:
        return f"{self.source} + {self.target}"


SplitPart = str | FilePair


def is_m2(part: Any) -> bool:
    """Whether a part of a split is a file of gold edits."""
    return isinstance(part, str) and part.endswith(M2_ENDINGS)


def read_parts(node: Node, complain: ReportNodeError) -> tuple[SplitPart, ...]:
    """Read the parts of a split; see ``PARTS_SYNTAX``."""
    items = node.items if isinstance(node, SequenceNode) else (node,)
    parts = [_read_part(item, complain) for item in items]
    return tuple(part for part in parts if part is not None)


def _read_part(item: Node, complain: ReportNodeError) -> SplitPart | None:
    if isinstance(item, ScalarNode) and item.text.strip():
        return item.text
    if isinstance(item, MappingNode) and {key.text for key, _ in item} == {"source", "target"}:
        source = _read_paths(item.get("source"))
        target = _read_paths(item.get("target"))
        if len(source) == 1 and target:
            return FilePair(source[0], target[0], target[1:])
    complain(item, f"expected {PARTS_SYNTAX}", None)
    return None


def _read_paths(node: Node | None) -> tuple[str, ...]:
    """Read one path or a list of paths; an empty tuple if the node is anything else."""
    items = node.items if isinstance(node, SequenceNode) else (node,)
    paths = tuple(item.text for item in items if isinstance(item, ScalarNode) and item.text)
    return paths if len(paths) == len(items) else ()


def parts_to_json(parts: tuple[SplitPart, ...]) -> Any:
    """Return parts as JSON values, as in a data file."""
    values = [part if isinstance(part, str) else part.to_json() for part in parts]
    return values[0] if len(values) == 1 else values
