"""What figures have in common."""

import pytest

from scalesearch.report.figures.style import y_axis_label


@pytest.mark.parametrize(("what", "corpus", "synthetic", "words"), [
    ("BLEU (validation)", "grammar", True, "BLEU (validation)\non grammar (synthetic)"),
    ("BLEU (validation)", "", False, "BLEU (validation)"),
    ("Tokenized BLEU (validation)", "multi30k en-de (distilled, mixed)", False,
     "Tokenized BLEU (validation)\non multi30k en-de (distilled, mixed)"),
])
def test_an_upright_axis_is_labeled_in_lines_that_fit_along_it(what, corpus, synthetic, words):
    assert y_axis_label(what, corpus, synthetic) == words
