"""Where the package came from decides how an extra is installed."""

import json
from types import SimpleNamespace

import pytest

from scalesearch import library
from tests.errors import refuses


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Makes an installed package of a folder without a source checkout beside it."""
    monkeypatch.setattr(library, "files", lambda name: tmp_path / "site-packages" / name)

    def come_from(url):
        told = SimpleNamespace(read_text=lambda name: json.dumps({"url": url}) if url else None)
        monkeypatch.setattr(library, "distribution", lambda name: told)

    return come_from


def test_a_checkout_is_installed_from_its_folder():
    folder = library.library_folder("spaces").parent
    assert library.install_command("study") == f"pip install '{folder}[study]'"


def test_a_wheel_or_a_folder_that_is_still_there_is_named(installed, tmp_path):
    wheel = tmp_path / "a b" / "scalesearch.whl"
    wheel.parent.mkdir()
    wheel.touch()
    installed(wheel.as_uri())
    assert library.install_command("gp") == f"pip install '{wheel}[gp]'"
    wheel.unlink()
    assert library.install_command("gp") == "pip install 'scalesearch[gp]'"


def test_from_an_index_its_name_is_enough(installed):
    installed(None)
    assert library.install_command("study") == "pip install 'scalesearch[study]'"


def test_a_file_of_ones_own_comes_before_a_shipped_one_of_its_name(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert library.find_file("quick", "studies") == library.library_folder("studies") / "quick.yaml"
    (tmp_path / "quick.yaml").touch()
    assert library.find_file("quick", "studies") == library.Path("quick.yaml")
    with refuses("no-such-file", "nothing"):
        library.find_file("nothing", "studies")
