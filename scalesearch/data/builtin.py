"""Built-in corpus: 50,000 synthetic English-German-like training pairs.

Validation and test have 500 pairs each. ``python -m tools.grammar`` in the source repository
writes the data file. Its grammar has features that make translation into German hard: case and
agreement, verb-second and verb-final order, separable verbs, compounds, and words that only their
context disambiguates. Scores compare architectures; they do not predict scores on real text.
"""

import hashlib
import io
import lzma
from itertools import islice
from pathlib import Path

from scalesearch.errors import UserError

GRAMMAR_FILE = Path(__file__).with_name("grammar.tsv.xz")
GRAMMAR_SHA256 = "6f782d5a91f7736d47fec2246c4556c718d53b4c827ab973579f1e8f3ce13fd4"
HELD_OUT_PAIRS = 500
MAX_PAIRS = 50_000

SentencePairs = list[tuple[str, str]]


def read_builtin(pairs: int) -> dict[str, SentencePairs]:
    """Read the first ``pairs`` training pairs, and all validation and test pairs.

    A line of the file is a source and its target, separated by a tab. The validation pairs come
    first, then the test pairs, then the training pairs. Only the part that is needed is unpacked.

    Raises:
        UserError: the file is missing, or differs from the file of this version.
    """
    packed = io.BytesIO(_packed_bytes())
    with io.TextIOWrapper(lzma.open(packed), encoding="utf-8", newline="\n") as lines:
        rows = (tuple(line.rstrip("\n").split("\t")) for line in lines)
        validation = list(islice(rows, HELD_OUT_PAIRS))
        test = list(islice(rows, HELD_OUT_PAIRS))
        return {"train": list(islice(rows, pairs)), "validation": validation, "test": test}


def _packed_bytes() -> bytes:
    """Read the packed file and check its hash."""
    content = GRAMMAR_FILE.read_bytes() if GRAMMAR_FILE.is_file() else b""
    if hashlib.sha256(content).hexdigest() != GRAMMAR_SHA256:
        raise UserError(
            f"data: builtin: {GRAMMAR_FILE} is missing or is not the file of this version of "
            "scalesearch; reinstall scalesearch",
            key="data.builtin",
            code="builtin-data-damaged",
        )
    return content
