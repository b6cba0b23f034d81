"""Read a study file.

All problems are reported together, each with file, line and column.

::

    study: edge                    # its name, and its folder: runs/edge
    space: transformer             # shipped, a path, or the space itself; or {file: …, set: {…}}
    data: {builtin: grammar}       # or `builtin`, which is the same; or a file: data.yaml
    recipe: {steps: 2000}          # or the name of a preset
    objectives: {bleu: max, params.total: min, macs.total: min}
    budget: params.total <= 2M and macs.total <= 40M    # or the name of a budget of the space
    sampler: bayes                 # or {class_name: TPESampler, multivariate: yes}
    trials: 12

:mod:`scalesearch.studies.config.spec` defines every key.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from scalesearch.compression.alternatives import Parent, default_alternatives, list_alternatives
from scalesearch.config.model import schema_of
from scalesearch.config.reader import ConfigReader, apply_override
from scalesearch.config.reader import with_position as with_position_of_key
from scalesearch.data.files import table_format
from scalesearch.data.spec import DataSpec
from scalesearch.errors import UserError, option
from scalesearch.export.base import resolve_decoder_format
from scalesearch.feasible.limits import check_contradictions, parse_budget
from scalesearch.files import is_valid_file_name, resolve_relative
from scalesearch.pareto import Objective
from scalesearch.schedule import NO_RUNGS
from scalesearch.spaces import ConfigError, Constraint, Space
from scalesearch.spaces.binding.binder import rename_deprecated_keys
from scalesearch.spaces.binding.unknown_keys import check_file_type
from scalesearch.spaces.schema.cost_names import LATENCY_KEY
from scalesearch.spaces.syntax.diagnostics import (
    Problem,
    SourcePosition,
    SourceText,
    warn_deprecated,
)
from scalesearch.spaces.syntax.expressions import Operation
from scalesearch.spaces.syntax.nodes import (
    MappingNode,
    Node,
    ScalarNode,
    scalar_from_text,
    unfold_dotted_keys,
)
from scalesearch.spaces.syntax.yaml_reader import parse_yaml, read_text
from scalesearch.studies.config.conflicts import find_conflicts, find_missing_settings
from scalesearch.studies.config.designs import (
    check_keys_of_type,
    read_architectures,
    read_replacements,
    space_key,
)
from scalesearch.studies.config.fixed_architectures import (
    COMPRESS,
    NONE_WORD,
    SEARCH,
    FixedArchitecture,
)
from scalesearch.studies.config.objectives import (
    DEPRECATED_OBJECTIVES,
    OBJECTIVE_NAMES,
    check_objective_of_task,
    parse_objective,
    required_measurements,
)
from scalesearch.studies.config.sections import AUTO, Resources, read_seeds, warm_start_problems
from scalesearch.studies.config.space_reader import (
    change_space,
    open_space,
    read_parent,
    read_space_node,
)
from scalesearch.studies.config.spec import (
    BUDGET_FORM,
    DEFAULT_MAX_TRIALS,
    EXPORTABLE_WORDS,
    OBJECTIVES_FORM,
    StudyFile,
    StudySpec,
)
from scalesearch.studies.config.storage_url import mask_passwords
from scalesearch.studies.config.values import node_text
from scalesearch.training.gpus import count_places, find_gpus
from scalesearch.training.recipe import check_compatible, check_model_type
from scalesearch.training.recipe_space import (
    KEY_PREFIX,
    RecipeSpace,
    build_recipe_space,
    extract_parameters,
)

BUILTIN_DATA_WORDS = ("builtin", "grammar", "none")
# both may hold the address of a cluster
RESOURCES_SYNONYMS = (("ray", "resources"), ("resources", "ray"))
# overrides in the space language: space.width=64 | 128
SPACE_PREFIXES = ("space.", "base.")


def read_study(path: Path, overrides: Sequence[str] = (), out: Path | None = None) -> StudySpec:
    """Read the study in ``path`` with overrides such as ``recipe.steps=500``.

    Raises:
        UserError: all problems, in the order of the file.
    """
    text = read_text(path)
    if not text.strip():
        raise UserError(f"{path}: the file is empty; a study has at least space, data, recipe and "
                        "objectives", code="empty-file")
    return parse_study(text, path, overrides, out)


def parse_study(text: str, path: Path, overrides: Sequence[str] = (),
                out: Path | None = None) -> StudySpec:
    """Read the study in ``text``, as if it were the text of ``path``.

    See :func:`read_study`.
    """
    table, problems = parse_yaml(SourceText(str(path), text), "a study file", "study: edge")
    check_file_type(table, "study")
    reader = ConfigReader(StudyFile)
    reader.problems += problems
    table, data_folder = resolve_data_file(table, path, reader)
    space_overrides: dict[str, str] = {}
    for assignment in overrides:
        if assignment.strip().startswith(SPACE_PREFIXES):
            key, _, value = assignment.strip().partition(".")[2].partition("=")
            space_overrides[key.strip()] = value.strip()
            continue
        table = apply_override(table, schema_of(StudyFile), assignment)
        table, folder = resolve_data_file(table, path, reader)
        data_folder = folder or data_folder
    study = _StudyReader(path, text, table, reader, space_overrides, data_folder).read(out)
    if study is None:
        raise to_space_errors(reader.problems)
    return study.replace(overrides=tuple(overrides))


def resolve_data_file(table: MappingNode, study: Path,
                      reader: ConfigReader) -> tuple[MappingNode, Path | None]:
    """``table`` with the keys of the file that ``data:`` names, and the file's folder.

    The file is next to the ``study``, or in the working folder. Its paths are relative to its
    folder. Problems go to ``reader``.
    """
    node = table.get("data")
    if not isinstance(node, ScalarNode) or node.text.startswith("$") or not node.text:
        return table, None

    def with_data(data: Node) -> MappingNode:
        return replace(table, entries=tuple((key, data if value is node else value)
                                            for key, value in table))

    builtin = replace(node, text="grammar")
    if node.text in BUILTIN_DATA_WORDS:
        return with_data(builtin if node.text == "builtin" else node), None
    file = study.parent / node.text
    file = file if os.path.isfile(file) else Path(node.text)
    if not os.path.isfile(file):  # False, not an error, if the name is too long
        reader.report_problem(node, f"data: the file {node.text} does not exist",
                              "give `builtin`, a file such as data.yaml, or its keys",
                              code="no-such-file")
        return with_data(builtin), None
    if table_format(file):
        reader.report_problem(node, f"data: {node.text} is a table of sentences, not a data file",
                              "give the keys `train`, `validation` and `test`, which name tables",
                              code="wrong-type")
        return with_data(builtin), None
    try:
        document, problems = parse_yaml(SourceText(str(file), read_text(file)), "a data file",
                                        "source: en")
    except ConfigError as error:
        document = MappingNode(node.position, ())
        problems = list(error.problems)
    reader.problems += problems
    return with_data(document.get("data") or document), file.parent.resolve()


def with_position(error: UserError, spec: StudySpec) -> UserError:
    """``error`` with file, line and column if its key is set in the file."""
    located = with_position_of_key(error, spec.positions)
    return to_space_errors(located.problems) if isinstance(
        located, ConfigError) and located is not error else error


def to_space_errors(problems: Sequence[Problem]) -> ConfigError:
    """The error with all problems, without passwords in texts and option names."""
    sources = {problem.position.source: replace(
        problem.position.source, name=mask_passwords(problem.position.source.name))
        for problem in problems}
    masked = [replace(problem, position=replace(problem.position,
                                                source=sources[problem.position.source]))
              for problem in problems]
    return ConfigError(masked, mask_passwords(str(ConfigError(masked))))


def limit_to_one_worker(spec: StudySpec, given_keys: Collection[str],
                        report: Callable[[str], object]) -> StudySpec:
    """``spec`` with one worker if it trains in this process.

    Args:
        given_keys: keys that options set.

    Raises:
        UserError: an option sets several workers, or the file sets them next to this backend.
    """
    if spec.backend != "inprocess" or spec.workers == 1:
        return spec
    if "workers" in given_keys or "backend" not in given_keys:
        raise UserError(f"workers: {spec.workers} with the backend inprocess, which trains one "
                        "candidate at a time; use the default backend "
                        f"({option('backend', 'pool')}), or one worker ({option('workers', 1)})",
                        code="one-worker-only")
    report(f"The backend inprocess trains one candidate at a time, not the file's {spec.workers}.")
    return spec.replace(workers=1)


def resolve_workers(workers: int | str, backend: str, resources: Resources) -> int:
    """Return the number of workers; ``auto`` counts those that share the GPUs."""
    if workers != AUTO:
        return int(workers)
    is_on_this_machine = backend == "pool" or (backend == "ray" and not resources.address)
    gpus = find_gpus() if is_on_this_machine and resources.gpus_per_trial == AUTO else []
    return count_places(gpus) if gpus else 1


class _StudyReader:
    """Makes a study from the values of its file; all problems are added to the reader.

    Attributes:
        file: the valid values of the file.
        table: its nodes; a recipe has constants instead of parameters.
        positions: the position of the value of each key, by dotted path.
        data: the data; paths of a data file are absolute.
    """

    def __init__(self, path: Path, text: str, table: MappingNode, reader: ConfigReader,
                 space_overrides: Mapping[str, str], data_folder: Path | None) -> None:
        self.path = path
        self.text = text
        self.reader = reader
        self.positions = reader.positions
        self.space_overrides = space_overrides
        table = rename_deprecated_keys(table, schema_of(StudyFile))
        table = replace(table, entries=tuple(unfold_dotted_keys(table, reader.problems)))
        recipe, self.recipe_parameters = extract_parameters(table.get("recipe"), reader)
        self.table = replace(table, entries=tuple(
            (key, recipe or node) if key.text == "recipe" else (key, node)
            for key, node in table))
        values = reader.read_valid_keys(self.table)
        self.file = StudyFile.model_construct(
            set(values), **{"data": None, "recipe": None, "objectives": None, **values})
        self.data: DataSpec | None = self.file.data
        if self.data is not None and data_folder is not None:
            data, self.data = self.data, None
            with self.reporting("data"):
                self.data = data.with_absolute_paths(data_folder)

    def report(self, key: str, message: str, help: str | None = None,
               code: str = "bad-value") -> None:
        """Report a problem at a key, or at the innermost key around it that is set."""
        group, _, name = key.partition(".")
        if group == "objectives" and name:  # in the file, the name may be a deprecated one
            position: Node | SourcePosition | None = next(
                node for node, _ in self.file.objectives
                if DEPRECATED_OBJECTIVES.get(node.text, node.text) == name)
        else:
            position = self.positions.get(key) or self.positions.get(group)
        self.reader.report_problem(position or self.table.position, message, help, code=code)

    @contextmanager
    def reporting(self, place: str | Node) -> Iterator[None]:
        """Context whose error is reported: its problems, or its message at its key.

        Args:
            place: key or node of an error that has no key of the file.
        """
        try:
            yield
        except UserError as error:
            problems = getattr(error, "problems", ())
            self.reader.problems += problems
            if problems:
                return
            if isinstance(place, str) or error.key in self.positions:
                key = error.key if error.key in self.positions else place
                self.report(str(key), error.message, error.help, error.code)
            else:
                self.reader.report_problem(place, error.message, error.help, code=error.code)

    def read(self, out: Path | None) -> StudySpec | None:
        """The study; None if there are problems."""
        file = self.file
        check_keys_of_type(file.type, self.table, self.reader)
        space = self.read_space()
        objectives = self.read_objectives()
        architectures = read_architectures(file, space, partial(open_space, self.path), self.reader)
        space = space or (architectures.space if architectures else None)
        self.check_combinations(space, objectives)
        trials = file.trials if file.type in (SEARCH, COMPRESS) else 0
        if file.type == SEARCH and file.compute is not None and "trials" not in self.positions:
            trials = DEFAULT_MAX_TRIALS
        seeds = read_seeds(file.seeds, self.table.get("seeds"), min(trials, file.trials),
                           objectives, file.type != SEARCH, self.report)
        name = file.name or self.path.stem
        if file.name is None and not is_valid_file_name(name):
            self.report("study", f"the file's name `{name}` cannot name a study's folder",
                        "give `study: NAME`", code="not-a-name")
        folder = out or Path(file.out or f"runs/{name}")
        for message, help in warm_start_problems(file.warm_start, folder):
            self.report("warm_start.from", message, help, code="folder-misplaced")
        budget = self.read_limit(space)
        if space is not None:
            searched_keys = {parameter.key.removeprefix(KEY_PREFIX)
                             for parameter in self.recipe_parameters}
            for conflict in find_missing_settings(file, space, objectives, budget, searched_keys):
                self.report(*conflict)
        recipe_space = self.read_recipe_space(objectives)
        references: tuple[FixedArchitecture, ...] = ()
        if space is not None and recipe_space is not None:
            with self.reporting("reference"):
                references = tuple(self.read_reference(index, space, recipe_space)
                                   for index in range(len(file.references)))
        replacements = self.resolve_replacements(space)
        if self.reader.problems or space is None or self.data is None or recipe_space is None:
            return None
        return self.make_spec(recipe_space, {
            "name": name, "out": folder, "space": space, "objectives": objectives,
            "references": references, "architectures": architectures, "trials": trials,
            "replacements": replacements, "seeds": seeds, "budget": budget})

    def make_spec(self, recipe_space: RecipeSpace, values: Mapping[str, Any]) -> StudySpec:
        """The study with ``values``, and with defaults that follow from other keys."""
        file = self.file
        default_sampler = "bayes" if file.type == SEARCH else "random"
        sampler = replace(file.sampler, name=file.sampler.name or default_sampler,
                          seed=file.seed if file.sampler.seed is None else file.sampler.seed)
        if str(proxy := sampler.arguments.get("proxy", "")).endswith(".csv"):
            sampler = replace(sampler, arguments={**sampler.arguments,
                                                  "proxy": resolve_relative(self.path, proxy)})
        teacher = file.parent or file.teacher
        if teacher is not None and not teacher.folders and teacher.seed is None:
            teacher = teacher.model_copy(update={"seed": file.seed})
        protocol = {key: resolve_relative(self.path, str(value)) if key == LATENCY_KEY else value
                    for key, value in file.protocol.items() if value is not None}
        synonyms = {key: self.positions[other] for key, other in RESOURCES_SYNONYMS
                    if other in self.positions}
        address = file.ray.get("address") or file.resources.address
        backend = "ray" if address and "backend" not in self.positions else file.backend
        resources = file.resources.replace(address=address)
        if recipe_space.base_recipe.device == "cpu" and resources.gpus_per_trial == AUTO:
            resources = resources.replace(gpus_per_trial=0.0)
        values = {
            **dict(file), **values, "data": self.data, "teacher": teacher,
            "recipe": recipe_space.base_recipe, "protocol": protocol, "sampler": sampler,
            "rungs": file.rungs or NO_RUNGS, "backend": backend,
            "workers": resolve_workers(file.workers, backend, resources), "resources": resources}
        return StudySpec.model_construct(file.model_fields_set, file=self.path, text=self.text,
                                         positions=synonyms | self.positions,
                                         recipe_space=recipe_space, **values)

    def resolve_replacements(self, space: Space | None) -> Mapping[str, Any]:
        """The replacements of a compression, which must fit its parent."""
        with self.reporting("replace"):
            replacements = read_replacements(self.file.replacements)
            if self.file.type == COMPRESS and space is not None and not self.reader.problems:
                parent = Parent.from_architecture(space.single_architecture("parent: it"))
                list_alternatives(parent, replacements or default_alternatives(parent))
            return replacements
        return {}

    def read_space(self) -> Space | None:
        """The space or the base; None if it is invalid, or if each row is a file."""
        if self.file.type == COMPRESS:
            if self.file.parent is not None:
                with self.reporting("parent"):
                    changes = self.reader.nodes.get("parent.set")
                    return read_parent(self.path, self.file.parent, changes)
            return None
        key = space_key(self.file.type, self.positions)
        node = self.file.base if key == "base" else self.file.space
        if node is None:
            if key not in self.positions and "architectures" not in self.positions:
                self.report(key, f"`{key}` is missing ({schema_of(StudyFile).fields[key].doc})",
                            f"such as `{key}: transformer`", code="missing-key")
            return None
        with self.reporting(node):
            space = read_space_node(self.path, node)
            return space.with_overrides(self.space_overrides) if self.space_overrides else space
        return None

    def read_reference(self, index: int, space: Space,
                       recipe_space: RecipeSpace) -> FixedArchitecture:
        """The architecture of a reference, with its params if the study's space contains it.

        Raises:
            UserError: it has open parameters, or cannot be built.
        """
        reference = self.file.references[index]
        own_space = open_space(self.path, reference.file) if reference.file else space
        own_space = change_space(own_space, reference.set,
                                 self.reader.nodes.get(f"reference[{index}].set"))
        architecture = own_space.single_architecture(f"reference {reference.name}: it")
        config = own_space.resolve(own_space.replay_values({}))
        recipe_params = recipe_space.default_params(reference.recipe)
        with suppress(UserError):  # the space has no such values
            resolved = space.resolve(space.replay_values(config))
            if dict(resolved) == dict(config):
                return FixedArchitecture(reference.name, architecture,
                                         {**resolved.params, **recipe_params}, recipe_params)
        return FixedArchitecture(reference.name, architecture, None, recipe_params)

    def read_recipe_space(self, objectives: tuple[Objective, ...]) -> RecipeSpace | None:
        """The recipe and its parameters; None if there are problems."""
        for parameter in self.recipe_parameters if self.file.type != SEARCH else ():
            self.reader.report_problem(
                parameter.position_of((0, 0)), f"`{parameter.key}` has several values, and a study "
                f"of type {self.file.type} does not search",
                "give one value, or search (type: search)", code="open-parameters")
        recipe = self.file.recipe
        if self.reader.problems or recipe is None:
            return None
        with self.reporting("recipe"):
            measured = recipe.replace(measure=required_measurements(objectives, recipe.measure))
            space = build_recipe_space(measured, self.recipe_parameters)
            self.reader.problems += space.find_problems()
            return space
        return None

    def read_objectives(self) -> tuple[Objective, ...]:
        """The objectives; none if one of them is invalid, since others are then misjudged."""
        node = self.file.objectives
        objectives: dict[str, Objective] = {}
        if not isinstance(node, MappingNode) or not node.entries:
            if node is not None:
                self.reader.report_problem(node, f"objectives: expected {OBJECTIVES_FORM}")
            return ()
        for key, value in node:
            name = DEPRECATED_OBJECTIVES.get(key.text, key.text)
            direction = node_text(value)
            if name != key.text:
                warn_deprecated(key.position, f"the objective `{key.text}` is now `{name}`")
            with self.reporting(key if name not in OBJECTIVE_NAMES else value):
                objective = parse_objective(name, direction)
                if name in objectives:
                    self.reader.report_problem(key, f"the objective {name} is given twice",
                                               "keep one of them", code="given-twice")
                objectives[name] = objective
        return tuple(objectives.values()) if len(objectives) == len(node.entries) else ()

    def read_limit(self, space: Space | None) -> Constraint | None:
        """The budget, and the condition that an export format supports all candidates."""
        if space is None:
            return None
        node = self.file.budget
        budget = None
        if node is not None and not isinstance(node, ScalarNode):
            self.reader.report_problem(node, f"budget: expected {BUDGET_FORM}")
        elif node is not None:
            with self.reporting(node):
                budget = parse_budget(space, node)
                check_contradictions(space, [budget])
        export_format = self.file.exportable
        runtime = self.file.recipe.decode_with.partition("-")[0] if self.file.recipe else ""
        if export_format == NONE_WORD and runtime in EXPORTABLE_WORDS:
            export_format = runtime
        if export_format == NONE_WORD:
            return budget
        supported = parse_budget(
            space, scalar_from_text("exportable", "", f"refusals.{export_format} <= 0"))
        return supported if budget is None else replace(
            budget, expression=Operation("and", (budget.expression, supported.expression)))

    def check_combinations(self, space: Space | None, objectives: Iterable[Objective]) -> None:
        """Report keys that are valid separately but not together."""
        file = self.file
        data = self.data
        for conflict in find_conflicts(file, space, objectives, self.positions):
            self.report(*conflict)
        if data is None:
            return
        if file.recipe is not None:
            with self.reporting("data"):
                check_compatible(data, file.recipe)
            with self.reporting("recipe"):
                resolve_decoder_format(file.recipe)
        if space is not None:
            model = dict(space.parameters()).get("model")
            for model_type in (getattr(model, "options", ()) if model is not None
                               else [dict(space.sample(Random(0)))["model"]]):
                with self.reporting(space_key(file.type, self.positions)):
                    check_model_type(data.task, str(model_type))
        for objective in objectives:
            with self.reporting(f"objectives.{objective.name}"):
                check_objective_of_task(objective, data)
