"""Models as they are found: whatever was done to their files, a model that translates or one message, and soon."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalesearch.errors import UserError
from scalesearch.signals import Interrupted
from scalesearch.train import Result, read_checkpoint, train
from scalesearch.train.averaging import read_weights, write_weights
from tests.errors import refuses
from tests.train.conftest import recipe, tiny
from tests.train.test_training import stop_at

JSON = ("recipe.json", "data.json", "result.json")
FILES = (*JSON, "architecture.yaml", "tokenizer.model", "model.safetensors")
ODD: list[Any] = [None, True, -1, 10**9, 10**400, 0.5, "", "NaN", "x" * 10_000, [], {}, [[]], {"a": {"b": None}}]
CPU_SECONDS = 10.0


@pytest.fixture(scope="module")
def model(corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished training."""
    folder = tmp_path_factory.mktemp("model") / "whole"
    train(tiny(), corpus, recipe(), folder)
    return folder


@pytest.fixture
def copy(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "copy"))


def read_or_refused(folder: Path) -> None:
    """Reads all of a model; any error but one for the user is a failure, and so is taking long."""
    start = time.process_time()
    for read in (read_checkpoint, Result.read):
        try:
            read(folder)
        except UserError as error:
            assert error.code and str(error)
    assert time.process_time() - start < CPU_SECONDS


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(FILES), place=st.floats(0, 1), how=st.sampled_from(["flip", "cut", "insert", "replace"]),
       some=st.binary(min_size=1, max_size=40))
def test_bytes_that_changed(copy: Path, model: Path, name: str, place: float, how: str, some: bytes) -> None:
    whole = (model / name).read_bytes()
    at = int(place * (len(whole) - 1))
    (copy / name).write_bytes({
        "flip": whole[:at] + bytes([whole[at] ^ 1 << some[0] % 8]) + whole[at + 1 :], "cut": whole[:at],
        "insert": whole[:at] + some + whole[at:], "replace": some}[how])
    read_or_refused(copy)
    (copy / name).write_bytes(whole)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(JSON), data=st.data(), value=st.sampled_from(ODD), gone=st.booleans())
def test_values_that_changed(copy: Path, model: Path, name: str, data: st.DataObject, value: Any, gone: bool) -> None:
    whole = json.loads((model / name).read_text())
    held = whole
    while isinstance(held, dict) and held:
        key = data.draw(st.sampled_from(sorted(held)))
        if not isinstance(held[key], dict) or data.draw(st.booleans()):
            held.pop(key) if gone else held.update({key: value})
            break
        held = held[key]
    (copy / name).write_text(json.dumps(whole))
    read_or_refused(copy)
    shutil.copy(model / name, copy / name)


@pytest.mark.parametrize("text", ["[" * 100_000, "{}", "null", "[]", '{"spec": 3}', "9" * 5000, '{"a": NaN}', "\x00"])
@pytest.mark.parametrize("name", JSON)
def test_other_json_altogether(copy: Path, name: str, text: str) -> None:
    (copy / name).write_text(text)
    read_or_refused(copy)


@pytest.mark.parametrize(("old", "new"), [
    ("width: 16", "width: 1000000000"), ("width: 16", "width: 32"), ("depth: 1", "depth: 100000000"),
    ("hidden:", "hidden: 100000000000000000000 #"), ("heads:", "heads: 3 #"), ("max_length: 128", "max_length: 1e18"),
])
def test_an_architecture_that_was_not_trained(copy: Path, old: str, new: str) -> None:
    file = copy / "architecture.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    start = time.process_time()
    with pytest.raises(UserError) as caught:
        read_checkpoint(copy)
    assert "architecture.yaml" in str(caught.value) and time.process_time() - start < CPU_SECONDS


def test_an_architecture_without_room_fails_before_it_is_built(corpus, tmp_path: Path) -> None:
    for change in ({"width": 16 * 10**9}, {"encoder__depth": 10**8},
                   {"encoder__depth": 10**6, "share__encoder__ffn": "one", "share__encoder__attention": "one"}):
        start = time.process_time()
        result = train(tiny(**change), corpus, recipe(), tmp_path / "large", resume=False)
        assert (result.state, result.steps) == ("failed", 0) and "out of memory" in result.reason
        assert time.process_time() - start < CPU_SECONDS


def test_weights_that_are_no_numbers_are_refused(copy: Path) -> None:
    weights = read_weights(copy / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] = torch.nan
    write_weights(copy / "model.safetensors", weights)
    with refuses("weights-not-finite", next(iter(weights))):
        read_checkpoint(copy)


def test_any_bit_of_the_weights_is_missed(copy: Path) -> None:
    file = copy / "model.safetensors"
    whole = file.read_bytes()
    for place in range(len(whole) - 1, len(whole) // 2, -len(whole) // 20):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with refuses("damaged-weights", "model.safetensors"):
            read_checkpoint(copy)


def test_a_damaged_checkpoint_is_never_resumed(corpus, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(tiny(), corpus, recipe(), tmp_path, report=stop_at(4))
    file = tmp_path / "checkpoint.pt"
    whole = file.read_bytes()
    damaged = [b"", b"\n", whole[:-1], whole + b"x", whole[1:]]
    damaged += [whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :] for at in range(0, len(whole), 40_000)]
    for content in damaged:
        file.write_bytes(content)
        with refuses("not-a-checkpoint", "checkpoint.pt"):
            train(tiny(), corpus, recipe(), tmp_path)
    file.write_bytes(whole)
    assert train(tiny(), corpus, recipe(), tmp_path).state == "complete"
