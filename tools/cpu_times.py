"""CPU time of every test and memory of every worker: ``pytest -p tools.cpu_times --cpu=45``.

Wall-clock time is not meaningful on a shared machine. Processes that a test has waited for are
included in the CPU time. The cost of a fixture counts for the first test that needs it.
"""

import os
import resource
from collections.abc import Iterator
from typing import Any

import pytest

CPU_SECONDS = "CPU seconds"  # per test
PEAK_MEGABYTES = "peak MB"  # per worker
GROWTH_MEGABYTES = "growth MB"  # of the peak of its worker, per test
FIGURES = pytest.StashKey[dict[str, dict[str, float]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--cpu``."""
    parser.addoption("--cpu", type=int, default=45, metavar="N",
                     help="show the N tests with the most CPU time and with the most memory")


def pytest_configure(config: pytest.Config) -> None:
    """Start without figures."""
    config.stash[FIGURES] = {CPU_SECONDS: {}, PEAK_MEGABYTES: {}, GROWTH_MEGABYTES: {}}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure a test and its fixtures."""
    figures = item.config.stash[FIGURES]
    seconds = sum(os.times()[:4])
    peak = _peak_megabytes()
    result = yield
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    figures[CPU_SECONDS][item.nodeid] = sum(os.times()[:4]) - seconds
    figures[GROWTH_MEGABYTES][item.nodeid] = _peak_megabytes() - peak
    # tests of memory reset the peak
    figures[PEAK_MEGABYTES][worker] = max(figures[PEAK_MEGABYTES].get(worker, 0.0), peak,
                                          _peak_megabytes())
    return result


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the figures of a worker of pytest-xdist to the main process."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["figures"] = session.config.stash[FIGURES]


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node: Any) -> None:
    """Collect the figures in the main process."""
    received = getattr(node, "workeroutput", {}).get("figures", {})
    for name, figures in received.items():
        node.config.stash[FIGURES][name].update(figures)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the totals per folder, the slowest and largest tests, and the peak of every worker."""
    figures = config.stash[FIGURES]
    seconds = figures[CPU_SECONDS]
    folders: dict[str, float] = {}
    for name, value in seconds.items():
        folder = os.path.dirname(name.partition("::")[0])
        folders[folder] = folders.get(folder, 0.0) + value
    count = config.getoption("--cpu")
    tables = {
        f"CPU: {sum(seconds.values()):.1f} s of {len(seconds)} tests": (folders, len(folders)),
        "CPU seconds of tests": (seconds, count),
        "MB by which tests raised the peak of their worker": (figures[GROWTH_MEGABYTES], count),
        "Peak MB of workers": (figures[PEAK_MEGABYTES], len(figures[PEAK_MEGABYTES])),
    }
    for title, (values, shown) in tables.items():
        terminalreporter.section(title)
        for name, value in sorted(values.items(), key=lambda item: -item[1])[:shown]:
            terminalreporter.write_line(f"{value:8.2f}  {name}")
