"""The site builds without warnings, and its generated pages are current."""

import subprocess
import sys

import pytest

from tests.docs.blocks import ROOT
from tools.figures import hand_written_words
from tools.pages import stale

README_WORDS = 800
ALL_WORDS = 33_000  # README, CONTRIBUTING and hand-written pages of the site


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


def test_documentation_is_short():
    words = hand_written_words({file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8")
                                for file in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))})
    assert words["README.md"] <= README_WORDS
    assert sum(words.values()) <= ALL_WORDS
