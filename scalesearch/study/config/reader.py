"""Reads a study file. All that is wrong with it is shown together, each with file, line and column.

::

    study: edge                                    # its name, and its folder: runs/edge
    space: transformer                             # shipped, a path, or the space itself; or {file: …, set: {…}}
    data: {builtin: grammar}                       # or `builtin`, which is the same; or a file: data.yaml
    recipe: {steps: 2000}                          # or the name of a preset
    objectives: {bleu: max, params.total: min, macs.total: min}
    budget: params.total <= 2M and macs.total <= 40M        # or the name of one of the space's budgets
    sampler: bayes                                 # or {class_name: TPESampler, multivariate: yes}
    trials: 12

Every key is stated in :mod:`scalesearch.study.config.spec`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from scalesearch.errors import UserError
from scalesearch.feasible.limits import parse_budget
from scalesearch.files import is_valid_file_name, resolve_relative
from scalesearch.library import find_file
from scalesearch.pareto.objective import Objective
from scalesearch.schedule.rungs import NO_RUNGS
from scalesearch.space import ConfigError, Constraint, Space, read_space
from scalesearch.space.binding.binder import rename_deprecated_keys
from scalesearch.space.binding.config_reader import ConfigReader, apply_override, read_constants
from scalesearch.space.binding.config_reader import with_position as with_position_of_key
from scalesearch.space.binding.file_type_check import check_not_space
from scalesearch.space.schema.cost_names import LATENCY_KEY
from scalesearch.space.schema.types import SchemaField, SchemaGroup
from scalesearch.space.space import default_schema
from scalesearch.space.syntax.diagnostics import Problem, SourceText, warn_deprecated
from scalesearch.space.syntax.expressions import Operation
from scalesearch.space.syntax.nodes import MappingNode, Node, ScalarNode, scalar_from_text, unfold_dotted_keys
from scalesearch.space.syntax.yaml_reader import parse_yaml, read_text
from scalesearch.study.config.checks import StudyChecks
from scalesearch.study.config.data_file import resolve_data_file
from scalesearch.study.config.designs import check_keys_of_type, read_architectures, space_key
from scalesearch.study.config.fixed_architectures import NONE_WORD, SEARCH
from scalesearch.study.config.objectives import DEPRECATED_OBJECTIVES, parse_objective, required_measurements
from scalesearch.study.config.sections import read_seeds
from scalesearch.study.config.spec import DEFAULT_MAX_TRIALS, EXPORTABLE_WORDS, STUDY_SCHEMA, StudySpec
from scalesearch.study.config.storage_url import mask_passwords
from scalesearch.study.config.values import PARAMS_FORM, node_text, read_params
from scalesearch.train.recipe_space import RecipeSpace, build_recipe_space, extract_parameters

# where an address may stand as well
RESOURCES_SYNONYMS = (("ray", "resources"), ("resources", "ray"))
# settings that are the space language's to read: space.width=64 | 128
SPACE_PREFIXES = ("space.", "base.")


def read_study(path: Path, overrides: Sequence[str] = (), out: Path | None = None) -> StudySpec:
    """The study that ``path`` describes, with ``overrides`` (``recipe.steps=500``) laid over it.

    Raises:
        UserError: everything that is wrong with it, in the order of the file.
    """
    text = read_text(path)
    if not text.strip():
        raise UserError(f"{path}: the file is empty; a study names at least space, data and "
                        "objectives", code="empty-file")
    return parse_study(text, path, overrides, out)


def parse_study(text: str, path: Path, overrides: Sequence[str] = (),
                out: Path | None = None) -> StudySpec:
    """The study that ``text`` describes, as if it stood in the file ``path``; see :func:`read_study`."""
    table, problems = parse_yaml(SourceText(str(path), text), "a study file", "study: edge")
    check_not_space(table)
    opened = [one.strip().partition(".")[2].partition("=")
              for one in overrides if one.strip().startswith(SPACE_PREFIXES)]
    reader = ConfigReader(STUDY_SCHEMA)
    reader.problems += problems
    table, folder = resolve_data_file(table, path, reader)
    for assignment in overrides:
        if not assignment.strip().startswith(SPACE_PREFIXES):
            table, other = resolve_data_file(apply_override(table, STUDY_SCHEMA, assignment), path,
                                             reader)
            folder = other or folder
    asked = {key.strip(): value.strip() for key, _, value in opened}
    spec = _StudyReader(path, text, table, reader, asked, folder).read(out)
    if spec is None:
        raise to_space_errors(reader.problems)
    return replace(spec, overrides=tuple(overrides))


def with_position(error: UserError, spec: StudySpec) -> UserError:
    """Adds file, line and column to ``error``, where it is of a key that the file has."""
    located = with_position_of_key(error, spec.positions)
    return to_space_errors(located.problems) if isinstance(
        located, ConfigError) and located is not error else error


def to_space_errors(problems: Sequence[Problem]) -> ConfigError:
    """Error with all problems.

    The lines of the file in it, and what the command line sets, hold no password.
    """
    sources = {one.position.source: replace(one.position.source,
                                            name=mask_passwords(one.position.source.name))
               for one in problems}
    named = [replace(one, position=replace(one.position, source=sources[one.position.source]))
             for one in problems]
    return ConfigError(named, mask_passwords(str(ConfigError(named))))


def limit_to_one_worker(spec: StudySpec, given_keys: Collection[str],
                        report: Callable[[str], object]) -> StudySpec:
    """``spec`` with one worker where it trains in this process; ``given_keys``: keys given besides the file.

    Raises:
        UserError: more workers were asked for in the same place as this backend.
    """
    if spec.backend != "inprocess" or spec.workers == 1:
        return spec
    if "workers" in given_keys or "backend" not in given_keys:
        raise UserError(f"workers: {spec.workers} with the backend inprocess, which trains one "
                        "candidate at a time; use the default backend (--backend pool), or one "
                        "worker (--workers 1)", code="one-worker-only")
    report(f"The backend inprocess trains one candidate at a time, not the file's {spec.workers}.")
    return replace(spec, workers=1)


class _StudyReader(StudyChecks):
    """Builds a study's parts from the values of its file. Every problem goes to the reader."""

    def __init__(self, path: Path, text: str, table: MappingNode, reader: ConfigReader,
                 space_overrides: Mapping[str, str], data_folder: Path | None) -> None:
        """Reads the values.

        ``space_overrides``: what the command line sets in the space; ``data_folder``: of a data
        file.
        """
        self.reader = reader
        self.positions = reader.positions
        self.space_overrides = space_overrides
        self.data_folder = data_folder
        table = rename_deprecated_keys(table, STUDY_SCHEMA)
        table = replace(table, entries=tuple(unfold_dotted_keys(table, reader.problems)))
        recipe, self.recipe_parameters = extract_parameters(table.get("recipe"), reader)
        closed = tuple((key, recipe or node) if key.text == "recipe" else (key, node)
                       for key, node in table)
        table = replace(table, entries=closed)
        given = {"data": None, "recipe": None, "objectives": None,
                 **reader.read_values(STUDY_SCHEMA, table, "")}
        self.table = table
        self.spec = STUDY_SCHEMA.make(file=path, text=text, positions=reader.positions, **given)

    def read(self, out: Path | None) -> StudySpec | None:
        """The whole study; None where something is wrong."""
        file = self.spec
        places = self.positions
        name = file.name or file.file.stem
        rows_only = file.type != SEARCH
        check_keys_of_type(file.type, self.table, self.reader)
        space = self._space()
        objectives = self._objectives()
        rows = read_architectures(file, space, self._open, self.reader)
        space = space or (rows.space if rows else None)
        self.check_combinations(space, objectives)
        unlimited = file.compute is not None and "trials" not in places
        trials = 0 if rows_only else DEFAULT_MAX_TRIALS if unlimited else file.trials
        wrong: list[tuple[str, str, str]] = []
        seeds = read_seeds(file.seeds, self.table.get("seeds"), min(trials, file.trials),
                           objectives, rows_only, wrong)
        for key, message, help in wrong:
            self.report_problem(places.get(key) or places["seeds"], message, help)
        if file.name is None and not is_valid_file_name(name):
            self.report_problem(self.table.position,
                                f"the file's name `{name}` cannot name a study's folder",
                                "give `study: NAME`", code="not-a-name")
        folder = out or Path(file.out or f"runs/{name}")
        self.check_folders(folder)
        address = self._ray_address()
        budget = self._limit(space)
        seed = file.sampler.seed
        if space is not None:
            self.check_protocol(space, objectives, budget)
        asked = self._recipe_space(objectives, rows_only)
        if self.reader.problems or space is None or self.data is None or asked is None:
            return None
        return replace(
            file, name=name, data=self.data, out=folder, space=space, objectives=objectives,
            architectures=rows, trials=trials, seeds=seeds, recipe=asked.base_recipe,
            recipe_space=asked, budget=budget,
            protocol={key: resolve_relative(file.file, str(value)) if key == LATENCY_KEY else value
                      for key, value in file.protocol.items() if value is not None},
            sampler=replace(file.sampler,
                            name=file.sampler.name or ("random" if rows_only else "bayes"),
                            seed=file.seed if seed is None else seed),
            backend="ray" if address and "backend" not in places else file.backend,
            resources=replace(file.resources, address=address), rungs=file.rungs or NO_RUNGS,
            positions={key: places[other] for key, other in RESOURCES_SYNONYMS if other in places}
            | places)

    def _space(self) -> Space | None:
        """Space to search or to begin with; None where it is wrong, or each row is a file."""
        key = space_key(self.spec.type, self.positions)
        node = self.spec.base if key == "base" else self.spec.space
        if node is None:
            if key not in self.positions and "architectures" not in self.positions:
                self.report_problem(self.table.position,
                                    f"`{key}` is missing: {STUDY_SCHEMA.fields[key].doc}",
                                    f"such as `{key}: transformer`", code="missing-key")
            return None
        try:
            space = self._read_space_node(node, key)
            return space.with_overrides(self.space_overrides) if self.space_overrides else space
        except UserError as error:
            return self.report_error(error, node)

    def _read_space_node(self, node: Node, key: str) -> Space:
        """Space that a name, ``{file: …, set: {…}}`` or a mapping of its keys describes."""
        if isinstance(node, ScalarNode) and node.text:
            return self._open(node.text)
        if not isinstance(node, MappingNode):
            raise UserError(f"expected {STUDY_SCHEMA.fields[key].expected}", code="bad-value")
        if not node.get("file"):
            return Space(node, default_schema(), [])
        given = read_constants(FILE_AND_PARAMS, node)
        return self._open(given["file"]).with_overrides(given.get("set", {}))

    def _open(self, name: str) -> Space:
        """Space in a file beside the study's, or of that name among the shipped ones.

        Raises UserError.
        """
        beside = self.spec.file.parent / name
        return read_space(beside if beside.is_file() else find_file(name, "spaces"))

    def _recipe_space(self, objectives: tuple[Objective, ...],
                      rows_only: bool) -> RecipeSpace | None:
        """The recipe and its questions; None where something is wrong."""
        for leaf in self.recipe_parameters if rows_only else ():
            self.report_problem(leaf.position_of((0, 0)),
                                f"`{leaf.key}` is open, and a study of type {self.spec.type} "
                                "proposes nothing", "give one value, or search (type: search)",
                                code="open-parameters")
        recipe = self.spec.recipe
        if self.reader.problems or recipe is None:
            return None
        try:
            asked = build_recipe_space(
                replace(recipe, measure=required_measurements(objectives, recipe.measure)),
                self.recipe_parameters)
        except UserError as error:
            return self.report_error(error, self.positions["recipe"])
        self.reader.problems += asked.find_problems()
        return asked

    def _objectives(self) -> tuple[Objective, ...]:
        node = self.spec.objectives
        objectives = {}
        if not isinstance(node, MappingNode) or not node.entries:
            if node is not None:
                self.report_problem(
                    node, "objectives: expected " f"{STUDY_SCHEMA.fields['objectives'].expected}")
            return ()
        for key, value in node:
            try:
                name = key.text
                if name in DEPRECATED_OBJECTIVES:
                    name = DEPRECATED_OBJECTIVES[name]
                    warn_deprecated(key.position, f"the objective `{key.text}` is now `{name}`")
                one = parse_objective(name, node_text(value))
            except UserError as error:
                self.report_error(error, value if error.code == "bad-direction" else key)
                continue
            if one.name in objectives:
                self.report_problem(key, f"the objective {one.name} is given twice",
                                    "keep one of them", code="given-twice")
            objectives[one.name] = one
        return tuple(objectives.values())

    def _limit(self, space: Space | None) -> Constraint | None:
        """The budget, and that a format takes the candidate where the file asks for that."""
        budget = self._budget(space)
        name = self.spec.exportable
        runtime = self.spec.recipe.decode_with.partition("-")[0] if self.spec.recipe else ""
        name = runtime if name in (None, NONE_WORD) and runtime in EXPORTABLE_WORDS else name
        if name in (None, NONE_WORD) or space is None:
            return budget
        taken = parse_budget(space, scalar_from_text("exportable", "", f"refusals.{name} <= 0"))
        return taken if budget is None else replace(
            budget, expression=Operation("and", (budget.expression, taken.expression)))

    def _budget(self, space: Space | None) -> Constraint | None:
        node = self.spec.budget
        if node is None or space is None:
            return None
        if not isinstance(node, ScalarNode):
            return self.report_problem(node,
                                       f"budget: expected {STUDY_SCHEMA.fields['budget'].expected}")
        try:
            return parse_budget(space, node)
        except ConfigError as errors:
            return self.report_error(errors, node)

    def _ray_address(self) -> str | None:
        """Address of a Ray cluster: ``ray.address``; ``resources.address`` says the same."""
        there = self.spec.resources.address if self.spec.resources else None
        here = self.spec.ray.get("address")
        if here and there and here != there:
            self.report_problem(self.positions["resources.address"],
                                f"the cluster is at `{there}` here and at `{here}` under `ray:`",
                                "keep one", code="given-twice")
        return here or there


FILE_AND_PARAMS = SchemaGroup(
    {"file": SchemaField("text", doc="a space file, or the name of a shipped one"),
     "set": SchemaField("node", default="none", read=read_params, expected=PARAMS_FORM,
                        doc="answers, or narrower choices")})
