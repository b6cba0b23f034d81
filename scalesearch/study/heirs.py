"""Candidates that begin with a parent's weights: who the parent is, what their preview trains, what it came to.

::

    runs/edge/trials/0007-3f2a…/preview/    the preview's job, checkpoint and result
    runs/edge/trials/0007-3f2a…/            the full training from the recipe's first weights, where there is one
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalesearch.search.history import Goal, Seen
from scalesearch.search.previews import Previews, parent_of
from scalesearch.search.rungs import Rungs
from scalesearch.space.raw import Table, Text
from scalesearch.study import ledger as states
from scalesearch.study.ledger import Trial
from scalesearch.study.sections import Sections
from scalesearch.study.seen import history_of
from scalesearch.study.store import Store

FOLDER = "preview"
NEAR = ("local", "bayes")  # proposers of changes to trained candidates
COUNTED = ("steps", "tokens", "epochs", "cpu_minutes", "minutes")  # budgets
MOMENTS = ("warmup", "validate_every", "average_every")  # a number of updates from 1 on, else a share already


def read_previews(top: Sections, proposer: str, rungs: Rungs) -> Previews | None:
    """What a study file says under ``inherit``: ``{share: 0.33}``; None where it says nothing.

    What is wrong with it is complained of at its place.
    """
    node = top.node("inherit")
    if node is None or (isinstance(node, Text) and node.text == "none"):
        return None
    if not isinstance(node, Table):
        top.complain(node.here, "inherit is `none`, or a mapping", "such as `{share: 0.33}`: the share of a full "
                     "training that a candidate is trained for, from a trained one's weights")
        return None
    if proposer not in NEAR:
        top.complain(node.here, f"inherit goes with proposer: {{kind: {' | '.join(NEAR)}}}, not with {proposer}",
                     "these change a trained candidate a little; others seldom propose one near enough to inherit")
    if rungs.pauses:
        top.complain(node.here, "inherit does not go with rungs", "a paused training and a preview both are a part of "
                     "a training, and foresee its end in ways that do not compare: keep one of them")
    part = top.part("inherit", ("share",))
    return top.trying("inherit", lambda: Previews(part.number("share", 0.33)))


def shortened(recipe: Mapping[str, Any], share: float) -> dict[str, Any]:
    """The recipe of a preview: ``share`` of every budget, and the whole schedule over that.

    The peak rate stays: at half of it previews came to less and ranked candidates no better
    (``benchmarks/inherit_rank.py``). It is scored on valid alone, since nothing is reported of it.
    """
    found = dict(recipe)
    for name in COUNTED:
        if found[name] is not None:
            less = found[name] * share
            found[name] = max(1, round(less)) if isinstance(found[name], int) else less
    for name in MOMENTS:
        if found[name] >= 1:
            found[name] = max(1.0, found[name] * share)
    score_on = "valid" if found["score_on"] == "both" else found["score_on"]
    return {**found, "score_on": score_on}


def heritage(seen: Seen, store: Store, previews: Previews | None, goals: tuple[Goal, ...], left: float,
             ) -> dict[str, Any]:
    """What is announced of a candidate that begins with a preview: its parent, and the preview's share; or nothing."""
    if previews is None or not previews.affordable(left):
        return {}
    trials = store.ledger.searched()
    able = [one for one in history_of(store.ledger, goals) if weights_of(store, trials[one.number])]
    parent = parent_of(seen.asked, able, previews, goals)
    return {} if parent is None else {"parent": trials[parent.number].number, "share": previews.share}


def weights_of(store: Store, trial: Trial) -> Path | None:
    """The folder whose weights a child of ``trial`` may begin with."""
    folder = store.trial_folder(trial)
    return folder.resolve() if trial.state == states.COMPLETE and (folder / "model.safetensors").is_file() else None


def place_of(store: Store, trial: Trial) -> Path:
    """Where ``trial`` trains now: a preview in a folder of its own."""
    folder = store.trial_folder(trial)
    return folder / FOLDER if trial.previewing else folder


def job_of(store: Store, trial: Trial, job: Mapping[str, Any]) -> dict[str, Any]:
    """What a preview's job says besides that of a full training; nothing of others."""
    if not trial.previewing:
        return {}
    assert trial.parent is not None
    start = store.trial_folder(store.ledger.trials[trial.parent]).resolve()
    return {"recipe": shortened(job["recipe"], trial.share), "start": str(start)}


def preview_facts(trial: Trial, store: Store) -> dict[str, Any]:
    """What a record says of the preview that came before; nothing of a candidate that had none."""
    if trial.parent is None:
        return {}
    file = store.trial_folder(trial) / FOLDER / "result.json"
    result = json.loads(file.read_text()) if file.is_file() else {}
    return {"preview": {"parent": trial.parent, "share": trial.share, "values": trial.preview,
                        "inherited": result.get("inherited")}}
