"""The DExTra unit of DeLighT: published sizes, groups, and models with it."""

from random import Random

import pytest
import torch

from scalesearch.blocks.core import SRC
from scalesearch.blocks.maps.dextra import DExTra
from scalesearch.nn.build import build_module
from scalesearch.spaces import Space, UnbuildableError
from scalesearch.testing.checks import check_model
from scalesearch.testing.random_models import random_architecture, small_space


@pytest.mark.parametrize(("depth", "multiplier", "maps"),
                         [(4, 2, [(256, 256, 2), (512, 1024, 4), (1280, 1024, 4), (1280, 256, 2)]),
                          (7, 2.857,
                           [(256, 256, 2), (512, 664, 4), (920, 1072, 8), (1328, 1472, 16),
                            (1728, 1064, 8), (1320, 664, 4), (920, 256, 2)]),
                          (8, 3,
                           [(256, 256, 2), (512, 688, 4), (944, 1120, 8), (1376, 1536, 16),
                            (1792, 1536, 16), (1792, 1112, 8), (1368, 688, 4), (944, 256, 2)])])
def test_maps_have_the_published_sizes(depth: int, multiplier: float,
                                       maps: list[tuple[int, int, int]]) -> None:
    """Expansion and reduction differ if the numbers of groups do: 1072 and 1064."""
    assert DExTra(512, 256, 256, (SRC,), depth, multiplier, 16).maps == maps


def test_features_are_shuffled_between_groups() -> None:
    unit = build_module(DExTra(8, 8, 8, (SRC,), 2, 1.0, 2)).double()
    x = torch.randn(1, 1, 8, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda y: unit.map0(y), x)[0, 0, :, 0, 0]
    assert not jacobian[:4, 4:].any() and not jacobian[4:, :4].any() and jacobian[:4, :4].all()
    with torch.no_grad():
        unit.norm0.weight.fill_(1)
        shuffled = unit.map0(x).unflatten(-1, (2, 4)).transpose(-1, -2).flatten(-2)
    assert torch.equal(shuffled[0, 0, ::2], unit.map0(x)[0, 0, :4])


@pytest.mark.parametrize(("width", "depth", "key"), [(12, 3, "groups"), (7, 3, "")])
def test_indivisible_sizes_are_unbuildable(width: int, depth: int, key: str) -> None:
    unit = f"{{ dextra: {{ depth: {depth}, groups: 4 }} }}"
    space = Space.parse(f"width: {width}\nencoder: {{ heads: 1, lift: {unit} }}\ndecoder: {{ "
                        f"heads: 1 }}")
    with pytest.raises(UnbuildableError) as caught:
        space.single_architecture()
    assert caught.value.key == (f"encoder.lift.dextra.{key}" if key else "encoder.lift")
    assert str(width // 2 if key else width) in str(caught.value)


@pytest.mark.parametrize("groups", [3, 6, 12])
def test_number_of_groups_is_a_power_of_two(groups: int) -> None:
    space = Space.parse(f"width: 48\nencoder: {{ lift: {{ dextra: {{ groups: {groups} }} }} }}\n")
    with pytest.raises(UnbuildableError) as caught:
        space.single_architecture()
    assert caught.value.key == "encoder.lift.dextra.groups"
    assert f"{groups} is not a power of two" in str(caught.value)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
def test_models_with_dextra_embeddings(seed: int) -> None:
    space = small_space(width="8 | 16",
                        embedding="{ dextra: { rank: 2 | 16, depth: 1..4, groups: 2 } }")
    check_model(random_architecture(Random(seed), space), seed)
