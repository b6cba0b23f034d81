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
from scalesearch.study.config.conflicts import find_conflicts
from scalesearch.study.config.designs import space_key
from scalesearch.study.config.objectives import DEPRECATED_OBJECTIVES, check_objective_of_task
from scalesearch.study.config.sections import warm_start_problems
from scalesearch.study.config.spec import StudySpec
from scalesearch.train.recipe import check_compatible, check_model_type


class StudyChecks:
    """Checks of the values of a study's ``spec``; every problem goes to ``reader``.

    Attributes:
        table: the file's nodes. places: where each key stands.
        data_folder: of a data file, where its paths begin; None where the data stand in the study.
    """

    reader: ConfigReader
    spec: StudySpec
    table: MappingNode
    positions: Mapping[str, SourcePosition]
    data_folder: Path | None

    def report_problem(self, node: Node | SourcePosition, message: str, help: str | None = None,
                       code: str = "bad-value") -> None:
        """Notes a problem."""
        self.reader.report_problem(node, message, help, code)

    @cached_property
    def data(self) -> DataSpec | None:
        """Data, with whole paths where they have a file of their own."""
        data: DataSpec | None = self.spec.data
        try:
            return data.with_absolute_paths(self.data_folder) if data and self.data_folder else data
        except UserError as error:
            return self.report_error(error, self.positions["data"])

    def check_folders(self, out: Path) -> None:
        """Complains of folders that lie in each other, and of references of one name."""
        for message, help in warm_start_problems(
                self.spec.warm_start, out) if self.spec.warm_start else ():
            self.report_problem(self.positions.get("warm_start.from")
                                or self.positions["warm_start"], message, help,
                                code="folder-misplaced")
        names = [one.name for one in self.spec.references if one]
        if len(set(names)) < len(names):
            self.report_problem(self.positions["reference"], "two references have the same name",
                                "give each a `name` of its own", code="name-taken")

    def check_combinations(self, space: Space | None, objectives: Iterable[Objective]) -> None:
        """Complains of what is right by itself and does not go with the rest."""
        data = self.data
        teacher = self.spec.teacher
        for key, recipe in (("recipe", self.spec.recipe),
                            ("teacher.recipe", teacher and teacher.recipe)):
            if recipe is not None and recipe.score_splits == "test":
                self.report_problem(self.positions.get(f"{key}.score_splits") or self.positions[key],
                                    "a study selects by validation scores",
                                    "set score_splits to `both` or `validation`",
                                    code="selection-on-test")
        if data is None:
            return
        if teacher is not None and (data.distilled or data.soft_targets):
            self.report_problem(self.positions["teacher"],
                                "teacher: the data are a teacher's words already (`distilled`, "
                                "`soft_targets`)", "remove one of the two", code="given-twice")
        if space is not None:
            for key, message, help in find_conflicts(
                    replace(self.spec, space=space), objectives, self.positions):
                self.report_problem(self.objective_key(key.partition(".")[2])
                                    if key.startswith("objectives.") else self.positions[key],
                                    message, help, code="given-twice")
        checks = [(partial(check_objective_of_task, one, data), self.objective_key(one.name))
                  for one in objectives]
        if space is not None:
            at = self.positions.get(
                space_key(self.spec.type, self.positions)) or self.table.position
            checks = [(partial(check_model_type, data.task, kind), at)
                      for kind in model_types(space)] + checks
        if self.spec.recipe is not None:
            checks.append((partial(resolve_decoder_format, self.spec.recipe),
                           self.positions["recipe"]))
            checks.insert(
                0, (partial(check_compatible, data, self.spec.recipe), self.positions["data"]))
        for check, place in checks:
            try:
                check()
            except UserError as error:
                self.report_error(error, place)

    def check_protocol(self, space: Space, objectives: Iterable[Objective],
                       limit: Constraint | None) -> None:
        """Complains of costs that are of an artifact or of a fit, where the protocol names none."""
        named = {**space.protocol, **self.spec.protocol}
        costs = {one.name: self.objective_key(one.name) for one in objectives}
        costs |= {name: self.positions["budget"]
                  for name in (limit.costs if limit else ())
                  if name not in costs and name in PROTOCOL_KEY_OF_COST}
        for cost, place in costs.items():
            key = PROTOCOL_KEY_OF_COST.get(cost)
            if key is not None and named.get(key) is None:
                self.report_problem(place, f"`{cost}`: the protocol names no {key}",
                                    f"add `protocol: {{ {key}: … }}`", code="protocol-incomplete")

    def objective_key(self, name: str) -> Node:
        """Key of an objective in the file, which may be its deprecated name."""
        return next(key
                    for key, _ in self.spec.objectives
                    if DEPRECATED_OBJECTIVES.get(key.text, key.text) == name)

    def report_error(self, error: UserError, fallback_position: Node | SourcePosition) -> None:
        """Notes an error: its problems in a file, or what it says of its key, or else of ``fallback_position``."""
        problems = getattr(error, "problems", ())
        self.reader.problems += problems
        if not problems:
            self.report_problem(self.positions.get(error.key or "") or fallback_position,
                                error.message, error.help, code=error.code)


def model_types(space: Space) -> list[str]:
    """The kinds of model that a space may propose, by its parameter ``model``."""
    for path, parameter in space.parameters():
        if path == "model":
            return [str(option) for option in getattr(parameter, "options", ())]
    return [str(dict(space.sample(Random(0)))["model"])]
