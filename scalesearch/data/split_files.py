"""Parts of a split in a data spec: prefixes, pairs of files, M2 files, text files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainValidator, ValidationInfo

from scalesearch.config.model import SettingError, SettingProblem
from scalesearch.config.reader import file_value
from scalesearch.data.files import COMPRESSED_SUFFIXES, table_format
from scalesearch.spaces.syntax.diagnostics import suggest_match

M2_ENDINGS = (".m2", *(f".m2{suffix}" for suffix in COMPRESSED_SUFFIXES))
PARTS_SYNTAX = ("a path (for pairs without the ending), a table (.tsv or .jsonl), "
                "`{source: FILE, target: FILE}`, or a list of these")


@dataclass(frozen=True)
class FilePair:
    """Pair of aligned files without a common prefix.

    ``references`` are further files of references, next to ``target``.
    """

    source: str
    target: str
    references: tuple[str, ...] = ()

    def map_paths(self, function: Callable[[str], str]) -> "FilePair":
        """Return a copy with ``function`` applied to each path."""
        return FilePair(function(self.source), function(self.target),
                        tuple(map(function, self.references)))

    def __str__(self) -> str:
        return f"{self.source} + {self.target}"


@file_value.register
def _pair_of_files(pair: FilePair) -> dict[str, Any]:
    return {"source": pair.source,
            "target": [pair.target, *pair.references] if pair.references else pair.target}


SplitPart = str | FilePair


def is_m2(part: object) -> bool:
    """Whether a part of a split is a file of gold edits."""
    return isinstance(part, str) and part.endswith(M2_ENDINGS)


def is_prefix(part: object) -> bool:
    """Whether a part of a split of pairs names two files without their endings."""
    return isinstance(part, str) and not is_m2(part) and table_format(part) is None


def _read_part(value: Any, info: ValidationInfo) -> SplitPart:
    if isinstance(value, FilePair):
        return value
    if isinstance(value, str | Path) and str(value).strip():
        return str(value)
    if isinstance(value, Mapping):
        sides = ("source", "target")
        unknown = [SettingProblem(key, f"unknown key `{key}` in `{info.field_name}`",
                                  suggest_match(key, sides), code="unknown-key", at_key=True)
                   for key in map(str, value) if key not in sides]
        if unknown:
            raise SettingError(*unknown)
        source = _read_paths(value.get("source"))
        target = _read_paths(value.get("target"))
        if len(source) == 1 and target:
            return FilePair(source[0], target[0], target[1:])
    raise SettingError(SettingProblem("", f"expected {PARTS_SYNTAX}"))


def _read_paths(value: Any) -> tuple[str, ...]:
    """Read one path or a list of paths; an empty tuple if the value is anything else."""
    items = value if isinstance(value, list | tuple) else (value,)
    paths = tuple(str(item) for item in items if isinstance(item, str | Path) and str(item))
    return paths if len(paths) == len(items) else ()


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else () if value is None else (value,)


# the parts of a split, see ``PARTS_SYNTAX``
Parts = Annotated[
    tuple[Annotated[SplitPart, PlainValidator(_read_part, json_schema_input_type=str | FilePair)],
          ...], BeforeValidator(_as_list, json_schema_input_type=str | FilePair | list[
              str | FilePair])]


def parts_to_json(parts: tuple[SplitPart, ...]) -> Any:
    """Return parts as JSON values, as in a data file."""
    values = [file_value(part) for part in parts]
    return values[0] if len(values) == 1 else values
