"""Mixers other than attention, and two mixers in one sub-layer."""

from typing import Any

import pytest
import torch

from scalesearch.blocks.core import CROSS_MEMORY, SRC, SRC_KEYS, TGT
from scalesearch.blocks.maps.linear_factories import DENSE
from scalesearch.blocks.mixers import MIXERS
from scalesearch.blocks.mixers.convolutions import ConvolutionMixer, ShortConvolution
from scalesearch.blocks.mixers.linear_attention import GatedLinearAttention
from scalesearch.blocks.mixers.mega import GatedCrossAttention, Mega
from scalesearch.blocks.mixers.moving_average import MovingAverageMixer
from scalesearch.blocks.mixers.recurrence import SSRU
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.nn import build_model
from scalesearch.nn.build import build_module
from scalesearch.nn.causality import CausalityError, check_causality
from scalesearch.nn.model import DecodingCache, SourceGroups
from scalesearch.spaces import Space, UnbuildableError
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.testing import check_mixer
from scalesearch.testing.registered_blocks import check_count, tiny_space
from tests.errors import refuses

BUILT_IN = ("lightweight", "dynamic", "separable", "average", "ssru", "linear_attention", "mega",
            "latent")


def architecture(**more: Any) -> ModelSpec:
    """A tiny network; ``encoder__mixer`` sets a key of one stack, ``mixer`` of both."""
    stacks = {"encoder": {}, "decoder": {}}
    for key, value in more.items():
        stack, _, settings = key.partition("__")
        for name in [stack] if settings else stacks:
            stacks[name][settings or key] = value
    base = {"depth": 2, "heads": 2, "ffn": {"relu": {"hidden": 16}}}
    configs = {name: {key: value
                      for key, value in (base | settings).items()
                      if key != "heads" or "mixer" not in settings or name == "decoder"}
               for name, settings in stacks.items()}
    return Space.from_python({"width": 8, **configs}).single_architecture()


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_mixers_pass_the_public_check(name: str) -> None:
    check_mixer(name)


def test_equal_taps_average_the_window() -> None:
    """Positions outside the sentence are zeros; their taps count in the softmax."""
    module = build_module(ShortConvolution(4, 3, 2, (SRC,), "softmax"))
    torch.nn.init.zeros_(module.weight)
    x = torch.arange(20.0).view(1, 5, 4)
    output = module(torch.nn.functional.pad(x, (0, 0, 1, 1)))
    padded = [torch.zeros(1, 4), *x[0].split(1), torch.zeros(1, 4)]
    means = [sum(padded[start : start + 3]) / 3 for start in range(5)]
    assert torch.allclose(output[0], torch.cat(means))  # type: ignore[arg-type]


def test_channel_groups_have_own_taps() -> None:
    module = build_module(ShortConvolution(4, 2, 2, (SRC,), "free"))
    module.weight.data = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    x = torch.randn(2, 6, 4)
    assert torch.equal(module(x), torch.cat([x[:, 1:, :2], x[:, :-1, 2:]], -1))


def test_moving_average_equals_its_recurrence() -> None:
    block = MovingAverageMixer(3, TGT, True, DENSE, dims=4)
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    module = build_module(block).double()
    for weight in module.parameters():
        torch.nn.init.normal_(weight)
    leaf = module.average
    state = torch.zeros(2, 3, 4, dtype=torch.float64)
    p = leaf.delta.sigmoid()
    a = leaf.alpha.sigmoid()
    for t in range(7):
        state = (1 - p * a) * state + p * leaf.beta * x[:, t, :, None]
        y = (leaf.gamma * state).sum(-1) / 2
        assert torch.allclose(module(x, None, None)[:, t],
                              torch.nn.functional.silu(y + leaf.omega * x[:, t]))


@pytest.mark.parametrize("is_decoder", [True, False])
def test_ssru_equals_its_recurrence(is_decoder: bool) -> None:
    """Also its gradients; an encoder computes its last channels from the end."""
    module = build_module(SSRU(5, TGT if is_decoder else SRC, is_decoder, DENSE)).double()
    x = torch.randn(2, 11, 5, dtype=torch.float64, requires_grad=True)
    value = x @ module.value.weight.t()
    forget = (x @ module.forget.weight.t() + module.forget.bias).sigmoid()
    states = torch.zeros(2, 5, dtype=torch.float64)
    forward: list[Any] = []
    backward: list[Any] = []
    for output, order in ((forward, range(11)), (backward, reversed(range(11)))):
        state = torch.zeros_like(states)
        for t in order:
            state = forget[:, t] * state + (1 - forget[:, t]) * value[:, t]
            output.append(state.relu())
    expected = torch.stack(forward, 1)
    if not is_decoder:
        expected = torch.cat([expected[..., :3], torch.stack(backward[::-1], 1)[..., 3:]], 2)
    output = module(x, None, None)
    assert torch.allclose(output, expected)
    inputs = [x, *module.parameters()]
    weights = torch.randn_like(expected)
    for gradient, true_gradient in zip(torch.autograd.grad((output * weights).sum(), inputs),
                                       torch.autograd.grad((expected * weights).sum(), inputs)):
        assert torch.allclose(gradient, true_gradient)


@pytest.mark.parametrize("is_decoder", [True, False])
def test_linear_attention_equals_its_recurrence(is_decoder: bool) -> None:
    """A state of each head; in an encoder, a second one from the end, without the own position."""
    block = GatedLinearAttention(6, TGT if is_decoder else SRC, is_decoder, DENSE, heads=2,
                                 key_dim=4)
    module = build_module(block).double()
    x = torch.randn(1, 9, 6, dtype=torch.float64)
    decay = module.decay(x)[0].sigmoid() ** (1 / 16)
    query, key, value = (getattr(module, name)(x)[0].view(9, 2, -1)
                         for name in ("query", "key", "value"))
    outputs = torch.zeros(9, 2, 3, dtype=torch.float64)
    for head in range(2):
        state = torch.zeros(4, 3, dtype=torch.float64)
        for t in range(9):
            state = decay[t, head] * state + torch.outer(key[t, head], value[t, head])
            outputs[t, head] += query[t, head] @ state / 2
        state = torch.zeros(4, 3, dtype=torch.float64)
        for t in range(7, -1, -1) if not is_decoder else ():
            state = decay[t + 1, head] * (
                state + torch.outer(key[t + 1, head], value[t + 1, head]))
            outputs[t, head] += query[t, head] @ state / 2
    root = (outputs.square().mean(-1, keepdim=True) + block.parts()["norm"].eps).sqrt()
    gated = (outputs / root).flatten(1) * torch.nn.functional.silu(module.gate(x)[0])
    assert torch.allclose(module(x, None, None)[0], module.out(gated))


@pytest.mark.parametrize("block", [
    GatedLinearAttention(4, TGT, True, DENSE, heads=2, key_dim=3), SSRU(4, TGT, True, DENSE)])
def test_recurrence_reads_several_positions_after_a_state(block: Any) -> None:
    module = build_module(block)
    x = torch.randn(2, 9, 4)
    cache = DecodingCache()
    parts = [module(part, None, None, cache) for part in x.split([4, 3, 1, 1], 1)]
    assert torch.allclose(torch.cat(parts, 1), module(x, None, None), atol=1e-5)


def test_mega_equals_its_equations() -> None:
    """Computed per position; the moving average has its own test."""
    block = Mega(4, TGT, True, DENSE, dims=2, head_dim=3, value_dim=5, clip=3)
    x = torch.randn(1, 6, 4)
    module = build_module(block)
    for weight in module.parameters():
        torch.nn.init.normal_(weight)
    output = module(x, None, torch.full((6, 6), -torch.inf).triu(1))
    silu = torch.nn.functional.silu
    update, inner, shared, reset = module.inward(module.average(x, None, None))[0].split(
        [4, 4, 3, 5], -1)
    query, key = (silu(shared) * module.scale[n] + module.shift[n] for n in (0, 1))
    for t in range(6):
        near = [module.distances.weight[max(s - t, -2) + 2] for s in range(t + 1)]
        scores = torch.stack([query[t] @ key[s] / 3**0.5 + near[s]
                              for s in range(t + 1)]).softmax(0)
        mixed = scores @ silu(module.value(x))[0, : t + 1]
        h = silu(inner[t] + module.out(silu(reset[t]) * mixed))
        assert torch.allclose(output[0, t], update[t].sigmoid() * (h - x[0, t]), atol=1e-5)


def test_gated_cross_attention_uses_distances_in_incremental_decoding() -> None:
    """Also in beam search, where hypotheses of one source take the axis of positions."""
    module = build_module(GatedCrossAttention(4, TGT, True, DENSE, CROSS_MEMORY, SRC_KEYS, 3, 2))
    torch.nn.init.normal_(module.distances.weight)
    x = torch.randn(1, 3, 4)
    memory = torch.randn(1, 5, 4)
    cache = DecodingCache()
    whole = module(x, None, None, None, None, memory)
    for t in range(3):
        cache.length = t
        assert torch.allclose(module(x[:, t : t + 1], None, None, cache, None, memory),
                              whole[:, t : t + 1], atol=1e-6)
    cache.groups = SourceGroups.from_sources(torch.tensor([0, 0]))
    beams = module(x[:, 2:].expand(1, 2, 4), None, None, cache, None, memory)
    assert torch.allclose(beams, whole[:, 2:].expand(1, 2, 4), atol=1e-6)


def test_bidirectional_average_counts_the_own_position_twice() -> None:
    module = build_module(MovingAverageMixer(1, SRC, False, DENSE, dims=1))
    with torch.no_grad():
        for name, value in {"delta": 50.0, "alpha": 50.0, "beta": 1.0, "gamma": 1.0,
                            "omega": 0.0}.items():
            # p = a = 1, so other positions have no weight
            getattr(module.average, name).fill_(value)
    x = torch.randn(1, 5, 1)
    assert torch.allclose(module(x, None, None), torch.nn.functional.silu(2 * x))


@pytest.mark.parametrize("name", BUILT_IN)
def test_cache_has_the_size_of_its_cost(name: str) -> None:
    network = architecture(decoder__mixer=name).block
    block = network.decoder.layer.mixer  # type: ignore[attr-defined]
    module = build_module(block)
    cache = DecodingCache()
    for _ in range(9):
        module(torch.randn(1, 1, 8), None, None, cache)
    cached = sum(tensor.numel() for kept in cache.entries.values() for tensor in kept)
    assert cached == evaluate_cost(block, find_protocol("forward", 9, 9, 40))["memory.cache"] // 4


@pytest.mark.parametrize("changes", [{"encoder__mixer": {"lightweight": {"glu": True}}},
                                     {"encoder__local": {"dynamic": {"glu": True, "heads": 2}}}])
def test_bias_at_padding_is_detected(changes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the released code, the taps read the bias at padding."""
    model = build_model(architecture(**changes).block, vocab=40)
    check_causality(model, 40)
    forward = ConvolutionMixer.forward

    def released(self: Any, m: Any, x: Any, present: Any, *others: Any) -> Any:
        return forward(self, m, x if present is None else x * present[..., None], None, *others)

    monkeypatch.setattr(ConvolutionMixer, "forward", released)
    with pytest.raises(CausalityError) as caught:
        check_causality(model, 40)
    assert caught.value.dependency == "padding"


def test_leak_at_the_end_of_a_long_kernel_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check uses sequences that are longer than the kernel."""
    model = build_model(architecture(decoder__mixer={"separable": {"kernel": 61}}).block, vocab=40)
    check_causality(model, 40)
    forward = ShortConvolution.forward

    def ahead(self: Any, m: Any, x_window: Any, *others: Any) -> Any:
        later = torch.nn.functional.pad(x_window[:, 50 + self.kernel - 1 :, :], (0, 0, 0, 50))
        y = forward(self, m, x_window, *others)
        return y + later[:, : y.shape[1]] if x_window.shape[1] > 100 else y

    monkeypatch.setattr(ShortConvolution, "forward", ahead)
    with pytest.raises(CausalityError) as caught:
        check_causality(model, 40)
    assert caught.value.dependency == "a later target token"


def test_split_without_channels_for_one_mixer_equals_the_other() -> None:
    ids = [architecture(local={"lightweight": {"channels": channels}}).id for channels in (0, 4, 8)]
    assert ids[0] == architecture().id and ids[2] == architecture(mixer="lightweight").id
    assert len(set(ids)) == 3


def test_attention_keeps_its_share_of_heads() -> None:
    network = architecture(local={"average": {"channels": 4}}).block
    block = network.encoder.layer.mixer  # type: ignore[attr-defined]
    assert (
        block.main.d, block.main.heads, block.main.score_heads, block.main.head_dim) == (4, 1, 1, 4)
    assert block.score_shape == block.main.score_shape


@pytest.mark.parametrize(("changes", "path"), [
    ({"local": {"average": {"channels": 3}}}, "encoder.local.average.channels"),
    ({"local": {"average": {"channels": 9}}}, "encoder.local.average.channels"),
    ({"local": {"lightweight": {"heads": 3}}}, "encoder.local.lightweight.heads"),
])
def test_inconsistent_sizes_are_unbuildable(changes: Any, path: str) -> None:
    with pytest.raises(UnbuildableError) as caught:
        architecture(**changes)
    assert caught.value.key == path


def test_tying_different_kernels_is_unbuildable() -> None:
    space = Space.from_python({"width": 8, "encoder": {"mixer": {"lightweight": {"kernel": 3}}},
                      "decoder": {"mixer": {"lightweight": {"kernel": 5}}},
                      "share": {"decoder.self": "encoder.mixing[i]"}})
    with refuses("unbuildable", "encoder.mixer.kernel is 3", "decoder.mixer.kernel is 5"):
        space.single_architecture()


TYING = {"share": {"decoder": {"self": "own | encoder.mixing[0]"}}}
SPACES = [({"heads": "2 | 4",
            "local": {"lightweight": {"heads": "1 | 2", "kernel": "2 | 3",
                                      "join": "split | sum | before", "channels": "0 | 4 | 8"}}},
           {"mixer": "attention | separable", "heads": 2}, TYING),
          ({"heads": "2 | 4",
            "local": {"one of": {"none": {}, "average": {"dims": "1 | 2", "join": "split | sum"},
                                 "separable": {"kernel": "1 | 2"}}}},
           {"mixer": "attention | separable", "heads": 2}, TYING),
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


@pytest.mark.full
@pytest.mark.parametrize(("encoder", "decoder", "more"), SPACES)
def test_count_equals_enumeration(encoder: Any, decoder: Any, more: Any) -> None:
    check_count(tiny_space(encoder, decoder, **more))


@pytest.mark.parametrize("name", BUILT_IN)
def test_ctranslate2_reports_unsupported_mixers(name: str) -> None:
    for changes in ({"encoder__mixer": name},
                    {"encoder__local": name})[: 1 if MIXERS[name].has_scores else 2]:
        (reason,) = find_unsupported_parts(architecture(**changes).block)
        assert reason.startswith("encoder.mixing: ") and reason.endswith("is not attention")


def test_lite_transformer_has_the_published_totals() -> None:
    """Wu et al. 2020 with width 496 and kernels 3, 7, 15, 31, 31, 31, computed per layer.

    EdgeFormer (table 4) prints 17.3M without the embedding, and 1.0G multiply-adds with the output
    for 30 source and 30 target tokens.
    """
    protocol = find_protocol("forward", 30, 30, 32768)
    breakdowns = []
    for kernel in (3, 7, 15, 31, 31, 31):
        # four sets of taps for half of the channels
        local = {"dynamic": {"kernel": kernel, "glu": True}}
        stack = {"depth": 1, "heads": 8, "local": local, "ffn": {"relu": {"hidden": 496}}}
        lite = Space.from_python({"width": 496, "norm": "post", "encoder": stack,
                                  "decoder": stack}).single_architecture()
        breakdowns.append(evaluate_cost(lite.block, protocol))
    params = sum(breakdown["params.encoder"] + breakdown["params.decoder"]
                 for breakdown in breakdowns)
    assert params == 17_283_616
    macs = sum(breakdown["macs.encoder"] + breakdown["macs.decoder"] for breakdown in breakdowns)
    assert f"{macs:.5g}" == "5.2875e+08"
    assert f"{macs + breakdowns[0]['macs.output']:.4g}" == "1.016e+09"
    assert lite.block.encoder.layer.mixer.main.heads == 4  # type: ignore[attr-defined]
