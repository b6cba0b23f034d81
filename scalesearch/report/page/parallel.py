"""Parallel coordinates: each finished candidate a line through its answers, coloured by its score."""

from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize

from scalesearch.report.page.facts import Facts
from scalesearch.report.page.html import Section, tag
from scalesearch.report.page.svg import POINT, canvas, framed, inline
from scalesearch.report.page.words import brief, label, tell
from scalesearch.report.plot import direction

MOST = 12  # axes; more cannot be read
# Without the ends of the scale, which a dark or a light page would swallow.
COLORS = ListedColormap(matplotlib.colormaps["viridis"](np.linspace(0.2, 0.9, 256)))
FEW = 6  # numbers up to which each is named
NOWHERE = -0.12  # where a line passes an axis that its candidate was not asked


@dataclass(frozen=True)
class Coordinate:
    """One axis: a question, each candidate's height on it (n,), from 0 to 1, and its ticks as (height, words)."""

    name: str
    heights: tuple[float, ...]
    ticks: tuple[tuple[float, str], ...]


def coordinate(name: str, answers: list[Any]) -> Coordinate:
    """The axis of a question: numbers to scale, words evenly spaced; None where it was not asked."""
    given = [value for value in answers if value is not None]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in given):
        return _scaled(name, answers, given)
    kinds = sorted({brief(value) for value in given})
    places = {kind: at / max(1, len(kinds) - 1) for at, kind in enumerate(kinds)}
    heights = tuple(NOWHERE if value is None else places[brief(value)] for value in answers)
    return Coordinate(name, heights, tuple((place, kind) for kind, place in places.items()))


def _scaled(name: str, answers: list[Any], given: list[Any]) -> Coordinate:
    low, high = min(given), max(given)
    spots = {value: (value - low) / (high - low) if high > low else 0.5 for value in given}
    ticks = sorted(spots) if len(spots) <= FEW else [low, high]
    heights = tuple(NOWHERE if value is None else spots[value] for value in answers)
    return Coordinate(name, heights, tuple((spots[value], brief(value)) for value in ticks))


def coordinates(facts: Facts, rows: Any) -> list[Coordinate]:
    """The questions that ``rows`` did not all answer alike, as the space orders them; those asked of all come first."""
    sheets = [facts.candidates[int(number)].answers for number in rows["trial"]]
    found = []
    for name in dict.fromkeys(name for sheet in sheets for name in sheet if name in facts.asked):
        answers = [sheet.get(name) for sheet in sheets]
        if len({brief(value) for value in answers}) > 1:
            found.append(coordinate(name, answers))
    return sorted(found, key=lambda one: NOWHERE in one.heights)


def section(facts: Facts) -> Section | None:
    """The figure, or why there is none; None where nothing was asked."""
    title = "Answers"
    if not facts.searched:
        return None
    rows = facts.done[[bool(facts.candidates[int(number)].answers) for number in facts.done["trial"]]] \
        if len(facts.done) else facts.done
    every = coordinates(facts, rows) if len(rows) else []
    if len(rows) < 2 or not every:
        return Section("answers", title, tag("p", "Fewer than two finished candidates answer anything differently."))
    shown = every[:MOST]
    scores = rows[facts.main].to_numpy(dtype=float)
    with canvas(min(13.0, 2.5 + 1.15 * len(shown)), 4.2) as (figure, (axes,)):
        _draw(axes, shown, scores, [int(number) for number in rows["trial"]], facts)
        scale = ScalarMappable(Normalize(scores.min(), scores.max()), COLORS)
        figure.colorbar(scale, ax=axes, label=label(facts.main, {}), fraction=0.03, pad=0.03)
    titles = {int(row["trial"]): tell(row, {facts.main: facts.main}) for _, row in rows.iterrows()}
    left_out = [one.name for one in every[MOST:]]
    caption = (f"{len(rows)} finished candidates, coloured by {label(facts.main, {})}; below an axis: not asked."
               + (f" Not shown: {', '.join(left_out)}." if left_out else ""))
    over = ", ".join(one.name for one in shown)
    alt = f"Parallel coordinates of {len(rows)} candidates over {over}; {_best(facts)}"
    return Section("answers", title, framed(inline(figure, "answers", alt, titles), caption, class_="spread"))


def _draw(axes: Axes, shown: list[Coordinate], scores: Any, numbers: list[int], facts: Facts) -> None:
    across = np.arange(len(shown))
    low, high = scores.min(), scores.max()
    better = 1 if direction(facts.main) == "max" else -1
    for at in np.argsort(better * scores, kind="stable"):  # the best on top
        share = (scores[at] - low) / (high - low) if high > low else 0.5
        heights = [one.heights[at] + 0.012 * ((numbers[at] % 5) - 2) for one in shown]
        mine = numbers[at] in facts.members
        axes.plot(across, heights, color=COLORS(share), linewidth=2.0 if mine else 0.8, alpha=0.95 if mine else 0.55,
                  gid=f"{POINT}{numbers[at]}")
    for place, one in enumerate(shown):
        axes.axvline(place, color="#222222", linewidth=0.6)
        for height, words in one.ticks:
            axes.annotate(words, (place, height), (3, 2), textcoords="offset points", fontsize=7,
                          bbox={"facecolor": "#ffffff", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}, zorder=5)
    axes.set_xticks(across, [one.name.replace(".", ".\n") for one in shown], fontsize=7, rotation=0)
    axes.set_yticks([])
    axes.grid(False)
    axes.set_xlim(-0.1, len(shown) - 0.4)
    axes.spines[["left", "bottom"]].set_visible(False)


def _best(facts: Facts) -> str:
    done = facts.done
    at = done[facts.main].astype(float).idxmax() if direction(facts.main) == "max" \
        else done[facts.main].astype(float).idxmin()
    number = int(done.loc[at, "trial"])
    answers = ", ".join(f"{name} {brief(value)}" for name, value in facts.candidates[number].answers.items()
                        if name in facts.asked)
    return f"the best, trial {number}: {answers}."
