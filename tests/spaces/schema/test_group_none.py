"""``none`` for a group of keys, which sets all of them to their defaults."""

import pytest

from scalesearch.library import find_file
from scalesearch.spaces import Space, read_space
from tests.errors import refuses

PLAIN = ("width: 32\nencoder: {depth: 2, heads: 2, ffn: relu}\ndecoder: {depth: 2, heads: 2, ffn: "
         "relu}\n")
SHARED = "share: {encoder.attention: one, decoder.ffn: one}\n"


def identity(space):
    return space.single_architecture().id


@pytest.mark.parametrize("group",
                         ["share", "share.encoder", "share.decoder", "tensor_chain", "low_rank"])
def test_group_none_equals_a_missing_group(group):
    text = PLAIN + (f"{group}: none\n" if "." not in group
                    else f"share: {{ {group.partition('.')[2]}: none }}\n")
    assert identity(Space.parse(text)) == identity(Space.parse(PLAIN))
    assert identity(Space.parse(Space.parse(text).to_yaml())) == identity(Space.parse(PLAIN))


def test_override_none_removes_sharing():
    shared = Space.parse(PLAIN + SHARED)
    assert identity(shared) != identity(Space.parse(PLAIN)) == identity(
        shared.with_overrides({"share": "none"}))
    only = shared.with_overrides({"share": "none", "share.decoder.ffn": "one"})
    assert identity(only) == identity(Space.parse(PLAIN + "share: {decoder.ffn: one}\n"))


def test_shipped_architecture_without_sharing_needs_no_adapters():
    edge = read_space(find_file("small/edgeformer", "spaces"))
    assert identity(edge.with_overrides({"share": "none"})) == identity(
        edge.with_overrides({"share": "none", "adapt": "nothing"}))


def test_other_words_for_a_group_are_rejected_with_help():
    with refuses("group-not-value", "`share`", "`none`"):
        Space.parse(PLAIN + "share: all\n")
