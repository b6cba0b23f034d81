"""The key ``warm_start`` of a study file.

::

    warm_start: runs/edge                              # or a list of folders
    warm_start: {from: [runs/edge, runs/old], most: 5} # at most five of their fronts are trained here first
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalesearch.space.schema.settings import REQUIRED, schema_of, setting
from scalesearch.study.config.values import read_texts

KEY, FILE = "warm_start", "warm.json"


@dataclass(frozen=True)
class WarmSpec:
    """Other studies to begin with."""

    folders: tuple[str, ...] = setting(REQUIRED, "folders of other studies", key="from", read=read_texts,
                                       form="a folder, or a list of folders", synonyms=("folders", "studies"))
    most: int | None = setting(None, "how many of their fronts are trained here first at most", low=0,
                               unit="trainings", shown="as many as random proposals at the start", synonyms=("max",))

    def to_json(self) -> dict[str, Any]:
        """JSON that a resumed study must agree with."""
        return {"from": list(self.folders), "most": self.most}


WARM = schema_of(WarmSpec, bare="from", optional=True)


def misplaced(warm: WarmSpec, out: Path) -> Iterator[tuple[str, str]]:
    """Yields problems of the folders, with their help.

    Args:
        out: the study's own folder. Once it holds what was taken from the others, they need not be there any more.
    """
    for text in () if (out / FILE).is_file() else warm.folders:
        folder = place_of(text)
        if not (folder / "study.json").is_file():
            problem = f"`{text}` holds no study (no study.json)" if folder.is_dir() else f"no folder `{text}`"
            yield problem, "give the folder of a study that `scalesearch study run` has made, such as runs/edge"
        elif folder.resolve() == out.resolve():
            yield f"`{text}` is this study's own folder", "give another study's, or go on with --resume"


def place_of(text: str) -> Path:
    """The folder that a file means: ``~`` and variables are filled in."""
    return Path(os.path.expandvars(os.path.expanduser(text)))
