"""What a page is made from: a study's results as plain values, so that nothing here knows how a study is run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from scalesearch.cost.modules import Row
from scalesearch.report.ablation import Ablation
from scalesearch.report.plot import Subject
from scalesearch.report.proxies import ProxyCorrelations


@dataclass(frozen=True)
class TrialFacts:
    """One trial, a replicate included.

    Attributes:
        number: of the trial.
        state: complete, failed, pending, paused, infeasible or duplicate.
        origin: who proposed it: ``sampler``, ``reference``, ``replicate``, ``imported``, ``enqueued``.
        of: the trial that this one duplicates or replicates.
        params: hyperparameter to value: what was sampled, or for a trial from outside the space, its whole description.
        violated: the constraints that it violates.
        costs: ``params.total`` and the like; empty where nothing can be built.
        links: name to relative address of its files.
        curve: the validations of its training: ``step``, ``train_loss``, ``valid_loss`` and others.
        rungs: (updates, validation loss) at each rung that it has reached.
        values: objective to value, once complete; of its own training alone.
        config, modules: of those whose costs are shown in full, the text of the architecture file, and its costs module
            by module under the study's protocol.
    """

    number: int
    state: str
    origin: str = "sampler"
    label: str | None = None
    of: int | None = None
    seed: int | None = None
    reason: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    violated: tuple[str, ...] = ()
    costs: Mapping[str, float] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    curve: tuple[Mapping[str, Any], ...] = ()
    rungs: tuple[tuple[float, float], ...] = ()
    values: Mapping[str, float] | None = None
    config: str = ""
    modules: tuple[Row, ...] = ()

    @property
    def replicate(self) -> bool:
        """Whether it trains another trial again with a further seed."""
        return self.origin == "replicate"

    @property
    def untrained(self) -> bool:
        """Whether it was never to be trained."""
        return self.state in ("infeasible", "duplicate")

    @property
    def name(self) -> str:
        """Its name in figures and tables."""
        own = f"trial {self.number}" + (f" ({self.label})" if self.label else "")
        return f"{own}, trial {self.of} with seed {self.seed}" if self.replicate else own


@dataclass(frozen=True)
class Finished:
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
    """One study as it stands.

    Attributes:
        name: of the study.
        meta: its ``study.json``.
        table: a row a trial (see ``report.table.frame``).
        front: the non-dominated rows, from the cheapest.
        subject: of the figures.
        main: the metric that is shown against costs.
        sampled: every hyperparameter that a proposal had a value for.
        trials: by number.
        finished: in the order of time.
        hypervolume: of the front, and the reference point; None before any trial is finished.
        notes: what must be known to read the numbers.
        verdict: what replicates say of the front's order.
        proxies: how early measurements rank the trials.
        files: name to relative address of the study's own files.
        named: the named architectures and their differences, of a study that has several.
        figures: of studies that have their own: title, figure, caption.
    """

    name: str
    meta: Mapping[str, Any]
    table: pd.DataFrame
    front: pd.DataFrame
    subject: Subject
    main: str
    sampled: frozenset[str]
    trials: Mapping[int, TrialFacts]
    finished: tuple[Finished, ...]
    hypervolume: tuple[float, list[float]] | None
    notes: tuple[str, ...]
    verdict: tuple[str, ...]
    proxies: ProxyCorrelations
    files: Mapping[str, str]
    named: Ablation | None = None
    figures: tuple[tuple[str, Figure, str], ...] = ()

    @property
    def own(self) -> list[TrialFacts]:
        """All trials but replicates."""
        return [one for one in self.trials.values() if not one.replicate]

    @property
    def searched(self) -> bool:
        """Whether trials were, or are to be, proposed; else all that is trained is what the study file names."""
        named = sum(one.origin == "reference" for one in self.own)
        if self.meta.get("kind", "search") != "search" and not self.sampled:
            return False
        return bool(self.sampled) or int(self.meta.get("trials", named + 1)) > named or len(self.own) > named

    @property
    def ranked(self) -> bool:
        """Whether there is a front to speak of: what is searched has one, even if it is empty as yet."""
        return self.searched or len(self.front) > 0

    @property
    def done(self) -> pd.DataFrame:
        """The finished rows of the table that have the main metric."""
        if self.main not in self.table:
            return self.table.iloc[:0]
        return self.table[(self.table["state"] == "complete") & self.table[self.main].notna()]

    @property
    def members(self) -> list[int]:
        """The trials on the front, from the cheapest."""
        return [int(number) for number in self.front["trial"]]

    @property
    def itemised(self) -> list[int]:
        """The trials whose costs are shown in full: the front's; where nothing was searched, all that are finished."""
        members = self.members if self.searched else [int(number) for number in self.done["trial"]]
        return [number for number in members if self.trials[number].costs]
