"""Blocks of the guides run one by one."""

import subprocess
import sys

import pytest

from tests.docs.blocks import ROOT, WALK, blocks

GUIDES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "guides").glob("*.md")
                if str(path.relative_to(ROOT)) not in WALK)


def runs():
    return [pytest.param(block, id=f"{guide}:{block.line}") for guide in GUIDES
            for block in blocks(guide) if block.mark == "run" and block.language == "python"]


@pytest.mark.full
@pytest.mark.parametrize("block", runs())
def test_blocks_of_guides_run(block, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = subprocess.run([sys.executable, "-c", block.text], cwd=tmp_path, capture_output=True,
                          text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"True"}  # what each block finds out about itself


def test_blocks_of_guides_have_marks():
    blocks_found = [(guide, block) for guide in GUIDES for block in blocks(guide)]
    assert blocks_found and all(
        block.mark.partition(":")[0] in ("run", "no run") for _, block in blocks_found
    )
