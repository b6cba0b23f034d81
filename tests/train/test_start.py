"""Trainings that begin with another one's weights: what they take over, what they say of it, how they go on."""

import os
import signal
from shutil import rmtree
from types import SimpleNamespace

import pytest
import torch

from scalesearch.errors import UserError
from scalesearch.nn import build
from scalesearch.train import Interrupted, train
from scalesearch.train.averaging import read_weights
from scalesearch.train.start import begin_with
from tests.train.conftest import recipe, tiny

GROWN = {"encoder__depth": 2, "decoder__ffn.hidden": 24}


def weights(folder):
    return read_weights(folder / "model.safetensors")


@pytest.fixture(scope="module")
def parent(corpus, tmp_path_factory):
    """A finished training of the tiny architecture."""
    folder = tmp_path_factory.mktemp("parents") / "0003-abc"
    train(tiny(), corpus, recipe(), folder)
    return folder


def test_a_grown_child_begins_where_its_parent_ended(corpus, parent, tmp_path) -> None:
    events = []
    result = train(tiny(**GROWN), corpus, recipe(lr=0.0), tmp_path / "child", start=parent, report=events.append)
    before = train(tiny(), corpus, recipe(), parent)  # as it is on disk
    assert result.metrics["valid_loss"] == pytest.approx(before.metrics["valid_loss"], abs=1e-5)
    said = result.inherited
    assert (said["from"], said["architecture"], said["of"]) == ("0003-abc", tiny().id, result.params) and said["kept"]
    assert 0.5 < said["share"] < 1 and said["fresh"] == ["encoder.layers.1"]
    assert torch.equal(weights(tmp_path / "child")["decoder.layers.0.ffn.up.weight"][:16],
                       weights(parent)["decoder.layers.0.ffn.up.weight"])


def test_learning_goes_on_from_there(corpus, parent, tmp_path) -> None:
    afresh = train(tiny(**GROWN), corpus, recipe(), tmp_path / "afresh")
    child = train(tiny(**GROWN), corpus, recipe(), tmp_path / "child", start=parent)
    assert child.curve[0]["valid_loss"] < afresh.curve[0]["valid_loss"] and not afresh.inherited
    assert child.curve[-1]["valid_loss"] < afresh.curve[-1]["valid_loss"]


def test_going_on_needs_no_parent_and_is_the_same_to_the_bit(corpus, parent, tmp_path) -> None:
    heir = tmp_path / "0003-abc"
    heir.mkdir()
    for file in parent.iterdir():
        (heir / file.name).write_bytes(file.read_bytes())
    whole = train(tiny(**GROWN), corpus, recipe(), tmp_path / "whole", start=heir)

    def stop(event):
        if event["kind"] == "validation" and event["step"] == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        train(tiny(**GROWN), corpus, recipe(), tmp_path / "parts", start=heir, report=stop)
    rmtree(heir)
    parts = train(tiny(**GROWN), corpus, recipe(), tmp_path / "parts", start=heir)
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert parts.inherited == whole.inherited and parts.metrics == whole.metrics
    with pytest.raises(UserError, match=r"start was '0003-abc' and is now None"):
        train(tiny(**GROWN), corpus, recipe(), tmp_path / "parts")


def test_what_cannot_be_begun_with_is_said(corpus, parent, tmp_path) -> None:
    with pytest.raises(UserError, match=r"no checkpoint: architecture\.yaml"):
        train(tiny(), corpus, recipe(), tmp_path / "child", start=tmp_path / "nothing")
    other = SimpleNamespace(tokenizer=None)  # a corpus of another vocabulary
    with pytest.raises(UserError, match="another vocabulary than the data"):
        begin_with(build(tiny().block, vocab=corpus.tokenizer.vocab_size), parent, other)


def test_processes_that_share_updates_begin_with_the_same_weights(corpus, parent, tmp_path) -> None:
    how = recipe(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, steps=4, accumulate=2)
    alone, shared = (train(tiny(**GROWN), corpus, how, tmp_path / f"{n}", start=parent, processes=n) for n in (1, 2))
    assert shared.curve[-1]["valid_loss"] == pytest.approx(alone.curve[-1]["valid_loss"], abs=1e-4)
    assert shared.inherited == alone.inherited
