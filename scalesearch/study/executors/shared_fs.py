"""Check that all machines read the same study, data and package version."""

import hashlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path

from scalesearch import __version__
from scalesearch.errors import UserError


class NotSharedError(UserError):
    """A worker cannot read the study's folder. No trial is charged for it."""

    code = "not-shared"


def machine_fingerprint(folder: str, data: Mapping[str, object]) -> dict[str, str]:
    """Return fingerprints of the package, the study in ``folder`` and the text of ``data``.

    Args:
        folder: absolute path.
        data: a ``DataSpec`` as JSON, with absolute paths.
    """
    from scalesearch.data import DataSpec
    from scalesearch.data.sources import fingerprint_text

    try:
        facts = json.dumps(fingerprint_text(DataSpec.from_mapping(dict(data))), sort_keys=True)
        text = f"hash {hashlib.sha256(facts.encode()).hexdigest()[:12]}"
    except UserError as error:
        text = str(error)
    return {"scalesearch": __version__, f"the folder {folder}": _study(Path(folder)),
            "the data": text}


def _study(folder: Path) -> str:
    try:
        return f"study {json.loads((folder / 'study.json').read_text())['id']}"
    except (OSError, ValueError, KeyError):
        return "no study there"


def not_shared_error(file: Path) -> NotSharedError:
    """Return the error of a worker that cannot find a ``file`` of the study."""
    return NotSharedError(f"the worker on {platform.node()} cannot find {file}. The study's "
                          "folder must be on a file system that all nodes of the cluster share, "
                          "under the same path. Move it there with --out, or remove that node "
                          "from the cluster; then continue with --resume")
