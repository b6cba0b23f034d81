"""The flagship's model as it is committed: what its page says of it, and that it translates."""

import json
import re

import pytest

from scalesearch.library import find_file
from scalesearch.space.space import read_space
from tests.docs.blocks import ROOT

FOLDER = ROOT / "docs" / "flagship-int8"


def test_its_size_and_architecture_are_those_of_the_page():
    said = json.loads((FOLDER / "artifact.json").read_text("utf-8"))
    page = (ROOT / "docs" / "flagship.md").read_text("utf-8")
    assert f"{sum(said['bytes'].values()):,} bytes" in page
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 2_000_000
    found = read_space(find_file("found/plain-1.28m", "spaces")).single_architecture()
    assert said["provenance"][
        "architecture"] == found.id and f"{said['provenance']['costs']['params.total']:,}" in page


def test_it_translates_as_on_the_page():
    pytest.importorskip("ctranslate2")
    import scalesearch as ss

    page = (ROOT / "docs" / "flagship.md").read_text("utf-8")
    [(source, target)] = re.findall(
        r'\$ echo "(.*)" \| scalesearch translate docs/flagship-int8\n(.*)\n', page)
    assert ss.load(FOLDER).translate(source) == [target]
