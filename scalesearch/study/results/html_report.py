"""A study's folder as one HTML page."""

from pathlib import Path

from scalesearch.errors import UserError
from scalesearch.files import write_text
from scalesearch.study.results.figures import own_figures
from scalesearch.study.results.page.facts import Facts
from scalesearch.study.results.page.render import render
from scalesearch.study.results.results import Results


def write_page(results: Results, to: Path, alone: bool = False) -> Path:
    """Writes the page of ``results`` to ``to``, with links relative to its folder.

    Args:
        alone: no link to another file, for a page that is to be sent elsewhere.
    """
    if to.is_dir():
        raise UserError(f"--to {to}: this is a folder; give the page's file, such as {to / 'report.html'}",
                        code="is-a-folder")
    write_text(to, render(Facts(results, None if alone else to.parent, own_figures(results))))
    return to
