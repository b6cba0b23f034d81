"""Reads a study file. All that is wrong with it is shown together, each with file, line and column.

::

    study: edge                                    # its name, and its folder: runs/edge
    space: transformer                             # shipped, a path, or the space itself; or {file: …, set: {…}}
    data: {builtin: grammar}                       # or `builtin`, which is the same
    recipe: {steps: 2000}                          # or the name of a preset
    objectives: {bleu: max, params.total: min, macs.total: min}
    protocol: {name: forward, source: 20, target: 20, vocab: corpus}
    budget: params.total <= 2M and macs.total <= 40M        # or the name of one of the space's budgets
    proposer: {kind: bayes, seed: 1}
    trials: 12                                     # full trainings, or as much compute in a study with rungs
    rungs: {first: 0.11}                           # after a ninth of its training one in two goes on, and again
    seeds: {most: 3, trials: 6}                    # further seeds for the front; see ``study.seeds``
    reference: [{name: base, set: {encoder.depth: 6}}]
    teacher: runs/big                              # or one to train; see ``study.teacher``
    warm_start: runs/old                           # begin with what another study has found; see ``study.warm``
    proxies: yes                                   # zero-cost scores of every candidate before its training
    resources: {gpus_per_trial: 0.5}               # and ray: {address: …} of a cluster; see ``study.where``
    storage: postgresql://ann@host/studies         # where Optuna's copy is kept, if not in the study's folder
    kind: ablation                                 # or grid, or scaling, instead of a search; see ``study.kinds``
"""

from collections.abc import Sequence as Items
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from scalesearch.data import DataSpec
from scalesearch.errors import UserError
from scalesearch.feasible.limits import budget_of
from scalesearch.samplers import PROPOSERS
from scalesearch.schedule.rungs import FULL, Rungs
from scalesearch.space import Constraint, Space, SpaceErrors
from scalesearch.space.schema.cost_names import PROTOCOL_NAMES
from scalesearch.space.syntax.diagnostics import Source
from scalesearch.space.syntax.nodes import Sequence, Table, Text
from scalesearch.space.syntax.yaml_reader import compose, read_text
from scalesearch.study.config.designs import read_kind, read_rows
from scalesearch.study.config.fields import Sections, override, plain, written
from scalesearch.study.config.locate import shown
from scalesearch.study.config.objectives import Objective, measure, objective, refuse_foreign, unseen
from scalesearch.study.config.replication import read_seeds
from scalesearch.study.config.resources import read_resources
from scalesearch.study.config.rows import SEARCH
from scalesearch.study.config.space_field import Spaces
from scalesearch.study.config.spec import CORPUS, ReferenceSpec, StudySpec
from scalesearch.study.config.storage_url import EMBEDDED, storage_url
from scalesearch.study.config.teacher import read_teacher
from scalesearch.study.config.warm_start import read_warm
from scalesearch.train.compatibility import check_compatible, check_model_kind
from scalesearch.train.recipe import Recipe

KEYS = ("study", "space", "data", "recipe", "objectives", "protocol", "budget", "proposer", "trials", "workers",
        "backend", "resources", "ray", "storage", "out", "reference", "teacher", "seed", "attempts", "rungs", "seeds",
        "warm_start", "proxies", "kind", "base", "rows", "changes", "rules", "held_out")
BACKENDS = ("inprocess", "ray")
BUILTIN = {"builtin": "grammar"}  # what the word `builtin` stands for, as in `train --data builtin`


def read_study(path: Path, sets: Items[str] = (), out: Path | None = None) -> StudySpec:
    """The study that ``path`` describes, with ``sets`` (``recipe.steps=500``) laid over it.

    Raises:
        UserError: everything that is wrong with it, in the order of the file.
    """
    text = read_text(path)
    if not text.strip():
        raise UserError(f"{path}: the file is empty; a study names at least space, data and objectives")
    table, problems = compose(Source(str(path), text))
    opened = [assignment for assignment in sets if assignment.strip().startswith(("space.", "base."))]
    for assignment in sets:
        table = override(table, assignment) if assignment not in opened else table
    reader = _Reader(path, text, Sections(table, KEYS, problems), opened)
    spec = reader.read(out)
    if problems or spec is None:
        raise shown(problems)
    return spec


class _Reader:
    """Reads one file section by section."""

    def __init__(self, path: Path, text: str, top: Sections, opened: list[str]) -> None:
        """``opened``: settings such as ``space.width=64 | 128``, which are the space language's to read."""
        self.path, self.text, self.top = path, text, top
        self.spaces = Spaces(path, text, top, opened)

    def read(self, out: Path | None) -> StudySpec | None:
        top, inside = self.top, self.path.parent
        name = str(top.text("study", self.path.stem))
        kind = read_kind(top)
        space, data, recipe, objectives = self.spaces.read(kind), self._data(), self._recipe(), self._objectives()
        rows = read_rows(top, kind, space, self.spaces.file)
        space = space or (rows.space if rows else None)
        self._together(space, data, recipe, objectives)
        trials = top.whole("trials", 20, 1) if kind == SEARCH else 0
        proposer = top.part("proposer", ("kind", "seed", "startup", "population"))
        resources, seed = read_resources(top), top.whole("seed", 1)
        known: dict[str, Any] = {
            "protocol": self._protocol(),
            "budget": self._budget(space),
            "proposer": proposer.word("kind", "bayes" if kind == SEARCH else "random", PROPOSERS),
            "proposer_seed": proposer.whole("seed", seed),
            "startup": proposer.whole("startup", 0, 1) if proposer.has("startup") else None,
            "population": proposer.whole("population", 20, 2),
            "seed": seed,
            "trials": trials,
            "workers": top.whole("workers", 1, 1),
            "backend": top.word("backend", "ray" if resources.address else "inprocess", BACKENDS),
            "resources": resources,
            "storage": top.trying("storage", lambda: storage_url(str(top.text("storage", EMBEDDED)))),
            "references": self._references(),
            "teacher": read_teacher(top),
            "attempts": top.whole("attempts", 3, 1),
            "rungs": self._rungs(),
            "seeds": read_seeds(top, trials, objectives, kind != SEARCH),
            "rows": rows,
            "places": {key.text: value.here for key, value in top.table},
        }
        folder = out or Path(str(top.text("out", f"runs/{name}")))
        known |= {"warm": read_warm(top, folder), "proxies": top.flag("proxies", True)}
        if top.problems or space is None or data is None or recipe is None:
            return None
        recipe = replace(recipe, measure=measure(objectives, recipe.measure))
        return StudySpec(name, inside / self.path.name, self.text, space, data, recipe, objectives, folder, **known)

    def _together(self, space: Space | None, data: DataSpec | None, recipe: Recipe | None,
                  objectives: tuple[Objective, ...]) -> None:
        """Complains of what is right by itself and does not go with the data's task."""
        if data is None:
            return
        if recipe is not None:
            self.top.trying("recipe" if self.top.has("recipe") else "data", lambda: check_compatible(data, recipe))
        if space is not None:
            for kind in model_kinds(space):
                self.top.trying("space", lambda kind=kind: check_model_kind(data.task, kind))
        node = self.top.node("objectives")
        places = {key.text: key.here for key, _ in node} if isinstance(node, Table) else {}
        for one in objectives:
            try:
                refuse_foreign(one, data)
            except UserError as error:
                message, _, help = str(error).partition("; ")
                self.top.complain(places[one.name], message, help)

    def _data(self) -> DataSpec | None:
        if not self.top.has("data"):
            self.top.missing("data", "{builtin: grammar}")
            return None
        said = self.top.value("data")
        given = BUILTIN if said == "builtin" else said
        return self.top.trying("data", lambda: DataSpec.from_mapping(given))

    def _recipe(self) -> Recipe | None:
        return self.top.trying("recipe", lambda: unseen(Recipe.from_mapping(self.top.value("recipe", {}) or {})))

    def _objectives(self) -> tuple[Objective, ...]:
        node = self.top.node("objectives")
        if not isinstance(node, Table) or not node.entries:
            self.top.missing("objectives", "{bleu: max, params.total: min}")
            return ()
        found: list[Objective] = []
        for key, value in node:
            try:
                one = objective(key.text, str(plain(value)))
            except UserError as error:
                message, _, help = str(error).partition("; ")
                self.top.complain(key.here, message, help or None)
                continue
            if any(other.name == one.name for other in found):
                self.top.complain(key.here, f"the objective {one.name} stands here twice", "keep one of them")
            found.append(one)
        return tuple(found)

    def _budget(self, space: Space | None) -> Constraint | None:
        node = self.top.node("budget")
        if node is None or space is None:
            return None
        if not isinstance(node, Text):
            self.top.complain(node.here, "a budget is a name or one line, such as `params.total <= 2M`")
            return None
        try:
            return budget_of(space, node)
        except SpaceErrors as errors:
            self.top.problems += errors.problems
            return None

    def _protocol(self) -> dict[str, Any]:
        part = self.top.part("protocol", ("name", "source", "target", "vocab"))
        found: dict[str, Any] = {}
        if part.has("name"):
            found["name"] = part.word("name", "forward", PROTOCOL_NAMES)
        for key in ("source", "target", "vocab"):
            if part.value(key) == CORPUS and key == "vocab":
                found[key] = CORPUS
            elif part.has(key):
                found[key] = part.whole(key, 1, 1)
        return found

    def _rungs(self) -> Rungs:
        """Where candidates pause: ``none``, ``{first: 0.11, spacing: 3, eta: 2}`` or with ``shares``."""
        node = self.top.node("rungs")
        if node is None or (isinstance(node, Text) and node.text == "none"):
            return FULL
        if not isinstance(node, Table):
            self.top.complain(node.here, "rungs are `none`, or a mapping", "such as `{first: 0.11, eta: 2}`: the share "
                              "of a full training after which one in two goes on")
            return FULL
        part = self.top.part("rungs", ("first", "spacing", "shares", "eta"))
        eta, shares = part.whole("eta", 2, 2), part.value("shares")
        first, spacing = part.number("first", 1 / 9), part.number("spacing", 3.0)
        if shares is None:
            return self.top.trying("rungs", lambda: Rungs.geometric(first, eta, spacing)) or FULL
        if not isinstance(shares, list) or not all(isinstance(share, int | float) for share in shares):
            part.complain(node.here, "shares are a list of numbers below 1", "such as `shares: [0.1, 0.4]`")
            return FULL
        return self.top.trying("rungs", lambda: Rungs((*map(float, shares), 1.0), eta)) or FULL

    def _references(self) -> tuple[ReferenceSpec, ...]:
        node = self.top.node("reference")
        items = node.items if isinstance(node, Sequence) else [node] if node else []
        found = [self._reference(item) for item in items]
        names = [reference.name for reference in found]
        if node and len(set(names)) < len(names):
            self.top.complain(node.here, "two references have the same name", "give each a `name` of its own")
        return tuple(found)

    def _reference(self, node: Any) -> ReferenceSpec:
        if isinstance(node, Text):
            return ReferenceSpec(Path(node.text).stem, node.text)
        part = Sections(node if isinstance(node, Table) else Table(node.place, ()), ("name", "file", "set"),
                        self.top.problems)
        sets = {key: written(value) for key, value in (part.value("set") or {}).items()}
        file = part.text("file")
        if not sets and not file:
            part.complain(node.here, "a reference is a file, answers under `set`, or both",
                          "such as `{name: base, set: {encoder.depth: 6}}`")
        return ReferenceSpec(str(part.text("name", Path(file or "reference").stem)), file, sets)


def model_kinds(space: Space) -> list[str]:
    """The kinds of model that a space may propose, by its question ``model``."""
    for path, question in space.dimensions():
        if path == "model":
            return [str(option) for option in getattr(question, "options", ())]
    return [str(dict(space.sample(Random(0)))["model"])]
