"""What a study with rows would do: each row with its bill, before anything is trained."""

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from scalesearch.data.sources import fingerprint
from scalesearch.study.config.spec import CORPUS, StudySpec
from scalesearch.study.engine.distillation import Teacher, find_teacher
from scalesearch.study.engine.setup import load_data, make_bill, references, settled
from scalesearch.study.trials.evaluator import Bill, Candidate


@dataclass(frozen=True)
class RowsPreview:
    """What a dry run found out. ``candidates``: name to bill, those that are not trained included."""

    spec: StudySpec
    bill: Bill
    candidates: dict[str, Candidate]
    teacher: Teacher | None = None

    @property
    def trained(self) -> list[str]:
        """An architecture that several rows describe is trained once."""
        first: dict[str, str] = {}
        for name, one in self.candidates.items():
            if one.architecture and one.feasible:
                first.setdefault(one.architecture.id, name)
        return list(first.values())

    @property
    def trainings(self) -> int:
        """With all seeds."""
        return len(self.trained) * self.spec.seeds.references

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        assert self.spec.rows is not None, "a search has another preview"
        return {
            "study": self.spec.name,
            **self.spec.rows.to_json(),
            "protocol": self.bill.protocol.to_json(),
            "seeds": self.spec.seeds.to_json(),
            "trainings": self.trainings,
            "teacher": self.teacher and self.teacher.to_json(),
            "out": str(self.spec.out),
            "architectures": [_json(name, candidate) for name, candidate in self.candidates.items()],
        }

    def show(self, console: Console) -> None:
        """Prints it for people."""
        spec = self.spec
        assert spec.rows is not None, "a search has another preview"
        for line in (
            f"Study {spec.name}, kind {spec.rows.kind}: {', '.join(map(str, spec.objectives))}",
            f"Costs: protocol {self.bill.protocol}",
            f"Data: {spec.data.describe()}",
            *([f"Teacher: {self.teacher.describe()}"] if self.teacher else []),
            f"Recipe: {spec.recipe.describe()}",
            f"Would train {len(self.trained)} of {len(self.candidates)} rows, seeds each: {spec.seeds.references}, "
            f"{self.trainings} trainings in all, {spec.workers} at a time ({spec.backend}), into {spec.out}",
        ):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        console.print(self._table())

    def _table(self) -> Table:
        table, trained = Table(title="Rows", title_justify="left"), set(self.trained)
        for heading in ("row", "params", "MACs", "architecture", "what becomes of it"):
            table.add_column(heading, justify="right" if heading in ("params", "MACs") else "left", overflow="fold")
        for name, one in self.candidates.items():
            assert one.cost is not None and one.architecture is not None, "rows can be built"
            said = "trained" if name in trained else one.reason or "the same as another row"
            table.add_row(name, *(f"{one.cost[f'{what}.total']:,}" for what in ("params", "macs")),
                          one.architecture.id, said)
        return table


def preview_rows(spec: StudySpec) -> RowsPreview:
    """Finds it out; trains nothing and leaves nothing behind.

    Raises:
        UserError: what a real run would refuse as well.
    """
    assert spec.rows is not None, "a search has another preview"
    corpus = None
    if spec.vocab == CORPUS or spec.teacher:
        corpus = load_data(spec.data)  # its vocabulary's size is part of the protocol
    else:
        fingerprint(spec.data.resolve())
    teacher = corpus and find_teacher(spec, corpus)
    bill = make_bill(spec, corpus)
    within = settled(spec, bill)
    listed = spec.rows.rows or references(within)
    named = {row.label: bill.judge_architecture(row.architecture, {}) for row in listed}
    return RowsPreview(within, bill, named, teacher)


def _json(name: str, candidate: Candidate) -> dict[str, Any]:
    return {
        "name": name,
        "id": candidate.architecture.id if candidate.architecture else None,
        "cost": candidate.cost.to_json() if candidate.cost else None,
        "feasible": candidate.feasible,
        "reason": candidate.reason,
    }
