"""``benchmarks/multi30k.sh`` copies a clone of the dataset and reports missing files."""

import gzip
import subprocess

import pytest

from tests.docs.blocks import ROOT

LINES = {"train": 29000, "val": 1014, "test_2016_flickr": 1000}


@pytest.fixture
def clone(tmp_path):
    for folder in ("raw", "tok"):
        (tmp_path / "clone/data/task1" / folder).mkdir(parents=True)
    for split, count in LINES.items():
        for language in ("en", "de"):
            raw = tmp_path / f"clone/data/task1/raw/{split}.{language}.gz"
            raw.write_bytes(gzip.compress(b"A dog .\n" * count, 1))
            tokenized = raw.parents[1] / f"tok/{split}.lc.norm.tok.{language}"
            tokenized.write_bytes(b"a dog .\n" * count)
    return tmp_path / "clone"


def prepare(*arguments):
    return subprocess.run(["sh", ROOT / "benchmarks/multi30k.sh", *arguments], text=True,
                          capture_output=True, timeout=60)


def test_complete_clone_is_copied_and_checked(clone, tmp_path):
    done = prepare(tmp_path / "data", clone)
    assert done.returncode == 0 and done.stdout == f"export MULTI30K={tmp_path / 'data'}\n"
    assert (tmp_path / "data/val.tok.de").read_text().startswith("a dog")
    assert prepare(tmp_path / "data", tmp_path / "none").returncode == 0  # nothing is missing


def test_missing_files_and_lines_are_reported(clone, tmp_path):
    (clone / "data/task1/raw/val.de.gz").unlink()
    done = prepare(tmp_path / "data", clone)
    assert done.returncode == 1 and "raw/val.de.gz" in done.stderr
    short = clone / "data/task1/raw/val.de.gz"
    short.write_bytes(gzip.compress(b"Ein Hund .\n" * 7))
    done = prepare(tmp_path / "data", clone)
    assert done.returncode == 1 and "has 7 lines, not 1014" in done.stderr
