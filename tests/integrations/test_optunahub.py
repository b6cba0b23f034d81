"""The sampler as OptunaHub takes it: its files, its front matter, and that its example runs."""

import importlib.util
import re
import runpy
import sys
from types import SimpleNamespace

import yaml

from tests.docs.blocks import ROOT

REGISTRY = ROOT / "integrations/optunahub/package"
PACKAGE = REGISTRY / "samplers/exact_cost_bayes"


def load_module(package, **_):
    """Stands for optunahub's, which fetches from its registry: what it makes of a folder there."""
    spec = importlib.util.spec_from_file_location(
        package.replace("/", "_"), REGISTRY / package / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_package_has_the_files_and_front_matter_of_the_template():
    assert {file.name for file in PACKAGE.iterdir()} >= {
        "__init__.py", "README.md", "LICENSE", "example.py"}
    _, matter, text = (PACKAGE / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert set(yaml.safe_load(matter)) == {"author", "title", "description", "tags",
                                           "optuna_versions", "license"}
    assert all(f"## {heading}" in text
               for heading in ("Abstract", "APIs", "Installation", "Example"))


def test_readme_describes_all_names():
    text = (PACKAGE / "README.md").read_text(encoding="utf-8")
    module = load_module("samplers/exact_cost_bayes")
    assert re.findall(r"^- `(\w+)", text, re.MULTILINE) == module.__all__


def test_example_meets_the_limit(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optunahub", SimpleNamespace(load_module=load_module))
    namespace = runpy.run_path(str(PACKAGE / "example.py"), run_name="__main__")
    sizes = [namespace["cost"](trial.params) for trial in namespace["study"].trials[6:]]
    assert len(capsys.readouterr().out.splitlines()) > 2 and max(sizes) <= namespace["LIMIT"]
