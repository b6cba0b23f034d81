"""The built-in corpus: 50,000 synthetic English-German-like sentence pairs, and 500 each to validate and test on.

The file beside this module was written by ``python -m tools.grammar`` of the source repository,
whose grammar makes what is hard about translating into German: case and agreement, verb-second and
verb-final order, separable verbs, compounds, words that only their context tells apart. Scores on
it compare architectures and say nothing of real text.
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
    """The first ``pairs`` (source, target) sentences to train on, and all of the other two splits.

    A line of the file is a source and its target with a tab between: those of valid, of test, then
    of train. No more of it is unpacked than is asked for.

    Raises:
        UserError: the file is not the one that this version came with.
    """
    with io.TextIOWrapper(lzma.open(io.BytesIO(_packed_bytes())), encoding="utf-8",
                          newline="\n") as lines:
        rows = (tuple(line.rstrip("\n").split("\t")) for line in lines)
        valid = list(islice(rows, HELD_OUT_PAIRS))
        test = list(islice(rows, HELD_OUT_PAIRS))
        return {"train": list(islice(rows, pairs)), "valid": valid, "test": test}


def _packed_bytes() -> bytes:
    """The file as it was shipped."""
    content = GRAMMAR_FILE.read_bytes() if GRAMMAR_FILE.is_file() else b""
    if hashlib.sha256(content).hexdigest() != GRAMMAR_SHA256:
        raise UserError(f"data: builtin: {GRAMMAR_FILE} is missing or is not the file that this "
                        "version of scalesearch came with; install scalesearch again",
                        key="data.builtin", code="builtin-data-damaged")
    return content
