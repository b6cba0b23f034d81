"""Spaces over the built-in keys."""

import random

import pytest

from scalesearch.library import library_folder
from scalesearch.spaces import Space, UnbuildableError, read_space
from scalesearch.spaces.schema.yaml_writer import config_to_yaml
from tests.errors import refuses

OPEN = """
space: open
width: 64..128 step 32
norm: post | pre
embedding.tie: none | decoder | all
encoder:
  depth: 2..6
  heads: 4 | 8
  head_dim: 16 | 32
  ffn: &ffn
    one of:
      relu: { hidden: = 4 * width }
      geglu: { hidden: 64..256 step 64 }
decoder:
  depth: 1..3
  interleaved: yes | no
  heads: 2 | 4 if encoder.depth > 3 else 2
  head_dim: = encoder.head_dim
  ffn: *ffn
share:
  encoder.attention: own | cycle(1..2)
  decoder.self: own | encoder.attention[i]
where:
  - decoder.depth <= encoder.depth
cost:
  protocol: { source: 30, target: 30, vocab: 1000 }
  budgets:
    edge: params.non_embedding <= 1M and macs.total <= 2G
"""


def test_architecture_files_of_samples_have_equal_ids():
    space = Space.parse(OPEN)
    rng = random.Random(0)
    n_built = 0
    for _ in range(40):
        config = space.sample(rng)
        try:
            architecture = space.architecture(config)
        except UnbuildableError as error:
            assert error.key.startswith(("share.", "encoder.", "decoder."))
            continue
        n_built += 1
        fixed = Space.parse(config_to_yaml(dict(config), "fixed"))
        assert fixed.parameters() == []
        assert fixed.architecture(fixed.sample(rng)).id == architecture.id
    assert n_built > 10


def test_unfitting_schedule_is_unbuildable():
    space = Space.parse(OPEN).with_overrides({"encoder.depth": "2 | 6", "decoder.depth": "3",
                                              "share.decoder.self": "encoder.attention[i]"})
    config = space.resolve(lambda name, parameter: parameter.values()[0])
    with refuses("unbuildable", "encoder.attention[i]", key="share.decoder.self"):
        space.architecture(config)


@pytest.mark.full
def test_shipped_spaces_round_trip():
    paths = sorted(library_folder("spaces").rglob("*.yaml"))
    assert paths
    for path in paths:
        space = read_space(path)
        assert Space.parse(space.to_yaml()) == space


@pytest.mark.parametrize("file", sorted(library_folder("spaces").glob("*.yaml")),
                         ids=lambda file: file.stem)
def test_configurations_of_shipped_spaces_are_replayed_from_their_values(file):
    space = read_space(file)
    rng = random.Random(1)
    for _ in range(10):
        config = space.sample(rng)
        replayed = space.resolve(space.replay_values(dict(config)))
        assert config.infeasible_values or replayed == config
