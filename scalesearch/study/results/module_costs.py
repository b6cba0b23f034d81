"""What a trained candidate costs module by module, from the architecture file that its study keeps."""

from collections.abc import Mapping
from typing import Any

from scalesearch.cost import cost, protocol_of
from scalesearch.cost.modules import Row, rows
from scalesearch.errors import UserError
from scalesearch.space import read_space
from scalesearch.study.trials.study_dir import Store
from scalesearch.study.trials.trials import Trial

LEVELS = 3  # of the tree of modules: down to a layer's parts


def config_of(store: Store, trial: Trial) -> str:
    """The text of the candidate's architecture file; empty where there is none."""
    file = store.trial_folder(trial) / "architecture.yaml"
    return file.read_text() if file.is_file() else ""


def modules_of(store: Store, trial: Trial) -> tuple[Row, ...]:
    """The rows of the candidate's cost; none where its file no longer gives the architecture that was trained."""
    file = store.trial_folder(trial) / "architecture.yaml"
    try:
        architecture = read_space(file).closed()
    except (UserError, OSError):
        return ()
    found = cost(architecture.block, protocol_of(store.meta["protocol"]))
    return tuple(rows(found, LEVELS)) if _same(found.to_json(), trial.cost) else ()


def _same(now: Mapping[str, Any], then: Mapping[str, Any] | None) -> bool:
    """Whether a bill is the one that the candidate was judged by."""
    return then is not None and all(now[name]["total"] == then[name]["total"] for name in ("params", "macs"))
