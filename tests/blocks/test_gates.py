"""Anthe's gates: what each computes, and that none sees what it must not."""

import copy

import pytest
import torch

from scalesearch.blocks.mixers.gates import GATES, Gating
from scalesearch.nn import build_model
from scalesearch.nn.causality import check_causality
from scalesearch.space.assembly.architecture import assemble
from tests.architectures import transformer_config
from tests.errors import refuses

V = 17
NAMED = [gate for gate in GATES if gate != "none"]


def model(own: str = "none", cross: str = "none"):
    drawn = transformer_config(encoder__gate=own, decoder__gate=own, decoder__cross_gate=cross)
    return build_model(assemble(drawn).block, vocab=V, dtype=torch.float64).eval()


@pytest.mark.parametrize("gate", NAMED)
def test_gates_cost_no_parameters_and_see_nothing_ahead(gate: str) -> None:
    plain = model()
    gated = model(gate, gate)
    assert sum(w.numel() for w in plain.parameters()) == sum(w.numel() for w in gated.parameters())
    check_causality(gated, V)


def test_every_gate_does_something() -> None:
    source = torch.randint(4, V, (2, 5))
    target = torch.randint(4, V, (2, 5))
    said = {}
    for own, cross in [("none", "none"), *((g, "none") for g in NAMED),
                       *(("none", g) for g in NAMED)]:
        made = model(own, cross)
        made.load_state_dict(model().state_dict())
        said[own, cross] = made(source, target)
    keys = list(said)
    same = [(a, b) for i, a in enumerate(keys)
            for b in keys[i + 1 :] if torch.allclose(said[a], said[b])]
    assert not same


def by_hand(gate: str, cross: bool, m, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Attention with heads of 4, pair by pair of positions, straight from the definition."""
    role = {"Q": x, "K": y, "V": y}
    gating = gate[0]
    gated = gate[-1]
    other = next(r for r in "QKV" if r not in (gating, gated))
    aligned = not (cross and "Q" in (gating, gated))
    queries = x.shape[0]
    keys = y.shape[0]
    made = {}
    for t in range(queries):
        for j in range(keys):
            at = {"Q": t, "K": j, "V": j}
            where = at if aligned is False else {**at, gating: at[gated]}
            raw = role[gating][where[gating]]
            opened = torch.sigmoid(m.query(raw))
            part = role[gated][at[gated]]
            found = {gating: role[gating][at[gating]], other: m.key(role[other][at[other]])}
            found[gated] = m.value(part * opened) if aligned else m.value(part) * opened
            made[t, j] = found
    out = []
    for t in range(queries):
        heads = []
        for h in range(0, 8, 4):
            s = slice(h, h + 4)
            scores = torch.stack([(made[t, j]["Q"][s] * made[t, j]["K"][s]).sum() / 2
                                  for j in range(keys)])
            heads.append(sum(p * made[t, j]["V"][s] for j, p in enumerate(scores.softmax(0))))
        out.append(m.out(torch.cat(heads)))
    return torch.stack(out)


@pytest.mark.parametrize("gate", NAMED)
@pytest.mark.parametrize("cross", [False, True])
def test_a_gate_is_its_definition(gate: str, cross: bool) -> None:
    made = model(gate, gate)
    attention = made.decoder.layers[0].cross_attention if cross else made.encoder.layers[
        0].attention
    x = torch.randn(3, 8, dtype=torch.float64)
    y = torch.randn(5, 8, dtype=torch.float64)
    y = y if cross else x
    found = attention(x[None], None, None, None, None, y[None] if cross else None)[0]
    assert torch.allclose(found, by_hand(gate, cross, attention, x, y), rtol=0, atol=1e-12)


class ByIndex(Gating):
    """QgV across sequences as the published code has it: key j is gated by the decoder's position j."""

    def features(self, project, role, x):
        if role == "Q":
            object.__setattr__(self, "x", x)
        elif role == "V" and x.shape == self.x.shape:
            return project("value", x * project("query", self.x).sigmoid())
        return super().features(project, role, x) if role == "K" else x

    def gate_after_projection(self, gate, project, features, x):
        return features


def test_the_published_gate_leaks_and_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from scalesearch.blocks.mixers.attention import Attention

    honest = Attention.gating
    leaking = ByIndex("QgV", True)
    choose = property(lambda self: leaking if self.cross else honest.fget(self))
    monkeypatch.setattr(Attention, "gating", choose)
    with refuses("not-causal", "a later target token"):
        check_causality(copy.deepcopy(model("none", "QgV")), V)


def test_raw_features_must_be_as_many_as_the_width() -> None:
    with refuses("unbuildable", "width 8, not 10"):
        assemble(transformer_config(encoder__gate="QgV", encoder__head_dim=5))
    with refuses("unbuildable", "decoder.projections"):
        assemble(transformer_config(decoder__projections="identity", decoder__heads=4, decoder__score_heads=4))
