"""Checks that all machines see the same study, data and package."""

import hashlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path

from scalesearch import __version__
from scalesearch.errors import UserError


class NotSharedError(UserError):
    """A worker does not see the study's folder: the cluster's fault, and no candidate's."""

    code = "not-shared"


def machine_fingerprint(folder: str, data: Mapping[str, object]) -> dict[str, str]:
    """Fingerprints of the package, the study in ``folder`` and the text of ``data``.

    Args:
        folder: absolute.
        data: a DataSpec as JSON, its paths absolute.
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
    """Message for a worker that misses the ``file`` that the study wrote."""
    return NotSharedError(f"the worker on {platform.node()} does not see {file}. The study's "
                          "folder must be on a file system that all nodes of the cluster share, "
                          "under the same path. Put it there with --out, or let that node leave "
                          "the cluster; then go on with --resume")
