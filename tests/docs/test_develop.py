"""Files and Python blocks of the pages for developers run in an empty folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks

PAGES = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs/develop").glob("*.md"))


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_page_run(page: str, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
                                "OMP_NUM_THREADS": "1"}
    for block in blocks(page):
        if block.mark.startswith("file:"):
            (tmp_path / block.mark.removeprefix("file:").strip()).write_text(
                block.text, encoding="utf-8")
        elif block.mark == "run" and block.language == "python":
            done = subprocess.run([sys.executable, "-c", block.text], cwd=tmp_path, env=environment,
                                  capture_output=True, text=True, timeout=900)
            assert done.returncode == 0, f"{page}:{block.line}\n{done.stderr}"
