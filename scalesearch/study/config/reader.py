"""Reads a study file. All that is wrong with it is shown together, each with file, line and column.

::

    study: edge                                    # its name, and its folder: runs/edge
    space: transformer                             # shipped, a path, or the space itself; or {file: …, set: {…}}
    data: {builtin: grammar}                       # or `builtin`, which is the same; or a file: data.yaml
    recipe: {steps: 2000}                          # or the name of a preset
    objectives: {bleu: max, params.total: min, macs.total: min}
    budget: params.total <= 2M and macs.total <= 40M        # or the name of one of the space's budgets
    proposer: bayes                                # or {sampler: TPESampler, multivariate: yes}
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
from scalesearch.space.binding.config_reader import ConfigReader, apply_override, read_constants, with_position
from scalesearch.space.binding.file_type_check import check_not_space
from scalesearch.space.schema.cost_names import LATENCY_KEY
from scalesearch.space.schema.types import SchemaField, SchemaGroup
from scalesearch.space.space import default_schema
from scalesearch.space.syntax.diagnostics import Problem, SourceText
from scalesearch.space.syntax.expressions import Operation
from scalesearch.space.syntax.nodes import MappingNode, Node, ScalarNode, scalar_from_text, unfold_dotted_keys
from scalesearch.space.syntax.yaml_reader import parse_yaml, read_text
from scalesearch.study.config.checks import Checks
from scalesearch.study.config.data_file import with_data
from scalesearch.study.config.designs import check_keys, read_rows, space_key
from scalesearch.study.config.objectives import measure, objective
from scalesearch.study.config.rows import NONE, SEARCH
from scalesearch.study.config.sections import seeds_of
from scalesearch.study.config.spec import EXPORTABLE, MOST_TRIALS, STUDY, StudySpec
from scalesearch.study.config.storage_url import hide
from scalesearch.study.config.values import ANSWERS, read_answers, written
from scalesearch.train.recipe_space import RecipeSpace, build_recipe_space, extract_parameters

ALSO = (("ray", "resources"), ("resources", "ray"))  # where an address may stand as well
OPENED = ("space.", "base.")  # settings that are the space language's to read: space.width=64 | 128


def read_study(path: Path, sets: Sequence[str] = (), out: Path | None = None) -> StudySpec:
    """The study that ``path`` describes, with ``sets`` (``recipe.steps=500``) laid over it.

    Raises:
        UserError: everything that is wrong with it, in the order of the file.
    """
    text = read_text(path)
    if not text.strip():
        raise UserError(f"{path}: the file is empty; a study names at least space, data and objectives",
                        code="empty-file")
    return parse_study(text, path, sets, out)


def parse_study(text: str, path: Path, sets: Sequence[str] = (), out: Path | None = None) -> StudySpec:
    """The study that ``text`` describes, as if it stood in the file ``path``; see :func:`read_study`."""
    table, problems = parse_yaml(SourceText(str(path), text), "a study file", "study: edge")
    check_not_space(table)
    opened = [one.strip().partition(".")[2].partition("=") for one in sets if one.strip().startswith(OPENED)]
    reader = ConfigReader(STUDY)
    reader.problems += problems
    table, folder = with_data(table, path, reader)
    for assignment in sets:
        if not assignment.strip().startswith(OPENED):
            table, other = with_data(apply_override(table, STUDY, assignment), path, reader)
            folder = other or folder
    asked = {key.strip(): value.strip() for key, _, value in opened}
    spec = _Study(path, text, table, reader, asked, folder).read(out)
    if spec is None:
        raise shown(reader.problems)
    return replace(spec, sets=tuple(sets))


def at_its_place(error: UserError, spec: StudySpec) -> UserError:
    """Adds file, line and column to ``error``, where it is of a key that the file has."""
    located = with_position(error, spec.places)
    return shown(located.problems) if isinstance(located, ConfigError) and located is not error else error


def shown(problems: Sequence[Problem]) -> ConfigError:
    """Error with all problems. The lines of the file in it, and what the command line sets, hold no password."""
    sources = {one.position.source: replace(one.position.source, name=hide(one.position.source.name)) for one in problems}
    named = [replace(one, position=replace(one.position, source=sources[one.position.source])) for one in problems]
    return ConfigError(named, hide(str(ConfigError(named))))


def one_at_a_time(spec: StudySpec, said: Collection[str], tell: Callable[[str], object]) -> StudySpec:
    """``spec`` with one worker where it trains in this process; ``said``: keys given besides the file.

    Raises:
        UserError: more workers were asked for in the same place as this backend.
    """
    if spec.backend != "inprocess" or spec.workers == 1:
        return spec
    if "workers" in said or "backend" not in said:
        raise UserError(f"workers: {spec.workers} with the backend inprocess, which trains one candidate at a time; "
                        "take the backend ray (--backend ray), or one worker (--workers 1)", code="one-worker-only")
    tell(f"The backend inprocess trains one candidate at a time, not the file's {spec.workers}.")
    return replace(spec, workers=1)


class _Study(Checks):
    """Builds a study's parts from the values of its file. Every problem goes to the reader."""

    def __init__(self, path: Path, text: str, table: MappingNode, reader: ConfigReader, opened: Mapping[str, str],
                 folder: Path | None) -> None:
        """Reads the values. ``opened``: what the command line sets in the space; ``folder``: of a data file."""
        self.reader, self.places, self.opened, self.folder = reader, reader.positions, opened, folder
        table = replace(table, entries=tuple(unfold_dotted_keys(table, reader.problems)))
        recipe, self.questions = extract_parameters(table.get("recipe"), reader)
        closed = tuple((key, recipe or node) if key.text == "recipe" else (key, node) for key, node in table)
        table = replace(table, entries=closed)
        given = {"data": None, "recipe": None, "objectives": None, **reader.read_values(STUDY, table, "")}
        self.table, self.file = table, STUDY.make(file=path, text=text, places=reader.positions, **given)

    def read(self, out: Path | None) -> StudySpec | None:
        """The whole study; None where something is wrong."""
        file, places = self.file, self.places
        name, rows_only = file.name or file.file.stem, file.kind != SEARCH
        check_keys(file.kind, self.table, self.reader)
        space, objectives = self._space(), self._objectives()
        rows = read_rows(file, space, self._open, self.reader)
        space = space or (rows.space if rows else None)
        self.check_together(space, objectives)
        unlimited = file.compute is not None and "trials" not in places
        trials = 0 if rows_only else MOST_TRIALS if unlimited else file.trials
        wrong: list[tuple[str, str, str]] = []
        seeds = seeds_of(file.seeds, self.table.get("seeds"), min(trials, file.trials), objectives, rows_only, wrong)
        for key, message, help in wrong:
            self.wrong(places.get(key) or places["seeds"], message, help)
        if file.name is None and not is_valid_file_name(name):
            self.wrong(self.table.position, f"the file's name `{name}` cannot name a study's folder", "give `study: NAME`",
                       code="not-a-name")
        folder = out or Path(file.out or f"runs/{name}")
        self.check_folders(folder)
        address, budget, seed = self._address(), self._limits(space), file.proposer.seed
        if space is not None:
            self.check_protocol(space, objectives, budget)
        asked = self._recipe_space(objectives, rows_only)
        if self.reader.problems or space is None or self.data is None or asked is None:
            return None
        return replace(
            file, name=name, data=self.data, out=folder, space=space, objectives=objectives, rows=rows, trials=trials,
            seeds=seeds, recipe=asked.base_recipe, recipe_space=asked, budget=budget,
            protocol={key: resolve_relative(file.file, str(value)) if key == LATENCY_KEY else value
                      for key, value in file.protocol.items() if value is not None},
            proposer=replace(file.proposer, name=file.proposer.name or ("random" if rows_only else "bayes"),
                             seed=file.seed if seed is None else seed),
            backend="ray" if address and "backend" not in places else file.backend,
            resources=replace(file.resources, address=address), rungs=file.rungs or NO_RUNGS,
            places={key: places[other] for key, other in ALSO if other in places} | places,
        )

    def _space(self) -> Space | None:
        """Space to search or to begin with; None where it is wrong, or each row is a file."""
        key = space_key(self.file.kind, self.places)
        node = self.file.base if key == "base" else self.file.space
        if node is None:
            if key not in self.places and "rows" not in self.places:
                self.wrong(self.table.position, f"`{key}` is missing: {STUDY.fields[key].doc}", "such as "
                           f"`{key}: transformer`", code="missing-key")
            return None
        try:
            space = self._described(node, key)
            return space.with_overrides(self.opened) if self.opened else space
        except UserError as error:
            return self.note(error, node)

    def _described(self, node: Node, key: str) -> Space:
        """Space that a name, ``{file: …, set: {…}}`` or a mapping of its keys describes."""
        if isinstance(node, ScalarNode) and node.text:
            return self._open(node.text)
        if not isinstance(node, MappingNode):
            raise UserError(f"expected {STUDY.fields[key].expected}", code="bad-value")
        if not node.get("file"):
            return Space(node, default_schema(), [])
        given = read_constants(FILE_AND_ANSWERS, node)
        return self._open(given["file"]).with_overrides(given.get("set", {}))

    def _open(self, name: str) -> Space:
        """Space in a file beside the study's, or of that name among the shipped ones. Raises UserError."""
        beside = self.file.file.parent / name
        return read_space(beside if beside.is_file() else find_file(name, "spaces"))

    def _recipe_space(self, objectives: tuple[Objective, ...], rows_only: bool) -> RecipeSpace | None:
        """The recipe and its questions; None where something is wrong."""
        for leaf in self.questions if rows_only else ():
            self.wrong(leaf.position_of((0, 0)), f"`{leaf.key}` is open, and a study of kind {self.file.kind} proposes "
                       "nothing", "give one value, or search (kind: search)", code="open-parameters")
        recipe = self.file.recipe
        if self.reader.problems or recipe is None:
            return None
        try:
            asked = build_recipe_space(replace(recipe, measure=measure(objectives, recipe.measure)), self.questions)
        except UserError as error:
            return self.note(error, self.places["recipe"])
        self.reader.problems += asked.find_problems()
        return asked

    def _objectives(self) -> tuple[Objective, ...]:
        node, objectives = self.file.objectives, {}
        if not isinstance(node, MappingNode) or not node.entries:
            if node is not None:
                self.wrong(node, f"objectives: expected {STUDY.fields['objectives'].expected}")
            return ()
        for key, value in node:
            try:
                one = objective(key.text, written(value))
            except UserError as error:
                self.note(error, value if error.code == "bad-direction" else key)
                continue
            if one.name in objectives:
                self.wrong(key, f"the objective {one.name} is given twice", "keep one of them", code="given-twice")
            objectives[one.name] = one
        return tuple(objectives.values())

    def _limits(self, space: Space | None) -> Constraint | None:
        """The budget, and that a format takes the candidate where the file asks for that."""
        budget, name = self._budget(space), self.file.exportable
        runtime = self.file.recipe.decode_with.partition("-")[0] if self.file.recipe else ""
        name = runtime if name in (None, NONE) and runtime in EXPORTABLE else name
        if name in (None, NONE) or space is None:
            return budget
        taken = parse_budget(space, scalar_from_text("exportable", "", f"refusals.{name} <= 0"))
        return taken if budget is None else replace(
            budget, expression=Operation("and", (budget.expression, taken.expression)))

    def _budget(self, space: Space | None) -> Constraint | None:
        node = self.file.budget
        if node is None or space is None:
            return None
        if not isinstance(node, ScalarNode):
            return self.wrong(node, f"budget: expected {STUDY.fields['budget'].expected}")
        try:
            return parse_budget(space, node)
        except ConfigError as errors:
            return self.note(errors, node)

    def _address(self) -> str | None:
        """Address of a Ray cluster: ``ray.address``; ``resources.address`` says the same."""
        there, here = self.file.resources.address if self.file.resources else None, self.file.ray.get("address")
        if here and there and here != there:
            self.wrong(self.places["resources.address"], f"the cluster is at `{there}` here and at `{here}` under "
                       "`ray:`", "keep one", code="given-twice")
        return here or there


FILE_AND_ANSWERS = SchemaGroup({
    "file": SchemaField("text", doc="a space file, or the name of a shipped one"),
    "set": SchemaField("node", default="none", read=read_answers, expected=ANSWERS, doc="answers, or narrower choices"),
})
