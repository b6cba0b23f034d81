"""Shipped files, and the command that installs an extra from the package's source."""

import json
from types import SimpleNamespace

import pytest

from scalesearch import library
from tests.errors import refuses


@pytest.fixture
def install_from_url(monkeypatch, tmp_path):
    """Simulate a package that is installed from a URL, without a source checkout."""
    monkeypatch.setattr(library, "files", lambda name: tmp_path / "site-packages" / name)

    def install_from(url):
        metadata = SimpleNamespace(read_text=lambda name: json.dumps({"url": url}) if url else None)
        monkeypatch.setattr(library, "distribution", lambda name: metadata)

    return install_from


def test_install_command_of_a_checkout_names_its_folder():
    folder = library.library_folder("spaces").parent
    assert library.install_command("study") == f"pip install '{folder}[study]'"


def test_install_command_names_an_existing_wheel(install_from_url, tmp_path):
    wheel = tmp_path / "a b" / "scalesearch.whl"
    wheel.parent.mkdir()
    wheel.touch()
    install_from_url(wheel.as_uri())
    assert library.install_command("gp") == f"pip install '{wheel}[gp]'"
    wheel.unlink()
    assert library.install_command("gp") == "pip install 'scalesearch[gp]'"


def test_install_command_from_an_index_names_the_package(install_from_url):
    install_from_url(None)
    assert library.install_command("study") == "pip install 'scalesearch[study]'"


def test_local_file_has_precedence_over_shipped_file(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    library.Path("quick").mkdir()  # a folder does not hide a shipped file
    library.Path("mine").mkdir()
    assert library.find_file("quick", "studies") == library.library_folder("studies") / "quick.yaml"
    assert library.find_file("mine", "studies") == library.Path("mine")
    (tmp_path / "quick.yaml").touch()
    assert library.find_file("quick", "studies") == library.Path("quick.yaml")
    for name in ("nothing", "runs/nothing", "qick"):  # only a name without similar ones
        with refuses("no-such-file", name) as caught:
            library.find_file(name, "studies")
        assert ("scaling-grammar" in str(caught.value)) == (name == "nothing")


def test_missing_file_is_refused_with_the_nearest_name(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").touch()
    for name, suggestion in (("mine.yml", "mine.yaml"), ("quikc", "quick")):
        with refuses("no-such-file", f"{suggestion}?"):
            library.find_file(name, "studies")
    for name in ("nope.yaml", f"{tmp_path}/nope.yaml"):  # the stems differ
        with refuses("no-such-file") as caught:
            library.find_file(name, "studies")
        assert "mine" not in str(caught.value)
