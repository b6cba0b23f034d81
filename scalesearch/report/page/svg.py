"""A matplotlib figure inside a page: its ids made unique, its ink following the page's light or dark colours."""

import html
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import StringIO

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from scalesearch.report.page.html import Html, tag
from scalesearch.report.page.slim import FONT, slim
from scalesearch.report.plot import FRONT, STYLE

GRID = "#e6e6e6"
# What a figure draws in these is drawn in the page's own colours, which are others in the dark.
THEME = {"#000000": "var(--ink)", "#222222": "var(--ink)", "#ffffff": "var(--page)", GRID: "var(--grid)",
         FRONT.lower(): "var(--front)", "#8a3a6a": "var(--over)"}
POINT = "point-"  # the id of what stands for a trial in a figure, before its number


@contextmanager
def canvas(width: float, height: float, columns: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure in the style of the study's own, in inches, and its panels side by side."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, columns, squeeze=False)[0]
        for axes in panels:
            axes.grid(True, color=GRID, linewidth=0.6)
            axes.set_axisbelow(True)
        yield figure, list(panels)


def inline(figure: Figure, key: str, alt: str, titles: Mapping[int, str] | None = None) -> Html:
    """``figure`` as an SVG element.

    Args:
        key: put before every id in it.
        alt: what one who cannot see it must know.
        titles: trial to what is said where the pointer rests on its mark (an artist with the gid ``point-TRIAL``).
    """
    text = StringIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return inline_text(text.getvalue(), key, alt, titles)


def inline_text(text: str, key: str, alt: str, titles: Mapping[int, str] | None = None) -> Html:
    """The same from ``text``, an SVG file as matplotlib writes it."""
    body = text[text.index("<svg"):].strip()
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    body = _themed(_owned(body, key))
    body = _marked(body, key, titles or {})
    head = f'<svg class="figure" role="img" aria-label="{html.escape(alt, quote=True)}"'
    body = re.sub(r'^<svg(.*?)>', lambda found: _head(head, found.group(1)), body, count=1, flags=re.DOTALL)
    return Html(slim(body))


def _head(head: str, attributes: str) -> str:
    """The opening tag without a size of its own, so that it is as wide as the page lets it be."""
    rest = re.sub(r'\s(width|height|version)="[^"]*"', "", attributes)
    return f"{head}{rest}>"


def _owned(body: str, key: str) -> str:
    """With ``key`` before every id but those of letters, which all figures share."""
    body = re.sub(rf'\bid="(?!{FONT})([^"]+)"', rf'id="{key}-\1"', body)
    body = re.sub(rf'href="#(?!{FONT})([^"]+)"', rf'href="#{key}-\1"', body)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{key}-\1)", body)


def _themed(body: str) -> str:
    for color, name in THEME.items():
        body = body.replace(color, name)
    return body


def _marked(body: str, key: str, titles: Mapping[int, str]) -> str:
    """Gives each trial's mark its words."""
    def mark(found: re.Match[str]) -> str:
        number = int(found.group(1))
        said = html.escape(titles.get(number, f"trial {number}"), quote=False)
        return f'<g id="{key}-{POINT}{number}" class="point" data-trial="{number}"><title>{said}</title>'

    return re.sub(rf'<g id="{key}-{POINT}(\d+)">', mark, body)


def framed(picture: Html, caption: object, **attributes: object) -> Html:
    """A figure and what it says."""
    return tag("figure", picture, tag("figcaption", caption), **attributes)
