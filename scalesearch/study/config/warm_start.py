"""What a study file says of other studies to begin with.

::

    warm_start: runs/edge                              # or a list of folders
    warm_start: {from: [runs/edge, runs/old], most: 5} # at most five of their fronts are trained here first
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalesearch.space.syntax.diagnostics import Place
from scalesearch.space.syntax.nodes import Sequence, Table, Text
from scalesearch.study.config.fields import Sections

KEY, NONE, FILE = "warm_start", "none", "warm.json"


@dataclass(frozen=True)
class WarmSpec:
    """Folders of other studies, and how many of their fronts to train here at most (None: as many as ``startup``)."""

    folders: tuple[str, ...]
    most: int | None = None

    def to_json(self) -> dict[str, Any]:
        """What a resumed study must agree with."""
        return {"from": list(self.folders), "most": self.most}


def read_warm(top: Sections, out: Path) -> WarmSpec | None:
    """The studies that a study file begins with; what is wrong goes to the file's problems.

    Args:
        out: the study's own folder. Once it holds what was taken from the others, they need not be there any more.
    """
    node, most = top.node(KEY), None
    if node is None or (isinstance(node, Text) and node.text == NONE):
        return None
    if isinstance(node, Table):
        part = top.part(KEY, ("from", "most"))
        most = part.whole("most", 0) if part.has("most") else None
        node = part.node("from")
    folders = list(_texts(node))
    if not folders or len(folders) < len(list(getattr(node, "items", folders))):
        top.complain(node.here if node else top.table.place, "a warm start is the folder of another study, or a list",
                     "such as `warm_start: runs/edge`, or `warm_start: {from: [runs/edge], most: 5}`")
        return None
    if not (out / FILE).is_file():
        for text, place in folders:
            _check(top, text, place, out)
    return WarmSpec(tuple(text for text, _ in folders), most)


def _texts(node: Any) -> Iterator[tuple[str, Place]]:
    for item in node.items if isinstance(node, Sequence) else [node]:
        if isinstance(item, Text) and item.text:
            yield item.text, item.here


def _check(top: Sections, text: str, place: Place, out: Path) -> None:
    folder = place_of(text)
    if not (folder / "study.json").is_file():
        top.complain(place, f"`{text}` holds no study (no study.json)" if folder.is_dir() else f"no folder `{text}`",
                     "give the folder of a study that `scalesearch study run` has made, such as runs/edge")
    elif folder.resolve() == out.resolve():
        top.complain(place, f"`{text}` is this study's own folder", "give another study's, or go on with --resume")


def place_of(text: str) -> Path:
    """The folder that a file means: ``~`` and variables are filled in."""
    return Path(os.path.expandvars(os.path.expanduser(text)))
