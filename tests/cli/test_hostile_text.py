"""Text of users is printed and written without markup, formulas and escape sequences."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from rich.control import strip_control_codes
from rich.table import Table

from scalesearch.cli.main import app
from scalesearch.errors import UserError
from scalesearch.report.figures.style import figure_text, new_figure, save_figure
from scalesearch.report.text_tables import to_csv, to_latex, to_markdown
from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.executors.worker import finish_job
from scalesearch.terminal import (
    CONTROL_CHARACTERS,
    escape_control_characters,
    open_console,
    print_text,
)
from tests.studies.fakes import META, architecture_of, fake_result, make_driver, make_plan
from tests.studies.pages import Page, revise

PARTS = ("$", "$\\frac{", "_", "[/bold]", "[red]", "[link=file:///x]", ":smile:", "\x1b[31m",
         "\x1b]0;title\x07", "\x9b2J", "\r", "\n", "\t", "\x00", "\u202e", "\ud800",
         "=HYPERLINK(\"http://x\")", "@SUM(A1)", "+1", "-1+1", "<script>", "</svg>", "-->", "|",
         "`", "&amp;", "%", "\\", "{x}", "{{ x }}", "日本", "a", " ", "x" * 90, "'", "\"")
TEXTS = st.lists(st.sampled_from(PARTS), min_size=1, max_size=5).map("".join)
WIDTHS = (16, 24, 32)


@settings(max_examples=100)
@given(TEXTS)
def test_terminal_output_has_no_markup_or_control_characters(text):
    console = open_console(width=100)
    table = Table(title=text)
    table.add_column(text)
    table.add_row(text)
    with console.capture() as caught:
        print_text(text, console)
        console.print(table)
    assert not CONTROL_CHARACTERS.search(caught.get())
    assert "".join(caught.get().split()).startswith(
        "".join(escape_control_characters(text).split()))


@settings(max_examples=100)
@given(TEXTS)
def test_csv_cells_are_no_formulas(text):
    # pandas over pyarrow holds nothing else
    assume(text.encode("utf-8", "ignore").decode() == text)
    table = pd.DataFrame({text: [text], "n": [-1.5], "m": ["-3"]})
    lines = to_csv(table)
    assert not CONTROL_CHARACTERS.search(lines)
    cells = pd.read_csv(pd.io.common.StringIO(lines), dtype=str, keep_default_na=False)
    assert cells.iloc[0].tolist()[1:] == ["-1.5", "-3"]
    for cell in (cells.columns[0], cells.iloc[0, 0]):
        assert cell in (escape_control_characters(text),
                        f"'{escape_control_characters(text)}") and (
            cell[0] not in "=+-@\t" or float(cell))
    assert to_markdown(table[[text]]).count("\n") == 2 and "<script" not in to_markdown(
        table[[text]])
    assert len(to_latex(table[[text]]).partition("\\midrule\n")[2].splitlines()) == 3


@pytest.mark.full
@pytest.mark.parametrize("seed", [1, 2])
def test_figures_have_names_unchanged(tmp_path, seed):
    rng = Random(seed)
    texts = ["".join(rng.choices(PARTS, k=rng.randint(1, 4))) for _ in range(20)]
    with new_figure(6, 6) as (figure, (axes,)):
        for index, text in enumerate(texts):
            axes.plot([0, 1], [index, index], label=figure_text(text))
            axes.annotate(figure_text(text), (0, index))
        axes.set_yticks(range(len(texts)), map(figure_text, texts))
        assert len(axes.legend().get_texts()) == sum(bool(figure_text(text)) for text in texts)
    assert isinstance(figure, Figure)
    for file in save_figure(figure, tmp_path / "names"):
        assert file.stat().st_size > 1000
    ElementTree.parse(tmp_path / "names.svg")


def work(reason, folder):
    """Write a result without training; wide candidates fail with ``reason``."""
    def result(place, job):
        width = json.loads((place / "architecture.yaml").read_text())["width"]
        return {"state": "failed", "reason": reason} if width == max(WIDTHS) else fake_result(
            place, job)

    finish_job(Path(folder), result)


def make_study(folder, texts, **changes):
    """Run a study with ``texts`` as name, labels, reason, corpus and signature."""
    name, corpus, reason, *labels = texts
    candidates = [{"width": width, "depth": 2, "kind": "plain"} for width in WIDTHS]
    named = tuple(FixedArchitecture(label, architecture_of(params), params)
                  for label, params in zip(labels, candidates))
    plan = make_plan(3, references=named, seeds=Seeds(1, 0, references=2))
    make_driver(folder, plan, partial(work, reason)).run()
    revise(folder, name=name, data=replace(META.data, name=corpus),
           limits=(escape_control_characters(reason),), **changes)


def call(*arguments):
    """Output of a command, which must succeed or end with an error for users."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(
        result.exception, UserError | SystemExit), result.exception
    assert not CONTROL_CHARACTERS.search(result.output.replace("\r\n", "\n"))
    return result.output


def shown(text):
    """First word of a name on a terminal: rich drops BEL, BS, VT, FF and CR, and wraps lines."""
    words = (escape_control_characters(strip_control_codes(word)) for word in text.split())
    word = next(filter(None, words))
    return word if len(word) < 40 else word[:10]


def through_every_verb(folder, texts):
    study = folder / "one"
    other = folder / "other"
    make_study(study, texts)
    labels = list(texts[3:])
    rules = {"rule " + labels[1]: labels[1:2], labels[2]: labels[2:]}
    make_study(other, texts[::-1][:3] + texts[3:], type="scaling", architectures=tuple(labels),
               base=labels[0], scaling={"base": labels[0], "rules": rules, "held_out": "largest"})
    for verb in ("status", "front", "table"):
        assert shown(texts[0]) in call("study", verb, study) or verb == "table"
        json.loads(call("study", verb, study, "--json"))
    for way in (["--csv"], ["--all"], ["--latex"], ["--latex", "--all"]):
        call("study", "front", study, *way)
    for number in range(len(WIDTHS) + len(labels)):
        json.loads(call("study", "show", study, number, "--json"))
        call("study", "show", study, number)
    call("study", "watch", study, "--once")
    call("study", "repair", study, "--to", folder / "repaired")
    assert shown(labels[0])[:8] in call("study", "scaling", other)  # a narrow column wraps it
    call("study", "plot", study)
    call("study", "compare", study, other, "--to", folder / "figures")
    for folder_of_study in (study, other):
        call("study", "report", folder_of_study)
        assert not Page(folder_of_study / "report.html").problems
    for file in folder.rglob("*.svg"):
        ElementTree.parse(file)
    for file in folder.rglob("*.csv"):
        table = pd.read_csv(file, dtype=str, keep_default_na=False)
        cells = pd.Series([*table.columns, *table.to_numpy().ravel()])
        assert not cells[cells.str.startswith(("=", "@"))].any() and not cells.map(
            CONTROL_CHARACTERS.search).any()


def hostile(seed):
    """Six distinct texts without surrogates."""
    rng = Random(seed)
    parts = [part for part in PARTS if part != "\ud800"]
    return ([f"{number}{''.join(rng.choices(parts, k=4))}" for number in rng.sample(range(10), 4)]
            + [f"{''.join(rng.choices(parts, k=3))}{name}" for name in "ab"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 36))
def test_commands_accept_hostile_names(tmp_path, seed):
    through_every_verb(tmp_path, hostile(seed))


@pytest.mark.full
def test_commands_accept_name_with_markup(tmp_path):
    texts = ["[/bold]", "corpus [red]", "$ [/bold] \x1b[31m \ud800", "a $ label",
             "=HYPERLINK(\"http://x\")", "_hidden"]
    through_every_verb(tmp_path, texts)


@pytest.mark.parametrize("text", ["[/bold]", "$x", "\x1b[2J", ":smile:"])
def test_space_with_any_name_can_be_checked(tmp_path, text):
    file = tmp_path / "space.yaml"
    file.write_text(f"space: {json.dumps(text)}\nwidth: 32 | 64\nencoder.depth: 2\ndecoder.depth: "
                    "1\n")
    assert escape_control_characters(text) in call("check", file, "--samples", "10")
