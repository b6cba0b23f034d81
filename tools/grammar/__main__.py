"""Writes a corpus of the grammar.

    python -m tools.grammar                                      the package's built-in corpus
    python -m tools.grammar FOLDER --pairs 200000 --seed 7       text files for a data file of one's own
"""

import argparse
import hashlib
import lzma
from collections.abc import Iterable
from pathlib import Path

from scalesearch.data.sources import GRAMMAR_FILE, HELD_OUT_PAIRS
from scalesearch.data.spec import MAX_PAIRS

from . import generate


def corpus_lines(pairs: int = MAX_PAIRS) -> bytes:
    """The lines of the built-in corpus, before they are compressed: valid, test, then ``pairs`` of train."""
    corpus = generate(pairs=pairs, valid=HELD_OUT_PAIRS, test=HELD_OUT_PAIRS)
    return _lines("\t".join(pair) for split in ("valid", "test", "train") for pair in corpus[split])


def write_text(folder: Path, pairs: int, seed: int) -> None:
    """Writes ``train``, ``valid`` and ``test``, each with the endings ``.en`` and ``.de``, into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, sentences in generate(seed, pairs).items():
        for ending, side in zip(("en", "de"), zip(*sentences)):
            (folder / f"{split}.{ending}").write_bytes(_lines(side))


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.grammar", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="where to write text files")
    parser.add_argument("--pairs", type=int, default=MAX_PAIRS,
                        help="training pairs of the text files (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the text files (%(default)s)")
    given = parser.parse_args()
    if given.folder is not None:
        write_text(given.folder, given.pairs, given.seed)
        return
    content = lzma.compress(corpus_lines(), preset=9)
    GRAMMAR_FILE.write_bytes(content)
    print(f"{GRAMMAR_FILE}: {len(content):,} bytes; scalesearch/data/sources.py has to say\n"
          f'SHA256 = "{hashlib.sha256(content).hexdigest()}"')


if __name__ == "__main__":
    main()
