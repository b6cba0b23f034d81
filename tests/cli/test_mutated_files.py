"""Mutated input files are read or refused with a message, in bounded time and memory."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalesearch.errors import UserError
from scalesearch.spaces import Space, read_space
from scalesearch.studies.config.reader import read_study
from scalesearch.training.input_files import load_recipe, read_data_spec
from tests.mutated import mutated

ROOT = Path(__file__).parents[2]


def read_and_draw(path: Path) -> None:
    """Read a space, write it, and build one of its networks."""
    space = read_space(path)
    assert Space.parse(space.to_yaml()) == space
    space.architecture(space.sample(random.Random(0)))


READERS = {
    "space": read_and_draw,
    "study": read_study,
    "recipe": lambda path: load_recipe(str(path), ()),
    "data": lambda path: read_data_spec(str(path)),
}
VALID_FILES = {"space": (ROOT / "spaces" / "edge.yaml").read_text(encoding="utf-8"),
         "study": (ROOT / "studies" / "multi30k.yaml").read_text(encoding="utf-8"),
         "recipe": "recipe:\n  preset: quick\n  steps: 500\n  lr: 1e-3\n  warmup: 0\n  schedule: "
         "cosine\n  dropout: 0.1\n",
         "data": "data:\n  source: en\n  target: de\n  train: [one, "
         "two]\n  validation: val\n  test: test\n  vocab: 2k\n"}
NINES = ", ".join(["*a{0}"] * 9)
HOSTILE = {
    "an alias bomb": "a0: &a0 [1]\n"
    + "".join(f"a{n + 1}: &a{n + 1} [{NINES.format(n)}]\n" for n in range(9)),
    "a long line": "train: " + "a" * 10_000_000,
    "many keys": "".join(f"key{n}: 1\n" for n in range(60_000)),
    "many unknown keys": "".join(f"key{n}: 1\n" for n in range(9_000)),
    "deep nesting": "train: " + "[" * 100_000, "deep mappings": "train: " + "{a: " * 20_000,
    "many digits": f"steps: {'9' * 5000}\nvocab: {'9' * 5000}\nwidth: {'9' * 5000}",
    "half a character": 'train: "\\ud800"\nstudy: "\\ud800"\nspace: "\\ud800"',
    "no character": 'train: "\\U99999999"', "a version": f"%YAML {'9' * 5000}.1\n---\ntrain: 1",
    "a tag": "train: !!python/object/apply:os.system [exit 3]\n",
    "a date": "train: 2001-99-99\nsteps: 2001-99-99\n", "a date as a key": "2001-99-99: 1",
    "a list": "- 1\n- 2", "a scalar": "1", "nothing": "\n\n", "two documents": "a: 1\n---\nb: 1",
    "bytes": b"train: \xff\xfe", "a zero byte": b"train: \0"}


def invoke_bounded(kind: str, text: str | bytes, folder: Path) -> str:
    """Code of the error that refuses ``text``, or an empty string."""
    file = folder / "file.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    try:
        READERS[kind](file)
    except UserError as error:
        assert error.code and str(error).encode()
        return error.code
    return ""


@pytest.mark.parametrize("kind", READERS)
def test_unmutated_files_are_valid(kind, tmp_path) -> None:
    assert invoke_bounded(kind, VALID_FILES[kind], tmp_path) == ""


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_refused(name, kind, tmp_path) -> None:
    """These files once led to a traceback, or needed too much memory or time."""
    assert invoke_bounded(kind, HOSTILE[name], tmp_path)


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("path", ["/dev/zero", ".", "nowhere/file.yaml", "zero\0byte", "a" * 5000])
def test_unreadable_file_is_refused(path, kind) -> None:
    with pytest.raises(UserError) as caught:
        READERS[kind](Path(path))
    assert caught.value.code


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("examples", [10, pytest.param(60, marks=pytest.mark.full),
                                      pytest.param(1000, marks=pytest.mark.slow)])
def test_mutated_file_is_read_or_refused(examples, kind, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp(kind)

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(st.one_of(mutated(VALID_FILES[kind]), st.text(max_size=80)))
    def check(text: str) -> None:
        invoke_bounded(kind, text, folder)

    check()
