"""Layer adaptation: prompts and adapters compared with their definitions."""

from dataclasses import replace

import torch

from scalesearch.blocks.core import SRC
from scalesearch.blocks.maps.linear_factories import DENSE
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.nn.build import build_module

PLAIN = Attention(8, SRC, False, DENSE, heads=2, head_dim=4, score_heads=2, projected_axis=SRC,
                  keys=SRC)


def masking_bias(last: int) -> torch.Tensor:
    """A bias that masks the last ``last`` of 5 keys."""
    bias = torch.zeros(1, 1, 1, 5, dtype=torch.float64)
    bias[..., 5 - last :] = -1e30
    return bias


def test_prompts_are_unmasked_keys_and_values_in_front() -> None:
    prompted = build_module(replace(PLAIN, prompt_length=3), dtype=torch.float64)
    plain = build_module(PLAIN, dtype=torch.float64)
    plain.load_state_dict(
        {name: w for name, w in prompted.state_dict().items() if not name.startswith("prompt")})
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    front = prompted.prompt.weight.expand(2, -1, -1)
    bias = torch.nn.functional.pad(masking_bias(2), (3, 0))
    expected = plain(x, None, bias, None, None, torch.cat([front, x], 1))
    assert torch.allclose(prompted(x, None, masking_bias(2)), expected, rtol=0, atol=1e-12)


def test_adapter_adds_a_low_rank_matrix() -> None:
    adapted = build_module(replace(PLAIN, adapters=("key", "out"), adapter_rank=2),
                           dtype=torch.float64)
    for adapter in (adapted.key_adapter, adapted.out_adapter):
        torch.nn.init.normal_(adapter.up.weight)
    plain = build_module(PLAIN, dtype=torch.float64)
    plain.load_state_dict({name: w
                           for name, w in adapted.state_dict().items() if "adapter" not in name})
    with torch.no_grad():
        for slot in ("key", "out"):
            adapter = getattr(adapted, f"{slot}_adapter")
            getattr(plain, slot).weight += adapter.up.weight @ adapter.down.weight
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    bias = masking_bias(1)
    assert torch.allclose(adapted(x, None, bias), plain(x, None, bias), rtol=0, atol=1e-12)
