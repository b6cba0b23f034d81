"""The committed flagship model: size, architecture and translation of its page."""

import json
import re

import pytest

from scalesearch.library import find_file
from scalesearch.spaces.space import read_space
from tests.docs.blocks import ROOT

FOLDER = ROOT / "docs" / "flagship-int8"


def test_size_and_architecture_match_the_page():
    artifact = json.loads((FOLDER / "artifact.json").read_text("utf-8"))
    page = (ROOT / "docs" / "results" / "flagship.md").read_text("utf-8")
    assert f"{sum(artifact['bytes'].values()):,} bytes" in page
    assert f"({artifact['folder_bytes']:,} with tokenizer" in page
    assert artifact["folder_bytes"] == sum(file.stat().st_size for file in FOLDER.iterdir()
                                           if file.name != "artifact.json")
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 2_000_000
    architecture = read_space(find_file("found/plain-1.28m", "spaces")).single_architecture()
    assert (
        artifact["provenance"]["architecture"] == architecture.id
        and f"{artifact['provenance']['costs']['params.total']:,}" in page
    )


def test_translation_matches_the_page():
    pytest.importorskip("ctranslate2")
    import scalesearch as ss

    page = (ROOT / "docs" / "results" / "flagship.md").read_text("utf-8")
    [(source, target)] = re.findall(
        r'\$ echo "(.*)" \| scalesearch translate docs/flagship-int8\n(.*)\n', page)
    assert ss.load(FOLDER).translate(source) == [target]
