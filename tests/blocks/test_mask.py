"""The learned mask: neutral values, masked positions, and the attention that has it."""

import torch

from scalesearch.blocks.core import SRC
from scalesearch.blocks.maps.linear_factories import DENSE
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.blocks.mixers.attention_extras import DynamicMask
from scalesearch.library import find_file
from scalesearch.nn.build import build_module
from scalesearch.spaces import read_space


def attention(mask: int) -> Attention:
    return Attention(8, SRC, False, DENSE, heads=2, head_dim=4, score_heads=2, projected_axis=SRC,
                     keys=SRC, mask_distance=mask)


def test_zero_mask_changes_nothing() -> None:
    masked = build_module(attention(3))
    plain = build_module(attention(0))
    x = torch.randn(2, 7, 8)
    plain.load_state_dict({name: value
                           for name, value in masked.state_dict().items() if "mask" not in name})
    # Without distances, the mask adds the same logit to all keys, which the softmax ignores.
    assert torch.allclose(masked(x, None, None), plain(x, None, None), atol=1e-6)
    masked.core.mask.places.distance.data.uniform_(-2, 2)
    assert not torch.allclose(masked(x, None, None), plain(x, None, None), atol=1e-3)


def test_mask_depends_on_content_distance_and_head() -> None:
    mask = build_module(DynamicMask(8, 2, 2, SRC, SRC))
    x = torch.randn(1, 5, 8)
    mask.places.distance.data = torch.tensor([-3.0, -200.0, 5.0, 0.5])
    mask.places.head.data = torch.tensor([0.0, 1.0])
    log_mask = mask(x, 5)
    content = mask.content(x)[0, :, 0]
    places = {-2: -3.0, -1: -200.0, 0: 0.0, 1: 5.0, 2: 0.5}
    for head, query, key in ((h, t, s) for h in range(2) for t in range(5) for s in range(5)):
        logit = content[query] + places[max(-2, min(2, key - query))] + head
        assert torch.allclose(log_mask[0, head, query, key], logit.sigmoid().clamp(min=1e-10).log(),
                              atol=1e-5)


def test_only_the_first_attention_of_a_layer_is_masked() -> None:
    parts = read_space(find_file("reference/dman",
                                 "spaces")).single_architecture().block.encoder.layer.parts()
    assert [parts[name].block.mask_distance for name in ("attention", "attention_2")] == [1024, 0]
