"""Finds the files that a data spec names; errors name the nearest ones."""

import difflib
import os
import re
from pathlib import Path

from scalesearch.errors import UserError

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def expand(path: str, where: str, base: Path | None = None) -> Path:
    """Absolute path with ``$VARIABLES`` and ``~`` expanded; relative ones start at ``base`` or the working directory.

    ``where`` is the key that holds the path, for the message.

    Raises:
        UserError: a variable is not set.
    """
    for braced, bare in _VARIABLE.findall(path):
        name = braced or bare
        if not os.environ.get(name):
            raise UserError(f"data: {where}: {path} needs the environment variable {name}, which is not set. "
                            f"Set it to where the data lies: export {name}=/path/to/data", key=f"data.{where}",
                            code="variable-not-set")
    filled = _VARIABLE.sub(lambda match: os.environ[match[1] or match[2]], path)
    return Path(os.path.abspath((base or Path()) / os.path.expanduser(filled)))


def text_file(path: str, where: str) -> Path:
    """Finds the file at ``path``, or ``path.gz`` where only that exists.

    Raises:
        UserError: neither is a file; the message names the nearest that are.
    """
    for candidate in (Path(path), Path(path + ".gz")):
        if candidate.is_file():
            return candidate
    raise UserError(f"data: {where}: no such file: {path} (nor {Path(path).name}.gz). {_nearest(Path(path))}",
                    key=f"data.{where}", code="no-such-file")


def _nearest(path: Path) -> str:
    if path.is_dir():
        return "It is a folder; name the files in it."
    folder = path.parent
    if not folder.is_dir():
        exists = next(parent for parent in folder.parents if parent.is_dir())
        return f"The folder {folder} does not exist either; the last part of it that does is {exists}."
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    near = difflib.get_close_matches(path.name, names, n=4, cutoff=0.5)
    if near:
        return f"Near it in {folder}: {', '.join(near)}."
    names.sort(key=lambda name: difflib.SequenceMatcher(None, path.name, name).ratio(), reverse=True)
    return f"In {folder} there is {', '.join(names[:8]) or 'no file'}{' …' if len(names) > 8 else ''}."


def default_cache() -> Path:
    """Default folder of binarised corpora, under ``$XDG_CACHE_HOME`` or ``~/.cache``.

    Raises:
        UserError: the variable is not set and the user has no home folder, as in some containers.
    """
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        raise UserError("no home folder to keep corpora in: set XDG_CACHE_HOME to a folder for them",
                        code="no-home") from None
    return home / "scalesearch" / "corpora"
