"""Parts of a split in a data spec: prefixes, pairs of files, M2 files, text files."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

M2_ENDINGS = (".m2", ".m2.gz")


@dataclass(frozen=True)
class PairOfFiles:
    """Pair of files whose lines translate each other, where no common prefix names them.

    ``references`` are further files of references beside ``target``, for corrections.
    """

    source: str
    target: str
    references: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Mapping as in a data file."""
        return {"source": self.source, "target": [self.target, *self.references] if self.references else self.target}

    def map_paths(self, change: Callable[[str], str]) -> "PairOfFiles":
        """Copy with ``change`` applied to each path."""
        return PairOfFiles(change(self.source), change(self.target), tuple(map(change, self.references)))


Part = str | PairOfFiles


def is_m2(part: Any) -> bool:
    """Whether a part of a split is a file of gold edits."""
    return isinstance(part, str) and part.endswith(M2_ENDINGS)


def has_prefix(value: Any) -> bool:
    """Whether a split of corrections, as given, has a part that needs the endings ``source`` and ``target``."""
    items = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(item, str) and not is_m2(item) for item in items)


def read_parts(split: str, value: Any, form: str) -> tuple[tuple[Part, ...], list[str]]:
    """Parts of a split whose files have ``form`` (one of :data:`scalesearch.tasks.FORMS`), and error messages."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    parts: list[Part] = []
    problems = []
    for item in items:
        part = _part(split, item, form)
        if isinstance(part, Problem):
            problems.append(str(part))
        else:
            parts.append(part)
    return tuple(parts), problems


class Problem(str):
    """Error message in place of a part."""


def _part(split: str, item: Any, form: str) -> Part | Problem:
    match item:
        case str() if item.strip():
            return item
        case _ if form == "text":
            return Problem(f"{split}: {item!r} is no path of a text file")
        case PairOfFiles():
            return item
        case {"source": str(source), "target": str(target), **rest} if not rest:
            return PairOfFiles(source, target)
        case {"source": str(source), "target": [str(first), *others], **rest} if not rest and _paths(others):
            if form == "corrections" and split != "train":
                return PairOfFiles(source, first, tuple(others))
            return Problem(f"{split}: several references are for the validation and test text of `task: correction`")
    m2 = ", no M2 file (FILE.m2)" if form == "corrections" else ""
    return Problem(f"{split}: {item!r} is no path prefix{m2} and no {{source: FILE, target: FILE}}")


def _paths(items: list[Any]) -> bool:
    return all(isinstance(item, str) for item in items)


def plain(parts: tuple[Part, ...]) -> Any:
    """Parts as JSON values, as in a data file."""
    values = [part if isinstance(part, str) else part.to_json() for part in parts]
    return values[0] if len(values) == 1 else values


def names(parts: tuple[Part, ...]) -> list[str]:
    """Names of the parts, for people."""
    return [part if isinstance(part, str) else f"{part.source} + {part.target}" for part in parts]
