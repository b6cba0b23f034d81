"""``import scalesearch`` is light, gives a dozen names, and leaves its packages what they are."""

import inspect
import subprocess
import sys

import pytest

import scalesearch as ss

HEAVY = ("torch", "ray", "optuna", "pandas", "sympy", "msgspec", "numpy", "matplotlib", "rich",
         "yaml", "scipy")


def fresh(code: str) -> str:
    """What ``code`` prints in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          timeout=300)
    return done.stdout.strip()


def test_the_import_loads_nothing_heavy():
    assert fresh(f"import sys, scalesearch; print([name for name in {HEAVY} if name in "
                 "sys.modules])") == "[]"


def test_a_space_and_its_costs_load_nothing_that_trains():
    code = ("import sys, scalesearch as ss; "
            "ss.space('transformer').architecture(width=128).cost().to_dict()\nprint([name for "
            "name in ('torch', 'ray', 'optuna', 'pandas', 'pydantic', 'matplotlib') if name in sys.modules])")
    assert fresh(code) == "[]"


@pytest.mark.parametrize("name", ss.__all__)
def test_every_name_is_there_in_a_fresh_process(name):
    found = fresh(
        f"import scalesearch as ss; print({name!r} in dir(ss), callable(ss.{name}))").split()
    assert found == ["True", str(name not in ("__version__", "samplers"))]


@pytest.mark.full
@pytest.mark.parametrize("name", ["space", "study", "train"])
def test_packages_are_called_and_stay_packages(name):
    """Whichever comes first: the package, something within it, or the call."""
    code = ("import scalesearch as ss, types, inspect\n{first}\n"
            f"front = ss.{name}\nprint(callable(front), isinstance(front, types.ModuleType), "
            "len(inspect.signature(front).parameters) > 0)")
    for first in ("", f"import scalesearch.{name}",
                  "import scalesearch.study.config, scalesearch.train.training"):
        assert fresh(code.format(first=first)) == "True True True"


def test_a_call_has_the_signature_of_its_function():
    assert list(
        inspect.signature(ss.train).parameters)[:4] == ["architecture", "data", "recipe", "out"]
    from scalesearch.space import Space

    assert ss.space.Space is Space


def test_there_are_about_a_dozen_names_and_no_other():
    assert len(ss.__all__) <= 14
    for module in (ss, ss.samplers):
        with pytest.raises(AttributeError) as caught:
            module.nothing  # noqa: B018
        assert caught.value.name == "nothing"


@pytest.mark.parametrize("name", ["HypervolumeGP", 
    "FrontNeighbors", "RandomSampler", "GridSampler", "OptunaSamplerAdapter"])
def test_samplers_are_those_of_optuna(name):
    from optuna.samplers import BaseSampler

    assert issubclass(getattr(ss.samplers, name), BaseSampler)
