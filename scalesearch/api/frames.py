"""A study's tables as pandas frames that know their units and show themselves to people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
from rich.table import Table

from scalesearch.api.html import as_table, to_html, to_text
from scalesearch.report.labels import unit
from scalesearch.report.table import architectures, filled, texts
from scalesearch.study.results.results import Results


class Front(pd.DataFrame):  # type: ignore[misc]
    """The front of a study, shown as a table for people; what is made of it are plain frames."""

    _internal_names = [*pd.DataFrame._internal_names, "_shown"]
    _internal_names_set = set(_internal_names)

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def __repr__(self) -> str:
        return to_text(self._shown)

    def _repr_html_(self) -> str:
        return to_html(self._shown)


def front_of(results: Results) -> Front:
    """The front of a study."""
    found = Front(_filled(results, results.front))
    found.attrs = attributes(results, found)
    found._shown = [*front_parts(results)]
    return found


def trials_of(results: Results) -> pd.DataFrame:
    """Every trial of a study."""
    found = _filled(results, results.table).copy()
    found.attrs = attributes(results, found)
    return found


def _filled(results: Results, table: pd.DataFrame) -> pd.DataFrame:
    """``table`` without the columns that hold nothing; the objectives stay."""
    kept = {*filled(table).columns, *results.objectives}
    return table[[name for name in table if name in kept]]


def attributes(results: Results, frame: pd.DataFrame) -> dict[str, Any]:
    """What the numbers of a frame mean: study, objectives, protocol, signature, seed, and the units of its columns."""
    meta = results.study.meta
    units = {str(name): word for name in frame if (word := unit(str(name)))}
    return {"study": meta.name, "objectives": results.objectives, "protocol": dict(meta.protocol),
            "signature": results.signature, "seed": meta.seed, "units": units}


def front_parts(results: Results) -> Iterator[Table | str]:
    """The front as a table, with its architectures and what its numbers mean."""
    title = f"Front of {results.study.meta.name}: {len(results.front)} of {len(results.finished)} trained candidates"
    yield as_table(texts(results.front, results.objectives), title=title, lines=True)
    yield from architectures(results.front, results.params)
    yield from results.notes()
    yield from results.seed_analysis.sentences()
    if volume := results.hypervolume():
        corner = ", ".join(f"{name} {value:,.6g}" for name, value in zip(results.objectives, volume[1]))
        yield f"Hypervolume {volume[0]:.6g} against the reference point {corner}."


def parts_of(results: Results) -> Iterator[Table | str]:
    """How far a study is, and its front."""
    states = Counter(str(trial.state) for trial in results.study.trials.candidates())
    counted = ", ".join(f"{count} {state}" for state, count in states.most_common()) or "nothing proposed yet"
    yield f"study {results.study.meta.name} in {results.study.folder}: {counted}"
    if len(results.finished):
        yield from front_parts(results)
