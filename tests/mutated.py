"""Texts with a few random changes, and what may be at the place of a file, for tests of readers."""

import os
from pathlib import Path
from random import Random

from hypothesis import strategies as st

SIGNS = [*"|=:*&-#{}[]()'\"<>.,%!?@`\\ \n\t0i~", "\x85", "\u2028", "漢", "\x07", "\ufeff", "..",
         "**", "//"]
WORDS = [" if ", " else ", "- ", ": ", "one of", "<<: ", "&ffn ", "*ffn", "= ", "---\n", "null",
         "1e999", "width"]
YAML = ["2001-99-99", "!!python/name:os.system ", '"\\U99999999"', '"\\ud800"', "9" * 5000,
        "[" * 99, "%YAML 9.9\n"]
PIECES = st.sampled_from([*SIGNS, *WORDS, *YAML, "cycle(", "not ", "10M", "\r", ".nan", "-.inf",
                          "0x1F", "1:30"])


@st.composite
def mutated(draw, text):
    """``text`` with one to four random changes."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 0, 1, 2, 5, 30])))
        text = text[:start] + draw(st.one_of(PIECES, st.just(""), st.text(max_size=3))) + text[end:]
    return text


def place_something_else(file: Path, rng: Random) -> None:
    """Replace a file by a folder, a pipe, or a link to a device, to nothing or to itself."""
    file.unlink(missing_ok=True)
    match rng.choice(("folder", "pipe", "/dev/zero", "/dev/null", "nowhere", file.name)):
        case "folder":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
        case target:
            file.symlink_to(target)
