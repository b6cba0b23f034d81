"""Mixers other than attention, and two mixers in one sub-layer: what they compute, and what they are refused for."""

from typing import Any

import pytest
import torch

from scalesearch.blocks.core import CROSS_MEMORY, SRC, SRC_KEYS, TGT
from scalesearch.blocks.maps.linear_factories import DENSE
from scalesearch.blocks.mixers.convolutions import ConvolutionMixer, ShortConvolution
from scalesearch.blocks.mixers.mega import GatedCrossAttention, Mega
from scalesearch.blocks.mixers.moving_average import MovingAverageMixer
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.nn import build_model
from scalesearch.nn.build import build_module
from scalesearch.nn.causality import CausalityError, check_causality
from scalesearch.nn.model import DecodingCache, SourceGroups
from scalesearch.space import Space, UnbuildableError
from scalesearch.space.assembly.architecture import ModelSpec
from scalesearch.testing import check_mixer
from scalesearch.testing.registered_blocks import check_count, tiny_space
from tests.errors import refuses

OURS = ("lightweight", "dynamic", "separable", "average", "mega")


def architecture(**more: Any) -> ModelSpec:
    """A tiny network; keys of both stacks, or with a stack's name in front of one."""
    stacks = {"encoder": {}, "decoder": {}}
    for key, value in more.items():
        stack, _, own = key.partition("__")
        for name in [stack] if own else stacks:
            stacks[name][own or key] = value
    base = {"depth": 2, "heads": 2, "ffn": {"relu": {"hidden": 16}}}
    given = {name: {key: value
                    for key, value in (base | own).items()
                    if key != "heads" or "mixer" not in own or name == "decoder"}
             for name, own in stacks.items()}
    return Space.from_python({"width": 8, **given}).single_architecture()


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_every_kind_passes_what_kinds_of_others_have_to(name: str) -> None:
    check_mixer(name)


def test_equal_taps_give_a_share_of_the_window_s_sum() -> None:
    """Zeros stand beyond the sentence, and their taps count in the softmax."""
    made = build_module(ShortConvolution(4, 3, 2, (SRC,), "softmax"))
    torch.nn.init.zeros_(made.weight)
    x = torch.arange(20.0).view(1, 5, 4)
    got = made(torch.nn.functional.pad(x, (0, 0, 1, 1)))
    padded = [torch.zeros(1, 4), *x[0].split(1), torch.zeros(1, 4)]
    assert torch.allclose(got[0], torch.cat([sum(padded[at : at + 3]) / 3 for at in range(5)]))  # type: ignore[arg-type]


def test_groups_of_channels_have_taps_of_their_own() -> None:
    made = build_module(ShortConvolution(4, 2, 2, (SRC,), "free"))
    made.weight.data = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    x = torch.randn(2, 6, 4)
    assert torch.equal(made(x), torch.cat([x[:, 1:, :2], x[:, :-1, 2:]], -1))


def test_an_average_is_its_recurrence() -> None:
    block = MovingAverageMixer(3, TGT, True, DENSE, dims=4)
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    made = build_module(block).double()
    for weight in made.parameters():
        torch.nn.init.normal_(weight)
    leaf = made.average
    state = torch.zeros(2, 3, 4, dtype=torch.float64)
    p = leaf.delta.sigmoid()
    a = leaf.alpha.sigmoid()
    for t in range(7):
        state = (1 - p * a) * state + p * leaf.beta * x[:, t, :, None]
        y = (leaf.gamma * state).sum(-1) / 2
        assert torch.allclose(made(x, None, None)[:, t],
                              torch.nn.functional.silu(y + leaf.omega * x[:, t]))


def test_gated_attention_is_its_equations() -> None:
    """Position by position, without the moving average's own: that is tested above."""
    block = Mega(4, TGT, True, DENSE, dims=2, head_dim=3, value_dim=5, clip=3)
    x = torch.randn(1, 6, 4)
    made = build_module(block)
    for weight in made.parameters():
        torch.nn.init.normal_(weight)
    got = made(x, None, torch.full((6, 6), -torch.inf).triu(1))
    silu = torch.nn.functional.silu
    update, inner, shared, reset = made.inward(made.average(x, None, None))[0].split(
        [4, 4, 3, 5], -1)
    query, key = (silu(shared) * made.scale[n] + made.shift[n] for n in (0, 1))
    for t in range(6):
        near = [made.distances.weight[max(s - t, -2) + 2] for s in range(t + 1)]
        scores = torch.stack([query[t] @ key[s] / 3**0.5 + near[s]
                              for s in range(t + 1)]).softmax(0)
        mixed = scores @ silu(made.value(x))[0, : t + 1]
        h = silu(inner[t] + made.out(silu(reset[t]) * mixed))
        assert torch.allclose(got[0, t], update[t].sigmoid() * (h - x[0, t]), atol=1e-5)


def test_gated_attention_across_sees_distances_to_where_it_stands() -> None:
    """Also step by step, and in a beam search, whose hypotheses of one source stand where positions do."""
    made = build_module(GatedCrossAttention(4, TGT, True, DENSE, CROSS_MEMORY, SRC_KEYS, 3, 2))
    torch.nn.init.normal_(made.distances.weight)
    x = torch.randn(1, 3, 4)
    memory = torch.randn(1, 5, 4)
    cache = DecodingCache()
    whole = made(x, None, None, None, None, memory)
    for t in range(3):
        cache.length = t
        assert torch.allclose(made(x[:, t : t + 1], None, None, cache, None, memory),
                              whole[:, t : t + 1], atol=1e-6)
    cache.groups = SourceGroups.from_sources(torch.tensor([0, 0]))
    beams = made(x[:, 2:].expand(1, 2, 4), None, None, cache, None, memory)
    assert torch.allclose(beams, whole[:, 2:].expand(1, 2, 4), atol=1e-6)


def test_an_average_from_both_ends_has_a_position_s_own_twice() -> None:
    made = build_module(MovingAverageMixer(1, SRC, False, DENSE, dims=1))
    with torch.no_grad():
        for name, value in {"delta": 50.0, "alpha": 50.0, "beta": 1.0, "gamma": 1.0,
                            "omega": 0.0}.items():
            # p and a are 1: nothing is left of other positions
            getattr(made.average, name).fill_(value)
    x = torch.randn(1, 5, 1)
    assert torch.allclose(made(x, None, None), torch.nn.functional.silu(2 * x))


@pytest.mark.parametrize("name", OURS)
def test_a_cache_holds_what_is_billed(name: str) -> None:
    block = architecture(decoder__mixer=name).block.decoder.layer.mixer  # type: ignore[attr-defined]
    made = build_module(block)
    cache = DecodingCache()
    for _ in range(9):
        made(torch.randn(1, 1, 8), None, None, cache)
    held = sum(tensor.numel() for kept in cache.entries.values() for tensor in kept)
    assert held == evaluate_cost(block, find_protocol("forward", 9, 9, 40))["memory.cache"] // 4


@pytest.mark.parametrize("changes", [{"encoder__mixer": {"lightweight": {"glu": True}}},
                                     {"encoder__local": {"dynamic": {"glu": True, "heads": 2}}}])
def test_padding_zeroed_before_the_map_with_a_bias_is_caught(
        changes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As released: what the taps meet at padding is the bias."""
    model = build_model(architecture(**changes).block, vocab=40)
    check_causality(model, 40)
    right = ConvolutionMixer.forward

    def released(self: Any, m: Any, x: Any, present: Any, *others: Any) -> Any:
        return right(self, m, x if present is None else x * present[..., None], None, *others)

    monkeypatch.setattr(ConvolutionMixer, "forward", released)
    with pytest.raises(CausalityError) as caught:
        check_causality(model, 40)
    assert caught.value.dependency == "padding"


def test_a_leak_at_the_far_end_of_a_long_kernel_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check goes beyond what a kernel sees, whatever lengths it has for others."""
    model = build_model(architecture(decoder__mixer={"separable": {"kernel": 61}}).block, vocab=40)
    check_causality(model, 40)
    right = ShortConvolution.forward

    def ahead(self: Any, m: Any, seen: Any, *others: Any) -> Any:
        later = torch.nn.functional.pad(seen[:, 50 + self.kernel - 1 :, :], (0, 0, 0, 50))
        y = right(self, m, seen, *others)
        return y + later[:, : y.shape[1]] if seen.shape[1] > 100 else y

    monkeypatch.setattr(ShortConvolution, "forward", ahead)
    with pytest.raises(CausalityError) as caught:
        check_causality(model, 40)
    assert caught.value.dependency == "a later target token"


def test_a_split_that_leaves_one_of_the_two_nothing_is_the_other() -> None:
    ids = [architecture(local={"lightweight": {"channels": channels}}).id for channels in (0, 4, 8)]
    assert ids[0] == architecture().id and ids[2] == architecture(mixer="lightweight").id
    assert len(set(ids)) == 3


def test_attention_keeps_its_share_of_the_heads() -> None:
    block = architecture(local={"average": {"channels": 4}}).block.encoder.layer.mixer  # type: ignore[attr-defined]
    assert (
        block.main.d, block.main.heads, block.main.score_heads, block.main.head_dim) == (4, 1, 1, 4)
    assert block.score_shape == block.main.score_shape


@pytest.mark.parametrize(("changes", "path"), [
    ({"local": {"average": {"channels": 3}}}, "encoder.local.channels"),
    ({"local": {"average": {"channels": 9}}}, "encoder.local.channels"),
    ({"local": {"lightweight": {"heads": 3}}}, "encoder.local.heads"),
])
def test_sizes_that_do_not_go_together_cannot_be_built(changes: Any, path: str) -> None:
    with pytest.raises(UnbuildableError) as caught:
        architecture(**changes)
    assert caught.value.key == path


def test_a_loan_of_other_taps_is_refused_with_the_key() -> None:
    space = Space.from_python({"width": 8, "encoder": {"mixer": {"lightweight": {"kernel": 3}}},
                      "decoder": {"mixer": {"lightweight": {"kernel": 5}}},
                      "share": {"decoder.self": "encoder.mixing[i]"}})
    with refuses("unbuildable", "encoder.mixer.kernel is 3", "decoder.mixer.kernel is 5"):
        space.single_architecture()


LOAN = {"share": {"decoder": {"self": "own | encoder.mixing[0]"}}}
SPACES = [({"heads": "2 | 4",
            "local": {"lightweight": {"heads": "1 | 2", "kernel": "2 | 3",
                                      "join": "split | sum | before", "channels": "0 | 4 | 8"}}},
           {"mixer": "attention | separable", "heads": 2}, LOAN),
          ({"heads": "2 | 4",
            "local": {"one of": {"none": {}, "average": {"dims": "1 | 2", "join": "split | sum"},
                                 "separable": {"kernel": "1 | 2"}}}},
           {"mixer": "attention | separable", "heads": 2}, LOAN),
          ({"heads": 2},
           {"heads": "2 | 4",
            "local": {"one of": {"none": {},
                                 "dynamic": {"heads": "1 | 2", "glu": "yes | no",
                                             "join": "split | before"},
                                 "average": {"dims": "1 | 2", "join": "sum"}}}},
           {"model": "encoder-decoder | decoder-only"}),
          ({"depth": 2, "mixer": "attention | lightweight | average",
            "local": {"one of": {"none": {},
                                 "separable": {"kernel": "2 | 3", "join": "split | sum",
                                               "channels": "0 | 4 | = width"}}}}, {"heads": 2},
           {"share": {"encoder": {"mixing": "own | one"}}, "adapt": "nothing | bias"})]


@pytest.mark.parametrize(("encoder", "decoder", "more"), SPACES)
def test_counts_are_those_of_listing(encoder: Any, decoder: Any, more: Any) -> None:
    check_count(tiny_space(encoder, decoder, **more))


@pytest.mark.parametrize("name", OURS)
def test_ctranslate2_is_refused_with_the_reason(name: str) -> None:
    for changes in ({"encoder__mixer": name},
                    {"encoder__local": name})[: 1 if name == "mega" else 2]:
        (why,) = find_unsupported_parts(architecture(**changes).block)
        assert why.startswith("encoder.mixing: ") and why.endswith("is not attention")


def test_lite_transformer_s_totals_come_out() -> None:
    """Wu et al. 2020 at d 496, whose kernels are 3, 7, 15 and three of 31: a layer at a time, as layers are alike here.

    17.3M without the table, and 1.0G with the output at 30 and 30 tokens, as EdgeFormer prints them (table 4).
    """
    protocol = find_protocol("forward", 30, 30, 32768)
    found = []
    for kernel in (3, 7, 15, 31, 31, 31):
        # 4 sets of taps on half of the channels
        local = {"dynamic": {"kernel": kernel, "glu": True}}
        stack = {"depth": 1, "heads": 8, "local": local, "ffn": {"relu": {"hidden": 496}}}
        lite = Space.from_python({"width": 496, "norm": "post", "encoder": stack,
                                  "decoder": stack}).single_architecture()
        found.append(evaluate_cost(lite.block, protocol))
    assert sum(bill["params.encoder"] + bill["params.decoder"] for bill in found) == 17_283_616
    macs = sum(bill["macs.encoder"] + bill["macs.decoder"] for bill in found)
    assert (f"{macs:.5g}", f"{macs + found[0]['macs.output']:.4g}") == ("5.2875e+08", "1.016e+09")
    assert lite.block.encoder.layer.mixer.main.heads == 4  # type: ignore[attr-defined]
