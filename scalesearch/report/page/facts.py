"""What a page is made of: a study's results as plain values, so that nothing here knows how a study is run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from scalesearch.cost.modules import Row
from scalesearch.report.ablation import Ablation
from scalesearch.report.plot import Subject
from scalesearch.report.proxies import Signs


@dataclass(frozen=True)
class Candidate:
    """One trial, a further training of another one included.

    Attributes:
        number: of the trial.
        state: as the study says it: complete, failed, pending, paused, infeasible, duplicate.
        origin: who proposed it: ``proposer``, ``reference``, ``seed``, ``warm``, ``enqueued``.
        of: the trial that this one repeats or trains again.
        answers: question to value: what was asked of it, or for one from outside the space, all its answers.
        limits: the limits that it misses.
        cost: its bill by group and section, or None.
        links: file name to a relative address, of those of its files that there are.
        curve: the validations of its training: ``step``, ``train_loss``, ``valid_loss`` and others.
        rungs: (updates, validation loss) at each rung that it has reached.
        values: objective to value, once complete; of its own training alone.
        config, modules: of those whose ledger is shown, the text of the architecture file, and what it costs module by
            module under the study's protocol.
    """

    number: int
    state: str
    origin: str = "proposer"
    label: str | None = None
    of: int | None = None
    seed: int | None = None
    reason: str = ""
    answers: Mapping[str, Any] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    cost: Mapping[str, Any] | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    curve: tuple[Mapping[str, Any], ...] = ()
    rungs: tuple[tuple[float, float], ...] = ()
    values: Mapping[str, float] | None = None
    config: str = ""
    modules: tuple[Row, ...] = ()

    @property
    def name(self) -> str:
        """What a figure or table calls it."""
        own = f"trial {self.number}" + (f" ({self.label})" if self.label else "")
        return f"{own}, trial {self.of} with seed {self.seed}" if self.origin == "seed" else own


@dataclass(frozen=True)
class Moment:
    """A finished training that may count for the front.

    Attributes:
        hours: wall time since the study was created.
        spent: hours of training, validation and decoding of all workers until then.
        number: of the trial.
        values: of the objectives, in their order.
    """

    hours: float
    spent: float
    number: int
    values: tuple[float, ...]


@dataclass(frozen=True)
class Facts:
    """One study, as it stands.

    Attributes:
        name: of the study.
        meta: its ``study.json``.
        table: a row a candidate (see ``report.table.frame``).
        front: the rows that nothing dominates, from the cheapest.
        subject: of the figures.
        main: the metric that is shown against costs.
        asked: every question that a proposal answered.
        candidates: by number.
        moments: in the order of time.
        hypervolume: of the front, and the reference point; None before any candidate is finished.
        notes: what must be known to read the numbers.
        verdict: what further seeds say of the front's order.
        signs: how early signs rank the candidates.
        reached: updates at each rung's share, for a study with rungs.
        files: name to relative address of the study's own files.
        named: the named architectures and their differences, of a study that has several.
        figures: of studies that have their own: title, SVG as matplotlib writes it, caption.
    """

    name: str
    meta: Mapping[str, Any]
    table: pd.DataFrame
    front: pd.DataFrame
    subject: Subject
    main: str
    asked: frozenset[str]
    candidates: Mapping[int, Candidate]
    moments: tuple[Moment, ...]
    hypervolume: tuple[float, list[float]] | None
    notes: tuple[str, ...]
    verdict: tuple[str, ...]
    signs: Signs
    files: Mapping[str, str]
    named: Ablation | None = None
    figures: tuple[tuple[str, str, str], ...] = ()

    @property
    def searched(self) -> bool:
        """Whether candidates were, or are to be, proposed; else all that is trained is what the study file names."""
        named = sum(one.origin == "reference" for one in self.candidates.values())
        if self.meta.get("kind", "search") != "search" and not self.asked:
            return False
        return bool(self.asked) or int(self.meta.get("trials", named + 1)) > named \
            or any(one.origin not in ("reference", "seed") for one in self.candidates.values())

    @property
    def ranked(self) -> bool:
        """Whether there is a front to speak of: what is searched has one, even if it is empty as yet."""
        return self.searched or len(self.front) > 0

    @property
    def done(self) -> pd.DataFrame:
        """The finished rows of the table that have the main score."""
        if self.main not in self.table:
            return self.table.iloc[:0]
        return self.table[(self.table["state"] == "complete") & self.table[self.main].notna()]

    @property
    def eligible(self) -> pd.DataFrame:
        """Of those, the ones that may stand on the front: feasible and of the space."""
        done = self.done
        return done[done["feasible"].astype(bool) & done["in_space"].astype(bool)]

    @property
    def members(self) -> list[int]:
        """The trials on the front, from the cheapest."""
        return [int(number) for number in self.front["trial"]]

    @property
    def billed(self) -> list[int]:
        """The trials whose ledgers are shown: the front's; where nothing was searched, all that are finished."""
        members = self.members if self.searched else [int(number) for number in self.done["trial"]]
        return [number for number in members if self.candidates[number].cost]
