"""Messages of errors: golden/NAME.yaml gives the message golden/NAME.txt."""

from pathlib import Path

import pytest

from scalesearch.spaces import ConfigError, Space, read_space
from scalesearch.spaces.syntax.diagnostics import SourceText
from tests.errors import refuses
from tests.spaces.small import SMALL, small

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.yaml"))


def message(text, name="space.yaml"):
    with pytest.raises(ConfigError) as caught:
        small(text, name)
    return str(caught.value) + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_message_equals_golden_file(name):
    text = (GOLDEN / f"{name}.yaml").read_text(encoding="utf-8")
    assert message(text) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_positions_are_ordered_and_within_their_lines(name):
    with pytest.raises(ConfigError) as caught:
        small((GOLDEN / f"{name}.yaml").read_text(encoding="utf-8"))
    orders = [problem.position.sort_key for problem in caught.value.problems]
    assert orders == sorted(orders)
    for problem in caught.value.problems:
        place = problem.position
        line = place.source.lines[place.line]
        assert 0 <= place.column <= len(line)
        assert place.column < place.end


def test_missing_file_suggests_similar_names(tmp_path):
    (tmp_path / "edge.yaml").write_text("width: 3\n")
    with refuses("no-such-file", "`edge.yaml`"):
        read_space(tmp_path / "egde.yaml", SMALL)
    with refuses("no-such-file") as caught:
        read_space(tmp_path / "node.yaml", SMALL)
    assert "edge" not in str(caught.value)


def test_directory_is_rejected(tmp_path):
    with refuses("is-a-folder"):
        read_space(tmp_path, SMALL)


@pytest.mark.parametrize(
    ("data", "where", "why"),
    [
        (b"width: 3\nnorm: \xff\xfe\n", ":2:7:", "byte 0xff is not UTF-8"),
        (b"\x80\x02}q\x00", ":1:1:", "byte 0x80 is not UTF-8"),
        (b"width: 3\n\x00\x01", ":2:1:", "zero byte"),
        (b"width: 3\n  \x01", ":2:3:", "control character U+0001"),
    ],
)
def test_binary_file_is_rejected_with_position(tmp_path, data, where, why):
    path = tmp_path / "model.yaml"
    path.write_bytes(data)
    with refuses("not-a-text-file", why, f"model.yaml{where}"):
        read_space(path, SMALL)


def test_large_file_is_rejected(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_text("# filler\n" * 200_000)
    with refuses("too-large"):
        read_space(path, SMALL)


def test_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    path = tmp_path / "windows.yaml"
    path.write_bytes("\ufeffwidth: 3\r\nnorm: post\r\n".encode())
    assert dict(read_space(path, SMALL).resolve(None))["norm"] == "post"


def test_exponential_aliases_are_rejected():
    lines = ["sizes: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"k{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert "this file is too large once its aliases are followed" in message("\n".join(lines))


def test_deeply_nested_brackets_are_rejected():
    assert "nested at most 50 deep" in message("width: " + "[" * 5000)


def test_single_problem_has_no_count():
    assert "problems" not in message("width: big\n")
    assert message("width: big\nnorm: 3\n").endswith("\n\n2 problems\n")


def test_errors_can_be_pickled():
    import pickle

    from scalesearch.spaces import UnbuildableError

    copy = pickle.loads(pickle.dumps(UnbuildableError("encoder.depth", "why")))
    assert (copy.key, copy.reason, str(copy)) == ("encoder.depth", "why", "encoder.depth: why")


def test_errors_in_python_forms_show_their_key():
    with pytest.raises(ConfigError) as caught:
        Space.from_python({"width": 3, "norm": "psot"}, SMALL)
    assert str(caught.value).startswith("norm: `psot` is not one of")


def test_key_path_of_a_line_in_block_style():
    source = SourceText("<python>", "a: 1\nb:\n  c:\n  - d: 2\n    e:\n      f: 3\n  g: x | y\n")
    assert [source.key_path(line) for line in range(7)] == [
        "a", "b", "b.c", "b.c.d", "b.c.e", "b.c.e.f", "b.g"]
