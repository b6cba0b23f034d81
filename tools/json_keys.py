"""Keys of the JSON that commands print with ``--json``, stored in ``tests/json_keys.toml``.

Tests of commands check that the keys which they print are in that file, and the page of the command
line lists them. To add new keys, run the tests that print them, and write the page:

    pytest --write-json-keys tests/cli/test_check.py
    python -m tools.pages
"""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "tests" / "json_keys.toml"

Keys = dict[str, list[str]]  # by command, in the order of the output


def read_keys() -> Keys:
    """Read the keys of all commands."""
    return tomllib.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def add_keys(new: Keys) -> None:
    """Add keys of commands to the file, after those that it has."""
    keys = read_keys()
    lines = []
    for command in sorted({*keys, *new}):
        distinct = dict.fromkeys([*keys.get(command, []), *new.get(command, [])])
        lines.append(f"{json.dumps(command)} = {json.dumps([*distinct])}\n")
    FILE.write_text("".join(lines), encoding="utf-8")


def keys_of(value: Any) -> Iterator[str]:
    """Keys of an object, or of the objects in a list.

    Keys with a dot, such as ``params.total``, are left out: they are names of costs, scores and
    parameters, which depend on the study.
    """
    for record in value if isinstance(value, list) else [value]:
        yield from (key for key in record if "." not in key)
