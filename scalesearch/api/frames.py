"""Tables of a study as pandas frames with units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
from rich.table import Table

from scalesearch.api.display import frame_to_table, to_html, to_text
from scalesearch.report.labels import column_unit
from scalesearch.report.table import architecture_lines, drop_empty_columns, format_trials
from scalesearch.studies.results.results import Results


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


def front_frame(results: Results) -> FrontFrame:
    """Return the front of a study."""
    frame = FrontFrame(_without_empty_columns(results, results.front))
    frame.attrs = frame_attributes(results, frame)
    frame._shown = [*front_parts(results)]
    return frame


def all_trials_frame(results: Results) -> pd.DataFrame:
    """Return every trial of a study."""
    frame = _without_empty_columns(results, results.table).copy()
    frame.attrs = frame_attributes(results, frame)
    return frame


def _without_empty_columns(results: Results, table: pd.DataFrame) -> pd.DataFrame:
    """Remove empty columns except objectives."""
    kept = {*drop_empty_columns(table).columns, *results.objectives}
    return table[[name for name in table if name in kept]]


def frame_attributes(results: Results, frame: pd.DataFrame) -> dict[str, Any]:
    """Return study, objectives, protocol, signature, seed and units of the columns."""
    meta = results.study.meta
    units = {str(name): unit for name in frame if (unit := column_unit(str(name)))}
    return {"study": meta.name, "objectives": results.objectives, "protocol": dict(meta.protocol),
            "signature": results.signature, "seed": meta.seed, "units": units}


def front_parts(results: Results) -> Iterator[Table | str]:
    """Yield the front as a table, its architectures, and notes on its numbers."""
    title = (f"Front of {results.study.meta.name}: {len(results.front)} of "
             f"{len(results.view.completed)} trained candidates")
    yield frame_to_table(format_trials(results.front, results.objectives), title=title, has_box=True)
    yield from architecture_lines(results.front, results.params)
    yield from results.notes()
    yield from results.seed_analysis.sentences()
    if volume := results.hypervolume():
        reference_point = ", ".join(f"{name} {value:,.6g}"
                                    for name, value in zip(results.objectives, volume[1]))
        yield f"Hypervolume {volume[0]:.6g} against the reference point {reference_point}."


def study_parts(results: Results) -> Iterator[Table | str]:
    """Yield the progress of a study, and its front."""
    states = Counter(str(trial.state) for trial in results.study.trials.candidates())
    counts = ", ".join(f"{count} {state}" for state, count in states.most_common())
    yield (f"study {results.study.meta.name} in {results.study.folder}: "
           f"{counts or 'nothing proposed yet'}")
    if len(results.view.completed):
        yield from front_parts(results)
