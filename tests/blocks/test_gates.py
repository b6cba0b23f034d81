"""Gates of Anthe: computed values and causality."""

import copy

import pytest
import torch

from scalesearch.blocks.mixers.gates import GATES, Gating
from scalesearch.nn import build_model
from scalesearch.nn.causality import check_causality
from scalesearch.spaces.assembly.architecture import assemble
from tests.architectures import transformer_config
from tests.errors import refuses

V = 17
NAMED = [gate for gate in GATES if gate != "none"]


def model(own: str = "none", cross: str = "none"):
    config = transformer_config(encoder__gate=own, decoder__gate=own, decoder__cross_gate=cross)
    return build_model(assemble(config).block, vocab=V, dtype=torch.float64).eval()


@pytest.mark.parametrize("gate", NAMED)
def test_gates_are_causal_and_without_parameters(gate: str) -> None:
    plain = model()
    gated = model(gate, gate)
    assert sum(w.numel() for w in plain.parameters()) == sum(w.numel() for w in gated.parameters())
    check_causality(gated, V)


def test_all_gates_differ() -> None:
    source = torch.randint(4, V, (2, 5))
    target = torch.randint(4, V, (2, 5))
    outputs = {}
    for own, cross in [("none", "none"), *((g, "none") for g in NAMED),
                       *(("none", g) for g in NAMED)]:
        gated = model(own, cross)
        gated.load_state_dict(model().state_dict())
        outputs[own, cross] = gated(source, target)
    keys = list(outputs)
    same = [(a, b) for i, a in enumerate(keys)
            for b in keys[i + 1 :] if torch.allclose(outputs[a], outputs[b])]
    assert not same


def reference_attention(gate: str, cross: bool, m, x: torch.Tensor,
                        y: torch.Tensor) -> torch.Tensor:
    """Attention with heads of size 4 by its definition, per pair of positions."""
    role = {"Q": x, "K": y, "V": y}
    gating = gate[0]
    gated = gate[-1]
    other = next(r for r in "QKV" if r not in (gating, gated))
    aligned = not (cross and "Q" in (gating, gated))
    queries = x.shape[0]
    keys = y.shape[0]
    features = {}
    for t in range(queries):
        for j in range(keys):
            position = {"Q": t, "K": j, "V": j}
            gate_position = position if aligned is False else {**position, gating: position[gated]}
            raw = role[gating][gate_position[gating]]
            gate_values = torch.sigmoid(m.query(raw))
            part = role[gated][position[gated]]
            pair_features = {gating: role[gating][position[gating]],
                             other: m.key(role[other][position[other]])}
            pair_features[gated] = (m.value(part * gate_values) if aligned
                                    else m.value(part) * gate_values)
            features[t, j] = pair_features
    out = []
    for t in range(queries):
        heads = []
        for h in range(0, 8, 4):
            s = slice(h, h + 4)
            scores = torch.stack([(features[t, j]["Q"][s] * features[t, j]["K"][s]).sum() / 2
                                  for j in range(keys)])
            heads.append(sum(p * features[t, j]["V"][s] for j, p in enumerate(scores.softmax(0))))
        out.append(m.out(torch.cat(heads)))
    return torch.stack(out)


@pytest.mark.parametrize("gate", NAMED)
@pytest.mark.parametrize("cross", [False, True])
def test_gated_attention_equals_its_definition(gate: str, cross: bool) -> None:
    transformer = model(gate, gate)
    attention = (transformer.decoder.layers[0].cross_attention if cross
                 else transformer.encoder.layers[0].attention)
    x = torch.randn(3, 8, dtype=torch.float64)
    y = torch.randn(5, 8, dtype=torch.float64)
    y = y if cross else x
    output = attention(x[None], None, None, None, None, y[None] if cross else None)[0]
    expected = reference_attention(gate, cross, attention, x, y)
    assert torch.allclose(output, expected, rtol=0, atol=1e-12)


class PublishedGating(Gating):
    """QgV across sequences as in the published code: decoder position j gates key j."""

    def features(self, project, role, x):
        if role == "Q":
            object.__setattr__(self, "x", x)
        elif role == "V" and x.shape == self.x.shape:
            return project("value", x * project("query", self.x).sigmoid())
        return super().features(project, role, x) if role == "K" else x

    def gate_after_projection(self, gate, project, features, x):
        return features


def test_leak_of_the_published_gate_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    from scalesearch.blocks.mixers.attention import Attention

    causal_gating = Attention.gating
    leaking = PublishedGating("QgV", True)
    choose = property(lambda self: leaking if self.cross else causal_gating.func(self))
    monkeypatch.setattr(Attention, "gating", choose)
    with refuses("not-causal", "a later target token"):
        check_causality(copy.deepcopy(model("none", "QgV")), V)


def test_gates_and_identity_projections_require_the_model_width() -> None:
    with refuses("unbuildable", "width 8, not 10"):
        assemble(transformer_config(encoder__gate="QgV", encoder__head_dim=5))
    with refuses("unbuildable", "decoder.projections"):
        assemble(transformer_config(decoder__projections="identity", decoder__heads=4,
                                    decoder__score_heads=4))
