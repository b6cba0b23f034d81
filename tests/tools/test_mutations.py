"""The mutations of the mutation tests can be applied to the present code."""

from pathlib import Path

import pytest

from tools.mutations import MUTATIONS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.file)
def test_mutation_applies(mutation):
    text = (ROOT / "scalesearch" / mutation.file).read_text()
    assert text.count(mutation.old) == 1
    for path in mutation.tests.split():
        assert (ROOT / "tests" / path).exists(), path
