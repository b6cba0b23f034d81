"""``import scalesearch`` is light, has a dozen names, and keeps its packages importable."""

import inspect
import subprocess
import sys

import pytest

import scalesearch as ss

HEAVY = ("torch", "ray", "optuna", "pandas", "sympy", "msgspec", "numpy", "matplotlib", "rich",
         "yaml", "scipy")


def fresh(code: str) -> str:
    """The output of ``code`` in a new process."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          timeout=300)
    return done.stdout.strip()


def test_import_and_costs_load_no_heavy_package():
    code = (f"import sys, scalesearch as ss\nassert set(ss.__all__) <= set(dir(ss))\n"
            f"print([name for name in {HEAVY} if name in sys.modules])\n"
            "ss.space('transformer').architecture(width=128).cost().to_dict()\n"
            "print([name for name in ('torch', 'ray', 'optuna', 'pandas', 'pydantic', 'matplotlib')"
            " if name in sys.modules])")
    assert fresh(code) == "[]\n[]"


@pytest.mark.full
@pytest.mark.all_instances
@pytest.mark.parametrize("name", ss.__all__)
def test_every_name_exists_in_a_new_process(name):
    output = fresh(f"import scalesearch as ss; print(callable(ss.{name}))")
    assert output == str(name not in ("__version__", "samplers"))


def test_functions_keep_their_signatures():
    assert list(
        inspect.signature(ss.train).parameters)[:4] == ["architecture", "data", "recipe", "out"]


def test_public_names_are_at_most_fifteen():
    assert len(ss.__all__) <= 15
    for module in (ss, ss.samplers):
        with pytest.raises(AttributeError) as caught:
            module.nothing  # noqa: B018
        assert caught.value.name == "nothing"


@pytest.mark.parametrize("name", ["HypervolumeGP", "FrontNeighbors", "RandomSampler",
                                  "GridSampler", "OptunaSamplerAdapter"])
def test_samplers_are_optuna_samplers(name):
    from optuna.samplers import BaseSampler

    assert issubclass(getattr(ss.samplers, name), BaseSampler) and name in dir(ss.samplers)
