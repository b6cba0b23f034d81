"""CPU time of every test: ``pytest -p tools.cpu_times --cpu=45``.

Wall-clock time is not meaningful on a shared machine. Processes that a test has waited for are
included. The time of a fixture counts for the first test that needs it.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

KEY = "cpu seconds"
TIMES = pytest.StashKey[dict[str, float]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--cpu``."""
    parser.addoption("--cpu", type=int, default=45, metavar="N",
                     help="show the N tests with the most CPU time")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure a test and its fixtures."""
    start = _spent()
    result = yield
    item.config.stash.setdefault(TIMES, {})[item.nodeid] = _spent() - start
    return result


def _spent() -> float:
    return sum(os.times()[:4])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the times of a worker of pytest-xdist to the main process."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[KEY] = session.config.stash.get(TIMES, {})


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node: Any) -> None:
    """Collect the times in the main process."""
    node.config.stash.setdefault(TIMES, {}).update(getattr(node, "workeroutput", {}).get(KEY, {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the total time, the time per folder, and the slowest tests."""
    times = config.stash.get(TIMES, {})
    folders: dict[str, float] = {}
    for name, seconds in times.items():
        folder = os.path.dirname(name.partition("::")[0])
        folders[folder] = folders.get(folder, 0.0) + seconds
    terminalreporter.section(f"CPU: {sum(times.values()):.1f} s of {len(times)} tests")
    for seconds_by_name, count in ((folders, len(folders)), (times, config.getoption("--cpu"))):
        slowest = sorted(seconds_by_name.items(), key=lambda item: -item[1])
        for name, seconds in slowest[:count]:
            terminalreporter.write_line(f"{seconds:8.2f}  {name}")
