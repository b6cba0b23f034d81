"""What is wrong with a study's keys that are each right, and where the file says them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from random import Random

from scalesearch.data.spec import DataSpec
from scalesearch.errors import UserError
from scalesearch.export.scoring import resolve_decoder_format
from scalesearch.pareto.objective import Objective
from scalesearch.space import Constraint, Space
from scalesearch.space.binding.config_reader import ConfigReader
from scalesearch.space.schema.cost_names import PROTOCOL_KEY_OF_COST
from scalesearch.space.syntax.diagnostics import SourcePosition
from scalesearch.space.syntax.nodes import MappingNode, Node
from scalesearch.study.config.designs import space_key
from scalesearch.study.config.objectives import refuse_foreign
from scalesearch.study.config.sections import misplaced
from scalesearch.study.config.spec import StudySpec
from scalesearch.study.config.vocabulary import conflicts
from scalesearch.train.recipe import check_compatible, check_model_type


class Checks:
    """Checks of the values of a study's ``file``; every problem goes to ``reader``.

    Attributes:
        table: the file's nodes. places: where each key stands.
        folder: of a data file, where its paths begin; None where the data stand in the study.
    """

    reader: ConfigReader
    file: StudySpec
    table: MappingNode
    places: Mapping[str, SourcePosition]
    folder: Path | None

    def wrong(self, node: Node | SourcePosition, message: str, help: str | None = None, code: str = "bad-value") -> None:
        """Notes a problem."""
        self.reader.report_problem(node, message, help, code)

    @cached_property
    def data(self) -> DataSpec | None:
        """Data, with whole paths where they have a file of their own."""
        data: DataSpec | None = self.file.data
        try:
            return data.with_absolute_paths(self.folder) if data and self.folder else data
        except UserError as error:
            return self.note(error, self.places["data"])

    def check_folders(self, out: Path) -> None:
        """Complains of folders that lie in each other, and of references of one name."""
        for message, help in misplaced(self.file.warm, out) if self.file.warm else ():
            self.wrong(self.places.get("warm_start.from") or self.places["warm_start"], message, help,
                       code="folder-misplaced")
        names = [one.name for one in self.file.references if one]
        if len(set(names)) < len(names):
            self.wrong(self.places["reference"], "two references have the same name", "give each a `name` of its own",
                       code="name-taken")

    def check_together(self, space: Space | None, objectives: Iterable[Objective]) -> None:
        """Complains of what is right by itself and does not go with the rest."""
        data, teacher = self.data, self.file.teacher
        for key, recipe in (("recipe", self.file.recipe), ("teacher.recipe", teacher and teacher.recipe)):
            if recipe is not None and recipe.score_splits == "test":
                self.wrong(self.places.get(f"{key}.score_on") or self.places[key], "a study chooses by its scores",
                           "score_on is `both` (choose on valid, report test) or `valid`", code="test-chooses")
        if data is None:
            return
        if teacher is not None and (data.distilled or data.soft_targets):
            self.wrong(self.places["teacher"],
                       "teacher: the data are a teacher's words already (`distilled`, `soft_targets`)",
                       "remove one of the two", code="given-twice")
        if space is not None:
            for key, message, help in conflicts(replace(self.file, space=space), objectives, self.places):
                self.wrong(self.key(key.partition(".")[2]) if key.startswith("objectives.") else self.places[key],
                           message, help, code="given-twice")
        checks = [(partial(refuse_foreign, one, data), self.key(one.name)) for one in objectives]
        if space is not None:
            at = self.places.get(space_key(self.file.kind, self.places)) or self.table.position
            checks = [(partial(check_model_type, data.task, kind), at) for kind in model_kinds(space)] + checks
        if self.file.recipe is not None:
            checks.append((partial(resolve_decoder_format, self.file.recipe), self.places["recipe"]))
            checks.insert(0, (partial(check_compatible, data, self.file.recipe), self.places["data"]))
        for check, place in checks:
            try:
                check()
            except UserError as error:
                self.note(error, place)

    def check_protocol(self, space: Space, objectives: Iterable[Objective], limit: Constraint | None) -> None:
        """Complains of costs that are of an artefact or of a fit, where the protocol names none."""
        named = {**space.protocol, **self.file.protocol}
        costs = {one.name: self.key(one.name) for one in objectives}
        costs |= {name: self.places["budget"] for name in (limit.costs if limit else ()) if name not in costs
                  and name in PROTOCOL_KEY_OF_COST}
        for cost, place in costs.items():
            key = PROTOCOL_KEY_OF_COST.get(cost)
            if key is not None and named.get(key) is None:
                self.wrong(place, f"`{cost}`: the protocol names no {key}", f"add `protocol: {{ {key}: … }}`",
                           code="protocol-incomplete")

    def key(self, name: str) -> Node:
        """The key of an objective in the file."""
        return next(key for key, _ in self.file.objectives if key.text == name)

    def note(self, error: UserError, at: Node | SourcePosition) -> None:
        """Notes an error: its problems in a file, or what it says of its key, or else of ``at``."""
        problems = getattr(error, "problems", ())
        self.reader.problems += problems
        if not problems:
            self.wrong(self.places.get(error.key or "") or at, error.message, error.help, code=error.code)


def model_kinds(space: Space) -> list[str]:
    """The kinds of model that a space may propose, by its parameter ``model``."""
    for path, parameter in space.parameters():
        if path == "model":
            return [str(option) for option in getattr(parameter, "options", ())]
    return [str(dict(space.sample(Random(0)))["model"])]
