"""CPU time of every test, processes it has waited for included: ``pytest -p tools.cpu_times --cpu=45``.

Wall-clock time on a shared machine says little. A fixture's time counts for the first test that
needs it.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

KEY = "cpu seconds"
TIMES = pytest.StashKey[dict[str, float]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--cpu``."""
    parser.addoption("--cpu", type=int, default=45, metavar="N",
                     help="show the N tests of most CPU time")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measures a test, its fixtures included, from the end of the one before."""
    start = _spent()
    result = yield
    item.config.stash.setdefault(TIMES, {})[item.nodeid] = _spent() - start
    return result


def _spent() -> float:
    return sum(os.times()[:4])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hands the times of a process of pytest-xdist to the one that prints them."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[KEY] = session.config.stash.get(TIMES, {})


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node: Any) -> None:
    """Collects them there."""
    node.config.stash.setdefault(TIMES, {}).update(getattr(node, "workeroutput", {}).get(KEY, {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Prints the sum, each folder's, and the slowest."""
    times = config.stash.get(TIMES, {})
    folders: dict[str, float] = {}
    for name, seconds in times.items():
        folder = os.path.dirname(name.partition("::")[0])
        folders[folder] = folders.get(folder, 0.0) + seconds
    terminalreporter.section(f"CPU: {sum(times.values()):.1f} s of {len(times)} tests")
    for found, count in ((folders, len(folders)), (times, config.getoption("--cpu"))):
        for name, seconds in sorted(found.items(), key=lambda item: -item[1])[:count]:
            terminalreporter.write_line(f"{seconds:8.2f}  {name}")
