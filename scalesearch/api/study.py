"""Studies: running one, and what it has found as frames, figures, models and a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from scalesearch.api.display import Displayable
from scalesearch.api.error_messages import python_error_messages
from scalesearch.api.model import Model
from scalesearch.api.space import SearchSpace, flatten_values
from scalesearch.errors import UserError
from scalesearch.library import find_file, require_packages
from scalesearch.space import Space

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from rich.table import Table

    from scalesearch.study.config.spec import StudySpec
    from scalesearch.study.results.results import Results
    from scalesearch.study.trials.callback import Callback


@python_error_messages()
def study(source: str | Path | Mapping[str, Any], settings: Mapping[str, Any] | None = None, /, *,
          out: str | Path | None = None, **more_settings: Any) -> Study:
    """The study that a file, the name of a shipped one, or a mapping of its keys describes; nothing is run yet.

    Args:
        source: a folder of a study is opened as :func:`load_results` does.
        settings, more: keys in place of the file's, such as ``{"recipe.steps": 500}`` or
            ``trials=4``.
        out: the study's folder, in place of ``runs/NAME``.

    Raises:
        UserError: it does not exist or is invalid; all problems are listed with their places.

    Example:
        >>> one = study("quick", {"recipe.steps": 500}, trials=4)
        >>> one.spec.trials, one.spec.recipe.steps
        (4, 500)
    """
    if not isinstance(source, Mapping) and (Path(source) / "study.json").is_file():
        return Study(Path(source))
    from scalesearch.study.config.reader import limit_to_one_worker, parse_study, read_study

    changes = dict(flatten_values({**(settings or {}), **more_settings}))
    sets = [f"{key}={value}" for key, value in changes.items()]
    folder = None if out is None else Path(out)
    if isinstance(source, Mapping):
        text = yaml.dump(dict(source), Dumper=_Dumper, sort_keys=False, allow_unicode=True,
                         width=1000)
        spec = parse_study(text, Path("<python>"), sets, folder)
    else:
        spec = read_study(find_file(str(source), "studies"), sets, folder)
    spec = limit_to_one_worker(spec, changes, lambda text: None)
    return Study(Path(spec.out or ""), spec)


class _Dumper(yaml.SafeDumper):
    """Writes the keys of a study: also spaces, and what has a ``to_json``."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_any(self, data: Any) -> Any:
        if isinstance(data, Space | SearchSpace):
            return yaml.compose(data.to_yaml(), Loader=yaml.SafeLoader)
        if isinstance(data, Path):
            return self.represent_str(str(data))
        if isinstance(data, Mapping) or hasattr(data, "to_json"):
            return self.represent_dict(dict(data) if isinstance(data, Mapping) else data.to_json())
        raise UserError(f"{data!r} has no meaning in a study; use numbers, texts, lists, mappings "
                        "and spaces", code="not-serializable")


_Dumper.add_multi_representer(object, _Dumper.represent_any)  # of what YAML has no form for


@dataclass(frozen=True, repr=False)
class Study(Displayable):
    """A study: what it is to do, and what its folder holds by now.

    Attributes:
        folder: of the study.
        spec: content of the study file; None if a folder was opened and not run yet.
    """

    folder: Path
    spec: StudySpec | None = None

    @python_error_messages()
    def run(self, callbacks: Sequence[Callback] = (), *, resume: bool = True,
            measure: float = 0.0, quiet: bool = False) -> Study:
        """Run the study to its end; the same call resumes an interrupted study.

        Args:
            callbacks: called for each trial; see :class:`scalesearch.study.trials.callback.Callback`.
            resume: False refuses a study that was started before.
            measure: seconds to measure the speed of models for, for the forecast.
            quiet: show nothing.

        Returns:
            The study.

        Raises:
            UserError: something is wrong with it, or too many trials failed.
            KeyboardInterrupt: after workers have saved; nothing finished is lost.
        """
        if self.spec is None:
            from scalesearch.study.config.command import read_started_study

            with chdir("."):  # to come back to: what is read goes to where the study was run
                started = Study(self.folder.absolute(), read_started_study(self.folder))
                return started.run(callbacks, resume=resume, measure=measure, quiet=quiet)
        spec = self.spec
        require_packages("optuna", "pandas", "matplotlib",
                         *(["ray"] if spec.backend == "ray" else []))
        from scalesearch.study.config.reader import with_position
        from scalesearch.study.engine.run import launch
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
        from scalesearch.study.results.results import load_results

        return load_results(self.folder)

    def front(self) -> pd.DataFrame:
        """The trials that no other dominates, from the cheapest; units of its columns are in ``attrs["units"]``."""
        from scalesearch.api.frames import front_frame

        return front_frame(self.results)

    def trials(self) -> pd.DataFrame:
        """One row a trial, with its state; units of its columns are in ``attrs["units"]``."""
        from scalesearch.api.frames import all_trials_frame

        return all_trials_frame(self.results)

    @python_error_messages()
    def plot(self, x: str | None = None, y: str | None = None) -> Figure:
        """A figure of a metric against a cost, with front, other trials, budget and references.

        Args:
            x: cost; the first among the objectives, or params.total, if not given.
            y: metric; the main one, if not given.

        Raises:
            UserError: no trial is finished, or has no such number.
        """
        require_packages("pandas", "matplotlib")
        from scalesearch.report.figures.plot import plot_tradeoff
        from scalesearch.study.results.publish import plotted_costs

        results = self.results
        x = x or plotted_costs(results)[0]
        y = y or results.main_metric
        table = results.table
        for name in (x, y):
            if name not in table or not table.loc[table["state"] == "complete", name].notna().any():
                raise UserError(f"{self.folder}: no finished trial has a {name}, so there is "
                                "nothing to plot", code="nothing-finished")
        figure: Figure = plot_tradeoff(table, results.subject, x, y)
        vars(figure)["_repr_png_"] = lambda: _png(figure)  # a notebook shows it without pyplot
        return figure

    @python_error_messages()
    def best(self, objective: str | None = None, constraint: str | None = None) -> Model:
        """Return the best model on the front by a metric or cost, by default the first objective.

        Args:
            constraint: a condition over costs, parameters and validation scores, such as ``params.total
                <= 2M``; then it is the
                best of all eligible trials that meet it.

        Raises:
            UserError: no finished trial meets the condition, or it uses test scores.
        """
        from scalesearch.study.results.selection import select_trial

        results = self.results
        number, why = select_trial(results, objective, None, constraint)
        return Model(results.study.trial_folder(results.study.trials[number]),
                     f"trial {number}, {why}")

    def model(self, trial: int) -> Model:
        """The model of a finished trial, by its number."""
        from scalesearch.study.results.selection import select_trial

        results = self.results
        select_trial(results, None, trial)
        return Model(results.study.trial_folder(results.study.trials[trial]), f"trial {trial}")

    @python_error_messages()
    def report(self, to: str | Path | None = None, *, standalone: bool = False) -> Path:
        """Write an HTML report of the results so far, by default ``report.html``; return its path.

        Args:
            standalone: without links to the study's files, for a page that is sent elsewhere.
        """
        require_packages("optuna", "pandas", "matplotlib")
        from scalesearch.study.results.page.render import write_page

        return write_page(self.results, Path(to) if to else self.folder / "report.html", standalone)

    def _display_parts(self) -> Iterator[Table | str]:
        if not (self.folder / "study.json").is_file():
            yield f"study {self.spec.name if self.spec else ''} in {self.folder}: not started"
            if self.spec:
                ways = ", ".join(f"{objective.name} {objective.direction}"
                                 for objective in self.spec.objectives)
                yield f"{ways}; {self.spec.trials_text if self.spec.architectures is None else f'{len(self.spec.architectures.architectures)} rows'}"  # noqa: E501
                yield f"recipe: {self.spec.recipe.describe()}"
            return
        from scalesearch.api.frames import study_parts

        yield from study_parts(self.results)


def _png(figure: Figure) -> bytes:
    from scalesearch.report.figures.style import figure_style

    file = BytesIO()
    with figure_style():
        figure.savefig(file, format="png", dpi=120)
    return file.getvalue()
