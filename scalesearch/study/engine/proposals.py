"""How trials enter a study: judged by their bill, then announced in the event log and to Optuna's copy."""

from collections.abc import Mapping
from typing import Any

from scalesearch.samplers.history import Seen
from scalesearch.space.assembly.architecture import Architecture
from scalesearch.study.monitor.console import View
from scalesearch.study.optuna_sync.retrying import SteadyMirror
from scalesearch.study.trials import trials as states
from scalesearch.study.trials.evaluator import Candidate
from scalesearch.study.trials.history import goals_of, seen_of
from scalesearch.study.trials.plan import Plan, Reference
from scalesearch.study.trials.study_dir import Store
from scalesearch.study.trials.trials import DUPLICATE, INFEASIBLE, PENDING, PROPOSER, REFERENCE, SEED, Trial


class Entries:
    """Of one study."""

    def __init__(self, plan: Plan, store: Store, mirror: SteadyMirror, view: View) -> None:
        self.plan, self.store, self.mirror, self.view = plan, store, mirror, view
        self.ledger, self.goals = store.ledger, goals_of(plan.objectives)
        self._candidates: dict[int, Candidate] = {}  # judged, but not announced yet

    def judge(self, number: int, params: Mapping[str, Any]) -> Seen:
        """What the proposer learns of ``params`` before it is trained."""
        candidate = self._candidates[number] = self.plan.bill.judge(params)
        return seen_of(number, candidate, self.goals)

    def propose(self, seen: Seen, origin: str = PROPOSER) -> Trial:
        """Announces a judged proposal: to be trained, infeasible, or seen before."""
        candidate = self._candidates.pop(seen.number)
        first = self._seen(candidate)
        state = PENDING if candidate.feasible else INFEASIBLE
        trial = self._announce(self.ledger.next_number(), candidate, DUPLICATE if first else state,
                               of=first and first.number, origin=origin)
        self.mirror.add(trial, self.ledger.outcome(trial))
        return trial

    def _seen(self, candidate: Candidate) -> Trial | None:
        known = candidate.feasible and candidate.architecture
        return self.ledger.first(known.id) if known else None

    def next_reference(self) -> Reference | None:
        """The first that was not announced yet."""
        used = {trial.label for trial in self.ledger.trials.values() if trial.origin == REFERENCE}
        return next((reference for reference in self.plan.references if reference.label not in used), None)

    def refer(self, reference: Reference) -> Trial:
        """Announces a reference; one that was trained under another name is not trained again."""
        candidate = self.plan.bill.judge_architecture(reference.architecture, reference.params or {})
        first = self.ledger.first(reference.architecture.id)
        trial = self._announce(
            self.ledger.next_number(),
            candidate,
            DUPLICATE if first else PENDING,
            of=first and first.number,
            origin=REFERENCE,
            label=reference.label,
            in_space=reference.params is not None,
        )
        if trial.in_space:
            self.mirror.add(trial, self.ledger.outcome(trial))
        return trial

    def _announce(self, number: int, candidate: Candidate, state: str, **more: Any) -> Trial:
        identity = candidate.architecture.id if candidate.architecture else None
        cost = candidate.cost.to_json() if candidate.cost else None
        facts = {"state": state, "params": dict(candidate.params), "answers": dict(candidate.answers),
                 "slacks": dict(candidate.slacks), "id": identity, "cost": cost, "reason": candidate.reason}
        trial = self.store.append(states.PROPOSED, number, **facts, **more)
        self.view.proposed(trial)
        return trial

    def architecture(self, trial: Trial) -> Architecture:
        """What ``trial`` trains."""
        trial = self.ledger.trials[trial.of] if trial.origin == SEED and trial.of is not None else trial
        if trial.origin == REFERENCE:
            return next(r.architecture for r in self.plan.references if r.label == trial.label)
        architecture = self.plan.bill.judge(trial.params).architecture
        assert architecture is not None and architecture.id == trial.id, "the space hash was checked before"
        return architecture
