"""What a study would do: the size of its space, what of it is feasible, and the first proposals with their bills."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from scalesearch.data.sources import fingerprint
from scalesearch.pareto.noise import percent
from scalesearch.samplers.history import DUPLICATE, Seen
from scalesearch.schedule.scheduler import Strategy
from scalesearch.study.config.spec import CORPUS, StudySpec
from scalesearch.study.engine.distillation import Teacher, find_teacher
from scalesearch.study.engine.dry_run_rows import RowsPreview, preview_rows
from scalesearch.study.engine.setup import (
    Odds,
    load_data,
    make_bill,
    make_plan,
    odds,
    references,
    refuse_the_impossible,
    searcher,
)
from scalesearch.study.monitor.console import short
from scalesearch.study.transfer.warm_start import Known, Warm, choose
from scalesearch.study.trials.evaluator import Bill, Candidate
from scalesearch.study.trials.history import goals_of, seen_of

SHOWN = 8


@dataclass(frozen=True)
class Preview:
    """What a dry run found out."""

    spec: StudySpec
    bill: Bill
    size: int | None
    odds: Odds
    proposals: tuple[Candidate, ...]
    teacher: Teacher | None = None
    warm: Warm | None = None

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "study": self.spec.name,
            "space": {"hash": self.spec.space.hash, "size": self.size, "questions": len(self.spec.space.dimensions())},
            "protocol": self.bill.protocol.to_json(),
            "sampled": self.odds.samples,
            "feasible": self.odds.feasible,
            "missed": dict(self.odds.missed),
            "trials": self.spec.trials,
            "seeds": self.spec.seeds.to_json(),
            "teacher": self.teacher and self.teacher.to_json(),
            "warm_start": self.warm and {"taken": [_source(known) for known in self.warm.taken],
                                         "first": [_source(known) for known in self.warm.first],
                                         "left": dict(self.warm.left)},
            "out": str(self.spec.out),
            "proposals": [_json(candidate) for candidate in self.proposals],
        }

    def show(self, console: Console) -> None:
        """Prints it for people."""
        spec, size = self.spec, "without end (it holds a continuous range)" if self.size is None else f"{self.size:,}"
        for line in (
            f"Study {spec.name}: {', '.join(map(str, spec.objectives))}",
            f"Space: {len(spec.space.dimensions())} questions, size {size}",
            f"Costs: protocol {self.bill.protocol}",
            f"Feasible: {self.odds.feasible / self.odds.samples:.1%} of {self.odds.samples} random candidates",
            *(f"  {missed / self.odds.samples:.1%} miss {name}" for name, missed in self.odds.missed.items() if missed),
            f"Data: {spec.data.describe()}",
            *([f"Teacher: {self.teacher.describe()}"] if self.teacher else []),
            f"Recipe: {spec.recipe.describe()}",
            *([self.warm.describe()] if self.warm else []),
            f"Would train {spec.trials} candidates and {len(spec.references)} references, {spec.workers} at a time "
            f"({spec.backend}), into {spec.out}",
            *([f"Then up to {spec.seeds.trials} trainings with further seeds, until the front has at most "
               f"{spec.seeds.most} seeds each or its order is settled at {percent(spec.seeds.confidence)}"]
              if spec.seeds.most > 1 else []),
            *([f"Each reference is trained with {spec.seeds.references} seeds"] if spec.seeds.references > 1 else []),
        ):
            console.print(line, highlight=False, soft_wrap=True)
        console.print(self._table())

    def _table(self) -> Table:
        table = Table(title="The first proposals", title_justify="left")
        for heading in ("params", "MACs"):
            table.add_column(heading, justify="right")
        table.add_column("architecture")
        table.add_column("what its bill says")
        for candidate in self.proposals:
            costs = [short(candidate.cost[f"{what}.total"]) if candidate.cost else "" for what in ("params", "macs")]
            identity = candidate.architecture.id if candidate.architecture else ""
            table.add_row(*costs, identity, candidate.reason or "feasible")
        return table


def preview(spec: StudySpec) -> Preview | RowsPreview:
    """What a dry run of the study shows.

    Raises:
        UserError: what a real run would refuse as well.
    """
    return preview_rows(spec) if spec.rows else preview_search(spec)


def preview_search(spec: StudySpec) -> Preview:
    """Finds it out; trains nothing and leaves nothing behind.

    Raises:
        UserError: what a real run would refuse as well.
    """
    corpus = None
    if spec.vocab == CORPUS or spec.teacher or spec.warm:
        corpus = load_data(spec.data)  # its vocabulary's size is part of the protocol, and must be the teacher's
    else:
        fingerprint(spec.data.resolve())
    teacher = corpus and find_teacher(spec, corpus)
    bill = make_bill(spec, corpus)
    refuse_the_impossible(bill, spec.proposer_seed)
    references(spec)
    found = odds(bill, spec.proposer_seed)
    warm = None
    if spec.warm and corpus:
        facts = {"teacher": "to be"} if teacher else None
        warm = choose(spec.warm, make_plan(spec, bill, corpus, facts), searcher(spec, bill).first)
    return Preview(spec, bill, spec.space.size(), found, first_proposals(spec, bill), teacher, warm)


def first_proposals(spec: StudySpec, bill: Bill, count: int = SHOWN) -> tuple[Candidate, ...]:
    """What a run would propose before any result counts, in its order, with what is rejected on the way; one at least.
    """
    proposer, goals, named = searcher(spec, bill), goals_of(spec.objectives), references(spec)
    if not proposer.lists:  # further ones depend on results, and the named architectures' are the first of these
        count = min(count, max(1, proposer.first - len(named)))

    def judge(number: int, params: Mapping[str, Any]) -> Seen:
        return seen_of(number, bill.judge(params), goals)

    history = [seen_of(number, bill.judge_architecture(one.architecture, one.params or {}), goals)
               for number, one in enumerate(named)]
    strategy, found = Strategy(proposer, judge, spec.rungs, goals), list[Candidate]()
    for _ in range(min(count, spec.trials)):
        begun = strategy.start(history)
        new = (*begun.rejected, *([begun.seen] if begun.seen else []))
        history.extend(new)
        found.extend(_said(seen, bill.judge(seen.params)) for seen in new)
        if begun.seen is None or len(found) >= count:
            break
    return tuple(found[:count])


def _said(seen: Seen, candidate: Candidate) -> Candidate:
    return replace(candidate, reason="seen before") if seen.state == DUPLICATE else candidate


def _source(known: Known) -> dict[str, Any]:
    return {"study": known.study, "trial": known.trial, "id": known.id, "values": known.values}


def _json(candidate: Candidate) -> dict[str, Any]:
    return {
        "id": candidate.architecture.id if candidate.architecture else None,
        "asked": dict(candidate.params),
        "cost": candidate.cost.to_json() if candidate.cost else None,
        "feasible": candidate.feasible,
        "reason": candidate.reason,
    }
