"""Fixtures that several folders use; other helpers are in modules next to this file.

``architectures`` has configurations, ``corpora`` small texts, ``processes`` commands and processes.
Below ``study``, ``fakes`` has drivers without training, ``event_study`` studies written by hand,
and ``noisy`` scores with noise.
"""

import ctypes
import gc
import hashlib
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import matplotlib
import pytest

from scalesearch.studies.executors.ray_environment import prepare_environment
from tests.corpora import write_text
from tests.parts import PARTS, part_of

# before PyTorch is loaded, and for every process that tests start
os.environ["OMP_NUM_THREADS"] = "1"
# oneDNN keeps a compiled kernel for each shape of a product, by default 1,024: decoding, whose
# shapes change with every step, filled half a gigabyte per worker
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
prepare_environment(None)  # before a test imports Ray
# a process with another cache folder would read all fonts of the machine
os.environ.setdefault("MPLCONFIGDIR", matplotlib.get_cachedir())
# no test survives a power failure, and a disk that others write to takes milliseconds to sync
os.fsync = lambda descriptor: None
# no forecast of studies, except in tests of forecasts
os.environ["SCALESEARCH_MEASURE"] = "0"
# no test depends on the speed of the machine
hypothesis.settings.register_profile("tests", deadline=None,
                                     suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("tests")


FAST_EXAMPLES = 10  # of each hypothesis test in `make test`, at most
# of extras that `make test` does not install
PACKAGES_OF_CI = ("transformers", "mlflow", "tensorboard", "optuna_dashboard", "mcp", "playwright")
ONLY_IN_TEST_ALL = ("full", "ray", "browser")  # markers of tests that `make test` leaves out


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `make test` and `make test-all`."""
    parser.addoption("--fast", action="store_true",
                     help=f"skip tests marked {', '.join(ONLY_IN_TEST_ALL)}, and run one instance "
                          "of each parametrized test")
    parser.addoption("--instances", type=int, metavar="N",
                     help="run at most N instances of each parametrized test that --fast skips, "
                          "unless it is marked all_instances")
    parser.addoption("--instances-seed", default="0", metavar="SEED",
                     help="which instances --fast and --instances run")
    parser.addoption("--write-json-keys", action="store_true",
                     help="add the keys that commands print with --json to tests/json_keys.toml")
    parser.addoption("--part", type=int, choices=range(1, len(PARTS) + 1), metavar="I",
                     help=f"run the tests of one of {len(PARTS)} parts of the folders")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --part, leave out the folders of other parts, without importing them."""
    part = config.getoption("--part")
    if part is None or collection_path.is_dir():
        return None
    return part_of(collection_path.relative_to(Path(__file__).parent).as_posix()) != part or None


def pytest_configure(config: pytest.Config) -> None:
    """With --fast, use the kernels of a machine with AVX2, and only packages of `make test`.

    With AVX-512, oneDNN compiles kernels of bf16 for every shape and keeps them, which took up to
    half a gigabyte per worker and a quarter of the time of training.
    """
    if config.getoption("--fast"):
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
        sys.modules.update(dict.fromkeys(PACKAGES_OF_CI))  # imports fail


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --fast and --instances, deselect all but some instances of tests; see their help."""
    is_fast = config.getoption("--fast")
    max_instances = 1 if is_fast else config.getoption("--instances")
    if max_instances is None:
        return
    seed = config.getoption("--instances-seed")
    instances: dict[str, list[pytest.Item]] = defaultdict(list)
    selected: set[pytest.Item] = set()
    for item in items:
        is_slow = any(map(item.get_closest_marker, ONLY_IN_TEST_ALL))
        if is_fast and is_slow:
            continue
        if is_fast or (is_slow and not item.get_closest_marker("all_instances")):
            instances[item.nodeid.partition("[")[0]].append(item)
        else:
            selected.add(item)
    for group in instances.values():
        selected.update(sorted(group, key=lambda item: hashlib.md5(
            f"{seed} {item.nodeid}".encode()).digest())[:max_instances])
    config.hook.pytest_deselected(items=[item for item in items if item not in selected])
    items[:] = [item for item in items if item in selected]
    for item in items if is_fast else ():
        test = getattr(item, "obj", None)
        settings = getattr(test, "_hypothesis_internal_use_settings", None)
        if settings is not None and settings.max_examples > FAST_EXAMPLES:
            test._hypothesis_internal_use_settings = hypothesis.settings(
                settings, max_examples=FAST_EXAMPLES)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter,
                            config: pytest.Config) -> None:
    """With --instances, print how to run the same instances again."""
    if count := config.getoption("--instances"):
        terminalreporter.write_line(f"Instances of slow tests: --instances {count} "
                                    f"--instances-seed {config.getoption('--instances-seed')}")


def pytest_collection_finish(session: pytest.Session) -> None:
    """With --fast, collect garbage rarely, and skip what is imported: it stays until the end."""
    if session.config.getoption("--fast"):
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)


@pytest.fixture(autouse=True)
def return_freed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return freed memory to the system, unlike training, which keeps it for its next update.

    Otherwise the heap of a worker grows with every test that decodes.
    """
    monkeypatch.setattr("scalesearch.training.hardware._keep_freed_memory", lambda: None)


checked_models: set[tuple[str, int]] = set()  # blocks and vocabulary sizes


@pytest.fixture(autouse=True)
def check_causality_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the causality of an architecture once per process, not before every training run."""
    from scalesearch.nn.causality import check_causality

    def check_new(model: Any, vocab: int) -> None:
        key = repr(model.block), vocab
        if key not in checked_models:
            check_causality(model, vocab)
            checked_models.add(key)

    monkeypatch.setattr("scalesearch.training.run.check_causality", check_new)


@pytest.fixture(autouse=True, scope="module")
def trim_heap() -> Iterator[None]:
    """Return memory that the tests of a file have freed to the system, with glibc."""
    yield
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a text, the working directory of a module's tests; see ``corpora.DATA``."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("text")
        write_text(folder)
        patch.chdir(folder)
        yield folder


@pytest.fixture
def event_study(tmp_path: Path) -> Any:
    """A study whose events the test writes."""
    from tests.studies.event_study import EventStudy

    return EventStudy(tmp_path / "study")
