"""Costs of a trained candidate, module by module, from its architecture file."""

from collections.abc import Mapping

from scalesearch.cost import cost, protocol_of
from scalesearch.cost.modules import Row, rows
from scalesearch.errors import UserError
from scalesearch.space import read_space
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Trial

LEVELS = 3  # of the tree of modules: down to a layer's parts


def config_of(study: StudyDir, trial: Trial) -> str:
    """The text of the candidate's architecture file; empty where there is none."""
    file = study.trial_folder(trial) / "architecture.yaml"
    return file.read_text() if file.is_file() else ""


def modules_of(study: StudyDir, trial: Trial) -> tuple[Row, ...]:
    """Rows of the candidate's cost. There are none where its file no longer gives the trained architecture."""
    file = study.trial_folder(trial) / "architecture.yaml"
    try:
        architecture = read_space(file).closed()
    except (UserError, OSError):
        return ()
    price = cost(architecture.block, protocol_of(study.meta.protocol).of(architecture.answers))
    return tuple(rows(price, LEVELS)) if _same(price.values, trial.costs) else ()


def _same(now: Mapping[str, float], then: Mapping[str, float]) -> bool:
    """Whether costs are those that the trial was evaluated by."""
    return all(now[name] == then.get(name) for name in ("params.total", "macs.total"))
