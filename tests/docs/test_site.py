"""The site builds without warnings, and its generated pages are current."""

import subprocess
import sys

import pytest

from tests.docs.blocks import ROOT
from tools.pages import stale

WORDS = 800


@pytest.mark.full
def test_site_builds_without_warnings(tmp_path):
    """Links, headings and images are valid, and each page is in a table of contents."""
    pytest.importorskip("myst_parser")
    pytest.importorskip("furo")
    done = subprocess.run([sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs",
                           tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "scalesearch" in (tmp_path / "index.html").read_text(encoding="utf-8")


@pytest.mark.full
def test_generated_pages_are_current():
    assert stale() == [], "run `python tools/pages.py` and commit docs"


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= WORDS
