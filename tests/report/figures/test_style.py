"""Tests of the common style of figures."""

import pytest

from scalesearch.report.figures.style import y_axis_label


@pytest.mark.parametrize(("label", "corpus", "synthetic", "expected"), [
    ("BLEU (validation)", "grammar", True, "BLEU (validation)\non grammar (synthetic)"),
    ("BLEU (validation)", "", False, "BLEU (validation)"),
    ("Tokenized BLEU (validation)", "multi30k en-de (distilled, mixed)", False,
     "Tokenized BLEU (validation)\non multi30k en-de (distilled, mixed)"),
])
def test_y_axis_label_is_wrapped(label, corpus, synthetic, expected):
    assert y_axis_label(label, corpus, synthetic) == expected
