"""Studies: run them, and get results as frames, figures, models and a page."""

from __future__ import annotations

import math
import os.path
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import yaml

from scalesearch.api.base import Displayable, python_error_messages, to_html, to_text
from scalesearch.api.model import Model
from scalesearch.api.space import SearchSpace
from scalesearch.config.model import NONE_TEXT
from scalesearch.config.reader import file_value
from scalesearch.errors import UserError
from scalesearch.files import read_json
from scalesearch.library import find_file, require_packages
from scalesearch.spaces import Space
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.spaces.python_api import format_value, python_number
from scalesearch.spaces.syntax.diagnostics import PYTHON_VALUES, suggest_match
from scalesearch.spaces.syntax.domains import Schedule
from scalesearch.tasks import TASKS
from scalesearch.terminal import format_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from scalesearch.studies.config.spec import StudySpec
    from scalesearch.studies.results.results import Results
    from scalesearch.studies.trials.trial import Callback


@python_error_messages()
def study(source: str | Path | Mapping[str, Any], settings: Mapping[str, Any] | None = None, /, *,
          out: str | Path | None = None, **more_settings: Any) -> Study:
    """Read a study, without running it.

    Args:
        source: a study file, the name of a shipped study, its keys, or the folder of a study.
        settings, more_settings: overrides of keys, such as ``{"recipe.steps": 500}`` or
            ``trials=4``. A mapping replaces that of the file, and None unsets a key.
        out: folder of the study; by default ``runs/NAME``.

    Raises:
        UserError: the file does not exist or is invalid; all problems are listed with positions.

    Example:
        >>> quick = study("quick", {"recipe.steps": 500}, trials=4)
        >>> quick.spec.trials, quick.spec.recipe.steps
        (4, 500)
    """
    changes = {**(settings or {}), **more_settings}
    overrides = [f"{key}={_override_text(value)}" for key, value in changes.items()]
    from scalesearch.studies.config.command import started_study_folder

    started_folder = None if isinstance(source, Mapping) else started_study_folder(str(source))
    if started_folder is not None:
        if out is not None:
            raise UserError(f"{source} is the folder of a study", help="remove out=, or read the "
                            "study file", code="options-conflict")
        started = Study(started_folder, overrides=tuple(overrides))
        with started._started_spec():  # raises errors of the overrides
            return started
    from scalesearch.studies.config.reader import limit_to_one_worker, parse_study, read_study

    folder = None if out is None else Path(out)
    if isinstance(source, Mapping):
        spec = parse_study(_to_yaml(dict(source)), Path(PYTHON_VALUES), overrides, folder)
    else:
        spec = read_study(find_file(str(source), "studies"), overrides, folder)
    spec = limit_to_one_worker(spec, changes, lambda text: None)
    return Study(Path(spec.out or ""), spec)


@python_error_messages()
def compress(model: Model | str | Path, recipe: str | Path | Mapping[str, Any], *,
             replace: Mapping[str, Any] | None = None, budget: str | None = None,
             trials: int = 4, objectives: Mapping[str, str] | None = None,
             out: str | Path | None = None, **settings: Any) -> Study:
    """Read a study that compresses a trained model, without running it.

    Single blocks are replaced and scored; combinations within the budget are fine-tuned.

    Args:
        model: the parent, a finished training run.
        recipe: recipe of the fine-tuning.
        replace: smaller sizes by key, such as ``{"encoder.ffn.hidden": "0 | 128"}``.
        budget: limits on costs, such as ``"params.total <= 1M"``.
        trials: combinations that are fine-tuned.
        objectives: metrics and costs; by default the main metric of the task and params.
        out: folder of the study; by default ``runs/compress-NAME``.
        settings: other keys of a study file, such as ``workers=2``.

    Raises:
        UserError: the parent's blocks cannot be replaced, or a setting is invalid.
    """
    folder = Path(model.folder if isinstance(model, Model) else model)
    if not (folder / "data.json").is_file():
        raise UserError(f"{folder}: not the folder of a finished training run", help="give a "
                        "model, such as `study.best()`, or its folder", code="no-checkpoint")
    data = read_json(folder / "data.json", dict[str, Any])["spec"]
    task = TASKS[data["task"]]
    direction = task.metrics[task.main_metric].direction
    keys = {"study": f"compress-{folder.resolve().name}", "type": "compress",
            "parent": str(folder), "data": {key: value for key, value in data.items()
                                            if value is not None},
            "recipe": recipe, "trials": trials,
            "objectives": objectives or {task.main_metric: direction, "params.total": "min"},
            **({"replace": dict(replace)} if replace else {}),
            **({"budget": budget} if budget else {}), **settings}
    return study(keys, out=out)


class _Dumper(yaml.SafeDumper):
    """Dumper of study keys, whose values may be spaces, recipes or data."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_any(self, data: Any) -> Any:
        if isinstance(data, Space | SearchSpace):
            return yaml.compose(data.to_yaml(), Loader=yaml.SafeLoader)
        if isinstance(data, ModelSpec):  # a reference, as values in the space of the study
            return self.represent_dict({"name": data.id, "set": dict(data.config)})
        if isinstance(data, Path | Schedule):
            return self.represent_str(str(data))
        if (number := python_number(data)) is not data:
            return self.represent_data(number)
        value = file_value(data)
        if isinstance(value, Mapping):
            return self.represent_dict(dict(value))
        raise UserError(f"{data!r} has no meaning in a study; use numbers, texts, lists, mappings "
                        "and spaces",
                        help="an objective of your own needs a study of Optuna, with the sampler "
                        "`HypervolumeGP` (docs/guides/sampler-in-optuna.md)" if callable(data)
                        else None, code="not-serializable")


_Dumper.add_multi_representer(object, _Dumper.represent_any)  # types that YAML does not know


def _to_yaml(value: Any) -> str:
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000))


def _override_text(value: Any) -> str:
    """Return the value of an override as the text of an option."""
    if value is None:
        return NONE_TEXT
    if isinstance(python_number(value), str | bool | int | float):
        return format_value(value)
    node: Any = yaml.compose(_to_yaml(value), Loader=yaml.SafeLoader)
    node.flow_style = True
    return str(yaml.serialize(node, Dumper=yaml.SafeDumper, allow_unicode=True, width=math.inf))


@dataclass(frozen=True, repr=False)
class Study(Displayable):
    """A study: its specification and the results in its folder.

    Attributes:
        folder: folder of the study.
        spec: content of the study file; None if the folder was opened.
        overrides: changes of the keys of an opened folder, such as ``trials=4``.
    """

    folder: Path
    spec: StudySpec | None = None
    overrides: tuple[str, ...] = ()

    @contextmanager
    def _started_spec(self) -> Iterator[StudySpec]:
        """Context in the folder in which the study was started, with the content of its file."""
        from scalesearch.studies.config.command import read_started_study

        with chdir("."):
            yield read_started_study(self.folder, self.overrides)

    @python_error_messages()
    def run(self, callbacks: Callback | Sequence[Callback] = (), *, resume: bool = True,
            measure: float = 0.0, quiet: bool = False) -> Study:
        """Run the study to its end; the same call resumes an interrupted study.

        Args:
            callbacks: one or several, called for each trial; see
                :class:`scalesearch.studies.trials.trial.Callback`.
            resume: False refuses a study that was started before.
            measure: seconds in which the speed of models is measured, for the forecast.
            quiet: print nothing.

        Returns:
            The study.

        Raises:
            UserError: the study is invalid, or too many trials failed.
            KeyboardInterrupt: after the workers have saved their runs.
        """
        from scalesearch.studies.trials.trial import Callback

        callbacks = [*callbacks] if isinstance(callbacks, Iterable) else [callbacks]
        if invalid := [value for value in callbacks if not isinstance(value, Callback)]:
            raise UserError(f"callbacks: expected instances of ss.Callback, found {invalid[0]!r}",
                            code="bad-value")
        if self.spec is None:
            folder = self.folder.absolute()
            with self._started_spec() as spec:
                started = Study(folder, spec)
                return started.run(callbacks, resume=resume, measure=measure, quiet=quiet)
        spec = self.spec
        require_packages("optuna", "pandas", "matplotlib",
                         *(["ray"] if spec.backend == "ray" else []))
        from scalesearch.studies.config.reader import with_position
        from scalesearch.studies.engine.run import launch
        from scalesearch.terminal import open_console

        try:
            launch(spec, resume, open_console(file=StringIO() if quiet else None), measure,
                   callbacks)
        except UserError as error:
            raise with_position(error, spec) from None
        return Study(self.folder, spec)

    @property
    def results(self) -> Results:
        """Results so far, read again at each access."""
        from scalesearch.studies.results.results import load_results

        return load_results(self.folder)

    def front(self, *, all_params: bool = False) -> pd.DataFrame:
        """Return the trials that no other dominates, the cheapest first.

        ``attrs["units"]`` has the units of the columns.

        Args:
            all_params: also return parameters that the study does not search.
        """
        from scalesearch.studies.results.publish import front_parts

        results = self.results
        table = _make_frame(results, results.front, all_params)
        frame = FrontFrame(table)
        frame.attrs = table.attrs
        frame._shown = [*front_parts(results)]
        return frame

    @python_error_messages()
    def predicted_front(self, budget: str | None = None) -> pd.DataFrame:
        """Return the predicted front of a compression, without training.

        Args:
            budget: limits on any costs.

        Returns:
            A row per combination, the lowest predicted loss first.

        Raises:
            UserError: the replacements are not scored yet, or no combination meets the budget.
        """
        prediction, rows = self.results.predict([budget] if budget else [])
        return pd.DataFrame([prediction.to_dict(row) for row in rows])

    def trials(self, *, all_params: bool = False) -> pd.DataFrame:
        """Return one row per trial, with its state.

        ``attrs["units"]`` has the units of the columns.

        Args:
            all_params: also return parameters that the study does not search.
        """
        results = self.results
        return _make_frame(results, results.table, all_params)

    @python_error_messages()
    def plot(self, x: str | None = None, y: str | None = None) -> Figure:
        """Plot a metric against a cost, with front, other trials, budget and references.

        Args:
            x: a cost; by default the first objective that is a cost, or params.total.
            y: a metric; by default the main metric.

        Raises:
            UserError: no trial is finished, or none has these values.
        """
        require_packages("pandas", "matplotlib")
        from scalesearch.report.figures.plot import plot_tradeoff
        from scalesearch.report.figures.style import figure_style
        from scalesearch.report.table import value_columns
        from scalesearch.studies.results.publish import plotted_costs

        results = self.results
        x = x or plotted_costs(results)[0]
        y = y or results.main_metric
        trials = results.table
        all_costs = pd.DataFrame([results.study.trials[number].costs for number in trials["trial"]],
                                 index=trials.index)
        table = trials.join(all_costs[all_costs.columns.difference(trials.columns)])
        values = table[table["state"] == "complete"].dropna(axis="columns", how="all")
        if values.empty:
            raise UserError(f"{self.folder}: nothing to plot, because no trial is finished",
                            code="nothing-finished")
        for name in (x, y):
            if name not in values:
                names = dict.fromkeys((*value_columns(results.objectives), *all_costs))
                raise UserError(f"{self.folder}: no finished trial has `{name}`",
                                help=suggest_match(name, filter(values.__contains__, names)),
                                code="unknown-metric")
        figure: Figure = plot_tradeoff(table, results.subject, x, y)

        def render_png() -> bytes:
            file = BytesIO()
            with figure_style():
                figure.savefig(file, format="png", dpi=120)
            return file.getvalue()

        vars(figure)["_repr_png_"] = render_png  # for notebooks, without pyplot
        return figure

    @python_error_messages()
    def best(self, objective: str | None = None, constraint: str | None = None) -> Model:
        """Return the best model on the front by a metric or cost.

        The first objective is the default.

        Args:
            objective: a metric or a cost.
            constraint: a condition over costs, parameters and validation scores, such as
                ``params.total <= 2M``. The model is then the best eligible trial that meets it.

        Raises:
            UserError: no finished trial meets the condition, or it uses test scores.
        """
        from scalesearch.studies.results.results import select_best

        results = self.results
        number, reason = select_best(results, objective, constraint)
        return Model(results.study.trial_folder(results.study.trials[number]),
                     f"trial {number}, {reason}")

    @python_error_messages()
    def model(self, trial: int) -> Model:
        """Return the model of a finished trial, by its number."""
        from scalesearch.studies.results.results import select_by_number

        results = self.results
        select_by_number(results, trial)
        return Model(results.study.trial_folder(results.study.trials[trial]), f"trial {trial}")

    @python_error_messages()
    def report(self, to: str | Path | None = None, *, standalone: bool = False) -> Path:
        """Write an HTML report of the results so far, and return its path.

        Args:
            to: file to write; by default ``report.html``.
            standalone: write a page without links to the files of the study, to send it.
        """
        require_packages("optuna", "pandas", "matplotlib")
        from scalesearch.studies.results.page.render import write_page

        return write_page(self.results, Path(to) if to else self.folder / "report.html", standalone)

    def _display_parts(self) -> Iterator[Table | str]:
        if not os.path.isfile(self.folder / "study.json"):
            from scalesearch.studies.config.fixed_architectures import COMPRESS

            yield f"study {self.spec.name if self.spec else ''} in {self.folder}: not started"
            if self.spec:
                objectives = ", ".join(f"{objective.name} {objective.direction}"
                                       for objective in self.spec.objectives)
                size = self.spec.trials_text
                if self.spec.architectures and self.spec.type != COMPRESS:
                    size = f"{format_count(len(self.spec.architectures.architectures), 'row')}"
                yield f"{objectives}; {size}"
                yield f"recipe: {self.spec.recipe_text}"
            return
        from scalesearch.studies.results.publish import front_parts

        results = self.results
        states = Counter(str(trial.state) for trial in results.study.trials.candidates())
        counts = ", ".join(f"{count} {state}" for state, count in states.most_common())
        yield (f"study {results.study.meta.name} in {results.study.folder}: "
               f"{counts or 'nothing proposed yet'}")
        if len(results.view.completed):
            yield from front_parts(results)


class FrontFrame(pd.DataFrame):  # type: ignore[misc]
    """Front of a study, displayed as a table.

    Results of pandas methods are plain frames.
    """

    _internal_names = [*pd.DataFrame._internal_names, "_shown"]
    _internal_names_set = set(_internal_names)

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def __repr__(self) -> str:
        return to_text(self._shown)

    def _repr_html_(self) -> str:
        return to_html(self._shown)


def _make_frame(results: Results, table: pd.DataFrame, all_params: bool) -> pd.DataFrame:
    """Return a table without empty columns, except objectives, and with units and provenance.

    Args:
        all_params: keep parameters that the study does not search; without a search, parameters
            with one value.
    """
    from scalesearch.report.labels import column_unit
    from scalesearch.report.table import differing_columns, drop_empty_columns, param_columns

    kept = {*drop_empty_columns(table).columns, *results.objectives}
    if not all_params:
        searched = param_columns(table, results.params) or differing_columns(results.table)
        kept -= {*param_columns(table)}.difference(searched)
    frame = table[[name for name in table if name in kept]].copy()
    meta = results.study.meta
    loss = results.study.trials.loss_name
    units = {str(name): unit
             for name in frame if (unit := column_unit(str(name), meta.protocol, loss))}
    frame.attrs = {"study": meta.name, "objectives": results.objectives,
                   "protocol": dict(meta.protocol), "signature": results.signature,
                   "seed": meta.seed, "units": units}
    return frame
