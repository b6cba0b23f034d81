"""The mutations of the mutation tests can be applied to the present code."""

from pathlib import Path

from tools.mutations import MUTATIONS

ROOT = Path(__file__).resolve().parents[2]


def test_every_mutation_applies():
    stale = [mutation for mutation in MUTATIONS
             if (ROOT / "scalesearch" / mutation.file).read_text().count(mutation.old) != 1]
    assert not stale
    assert all((ROOT / "tests" / path).exists()
               for mutation in MUTATIONS for path in mutation.tests.split())
