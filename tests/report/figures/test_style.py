"""Tests of the common style of figures."""

import pytest

from scalesearch.report.figures.style import (
    PAPER_WIDTH,
    fixed_size_panel,
    new_figure,
    paper_style,
    y_axis_label,
)


@pytest.mark.parametrize(("label", "corpus", "synthetic", "expected"), [
    ("BLEU (validation)", "grammar", True, "BLEU (validation)\non grammar (synthetic)"),
    ("BLEU (validation)", "", False, "BLEU (validation)"),
    ("Tokenized BLEU (validation)", "multi30k en-de (distilled, mixed)", False,
     "Tokenized BLEU (validation)\non multi30k en-de (distilled, mixed)"),
    ("BLEU (validation)", "n" * 70, True, f"BLEU (validation)\non {'n' * 20}… (synthetic)"),
])
def test_y_axis_label_is_wrapped(label, corpus, synthetic, expected):
    assert y_axis_label(label, corpus, synthetic) == expected


@pytest.mark.parametrize("panels", [1, 2])
def test_figures_of_papers_have_the_width_of_a_column(panels):
    with paper_style():
        with new_figure(4.4 * panels, 3.4, columns=panels) as (figure, axes):
            assert figure.get_figwidth() == PAPER_WIDTH and len(axes) == panels
            assert {ax.get_gridspec().ncols for ax in axes} == {1}
            assert axes[0].xaxis.label.get_fontsize() == 7
        with fixed_size_panel() as (figure, _):
            assert figure.get_figwidth() == PAPER_WIDTH
    with new_figure(4.4, 3.4) as (figure, _):
        assert figure.get_figwidth() == 4.4
