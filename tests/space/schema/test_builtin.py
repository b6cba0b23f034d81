"""The language over the built-in keys."""

import random

import pytest

from scalesearch.library import library_folder
from scalesearch.space import Space, UnbuildableError, read_space
from scalesearch.space.schema.yaml_writer import config_to_yaml
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


def test_samples_become_networks_and_architecture_files_give_the_same_ones():
    space = Space.parse(OPEN)
    rng = random.Random(0)
    built = 0
    for _ in range(40):
        answers = space.sample(rng)
        try:
            architecture = space.architecture(answers)
        except UnbuildableError as error:
            assert error.key.startswith(("share.", "encoder.", "decoder."))
            continue
        built += 1
        fixed = Space.parse(config_to_yaml(dict(answers), "fixed"))
        assert fixed.parameters() == []
        assert fixed.architecture(fixed.sample(rng)).id == architecture.id
    assert built > 10


def test_a_schedule_that_does_not_fit_is_unbuildable():
    space = Space.parse(OPEN).with_overrides({"encoder.depth": "2 | 6", "decoder.depth": "3",
                                              "share.decoder.self": "encoder.attention[i]"})
    answers = space.resolve(lambda name, parameter: parameter.values()[0])
    with refuses("unbuildable", "encoder.attention[i]", key="share.decoder.self"):
        space.architecture(answers)


def test_every_shipped_space_is_sound():
    paths = sorted(library_folder("spaces").rglob("*.yaml"))
    assert paths
    for path in paths:
        space = read_space(path)
        assert Space.parse(space.to_yaml()) == space


@pytest.mark.parametrize("file", sorted(library_folder("spaces").glob("*.yaml")),
                         ids=lambda file: file.stem)
def test_a_shipped_space_finds_its_sheets_again_by_their_values_alone(file):
    space = read_space(file)
    rng = random.Random(1)
    for _ in range(10):
        sheet = space.sample(rng)
        assert sheet.infeasible_values or space.resolve(space.replay_values(dict(sheet))) == sheet
