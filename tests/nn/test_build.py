"""Modules built from blocks: ties, copies, initialization and incremental decoding."""

import copy
import pickle
from collections.abc import Mapping
from random import Random

import pytest
import torch

from scalesearch.blocks.core import PAD, Block, Shape, block
from scalesearch.nn import build_model
from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.build import build_module
from scalesearch.nn.decode import greedy_search
from scalesearch.nn.init import INIT_SCHEMES, fan_in, initialize
from scalesearch.spaces.assembly.architecture import assemble
from scalesearch.testing import random_architecture
from tests.architectures import transformer_config
from tests.blocks.catalog import CATALOG
from tests.errors import refuses

V = 19
EDGE = {
    "encoder.depth": 4,
    "decoder.interleaved": True,
    "share.encoder.attention": "cycle(2)",
    "share.encoder.ffn": "one",
    "share.decoder.self": "encoder.attention[2*i]",
    "share.decoder.cross": "encoder.attention[2*i + 1]",
}


def pairs(rng: Random, batch: int = 3, s: int = 5, t: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """Random source and target ids; shorter sources end with padding."""
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    source, target = (torch.randint(1, V, (batch, n), generator=generator) for n in (s, t))
    for row in range(1, batch):
        source[row, rng.randint(1, s) :] = PAD
    return source, target


def models(n: int, seed: int):
    rng = Random(seed)
    for index in range(n):
        architecture = random_architecture(rng)
        yield architecture, build_model(architecture.block, vocab=V, seed=index,
                                        dtype=torch.float64).eval(), rng


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10))
def test_incremental_decoding_equals_the_full_forward(seed: int) -> None:
    for architecture, model, rng in models(6, seed):
        source, target = pairs(rng)
        whole = model(source, target)
        memory = model.encode(source)
        cache = model.new_cache()
        steps = [model.logits(model.decode(target[:, t : t + 1], memory, cache))
                 for t in range(target.shape[1])]
        assert torch.allclose(torch.cat(steps, 1), whole, atol=1e-9), architecture.config


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
def test_decoding_continues_with_selected_rows(seed: int) -> None:
    for architecture, model, rng in models(4, seed):
        source, target = pairs(rng)
        rows = torch.tensor([2, 0, 0])
        memory = model.encode(source)
        cache = model.new_cache()
        model.decode(target[:, :3], memory, cache)
        memory = memory.select(rows)
        cache.select(rows)
        after = model.logits(model.decode(target[rows, 3:], memory, cache))
        assert torch.allclose(after, model(source[rows], target[rows])[:, 3:],
                              atol=1e-9), architecture.config


@pytest.mark.parametrize("seed", range(5))
def test_attention_kernels_agree(seed: int) -> None:
    for architecture, model, rng in models(4, seed):
        source, target = pairs(rng)
        model.set_attention("products")
        products = model(source, target)
        model.set_attention("fused")
        assert torch.allclose(products, model(source, target), atol=1e-9), architecture.config


def test_shared_weights_are_saved_once_and_stay_tied() -> None:
    architecture = assemble(transformer_config() | EDGE)
    model = build_model(architecture.block, vocab=V)
    state = model.state_dict()
    assert [key for key in state if key.startswith("decoder.layers.0.self_attention.")] == []
    assert "encoder.layers.2.attention.query.weight" not in state
    assert "output.weight" not in state and "embedding.target.table.weight" not in state
    assert sum(w.numel() for w in state.values()) == sum(w.numel() for w in model.parameters())
    owner = model.encoder.layers[0].attention.query.weight
    assert model.decoder.layers[0].self_attention.query.weight is owner
    assert model.encoder.layers[2].attention.query.weight is owner
    model.double()
    assert model.decoder.layers[0].self_attention.query.weight is model.encoder.layers[
        0].attention.query.weight
    fresh = build_model(architecture.block, vocab=V, seed=2)
    fresh.load_state_dict(state)
    source, target = pairs(Random(1))
    assert torch.equal(fresh.eval()(source, target), model.float().eval()(source, target))


@pytest.mark.full
@pytest.mark.parametrize("copy_model",
                         [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_are_independent_and_keep_their_ties(copy_model) -> None:
    for architecture, model, rng in models(10, 6):
        source, target = pairs(rng)
        copied = copy_model(model)
        assert torch.equal(copied(source, target), model(source, target))
        with torch.no_grad():
            for weight in copied.parameters():
                weight.add_(torch.randn_like(weight))
        assert not torch.equal(copied(source, target), model(source, target)), architecture.config
        assert sum(p.numel() for p in copied.parameters()) == sum(
            p.numel() for p in model.parameters())


def test_sharing_of_biases_and_norms() -> None:
    changes = {"share.encoder.attention": "one", "share.biases": "own", "share.norms": "follow"}
    model = build_model(assemble(transformer_config() | changes).block, vocab=V)
    first, second = (layer.attention.query for layer in model.encoder.layers)
    assert first.weight is second.weight and first.bias is not second.bias
    norms = [layer.attention_norm for layer in model.encoder.layers]
    assert norms[0].weight is norms[1].weight


def test_seed_and_scheme_determine_the_weights() -> None:
    block = assemble(transformer_config()).block
    model, equal_model, other_model = (build_model(block, vocab=V, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), equal_model.parameters()))
    assert not all(torch.equal(a, b) for a, b in zip(model.parameters(), other_model.parameters()))
    assert torch.equal(model.embedding.source.table.weight[PAD], torch.zeros(8))
    for scheme in ("xavier", "released", "torch"):
        weights = build_model(block, vocab=V, init=scheme).parameters()
        assert all(torch.isfinite(weight).all() for weight in weights)
    with refuses("unknown-scheme", "xavier"):
        build_model(block, vocab=V, init="xavir")


@pytest.mark.full
@pytest.mark.parametrize("scheme", INIT_SCHEMES)
def test_all_schemes_initialize_all_blocks(scheme: str) -> None:
    for name, draw in CATALOG.items():
        for seed in range(4):
            module = build_module(draw(Random(seed)).block, vocab=V)
            for weight in module.parameters():
                weight.data.fill_(torch.nan)
            initialize(module, scheme, 1)
            assert all(torch.isfinite(weight).all() for weight in module.parameters()), (name, seed)


@block
class TwoMatrices(Block):
    """Talking heads: two matrices in one leaf, neither of which is called ``weight``."""

    init: str = "scheme"

    def weights(self) -> Mapping[str, Shape]:
        return {"before": (3, 5), "after": (2, 4, 3), "bias": (4,)}

    def initialization(self, name: str) -> str:
        return "heads" if name == "after" else self.init


@pytest.mark.parametrize("scheme", INIT_SCHEMES)
def test_matrices_of_a_leaf_may_have_any_names(scheme: str) -> None:
    module = build_module(TwoMatrices(), vocab=V)
    for weight in module.parameters():
        weight.data.fill_(torch.nan)
    initialize(module, scheme, 1)
    assert all(torch.isfinite(weight).all() for weight in module.parameters())
    inputs = [fan_in(module.block, name) for name in ("before", "after", "bias")]
    assert inputs == [5, 3, 5], "the bias is that of the first matrix"


def test_unknown_initializations_of_blocks_are_errors() -> None:
    with refuses("unknown-initialization", "TwoMatrices", "before", "xavier", "scheme"):
        build_module(TwoMatrices("xavier"), vocab=V)


def test_learned_positions_reject_longer_sequences() -> None:
    config = transformer_config(embedding__positions="learned", embedding__max_length=4)
    block = assemble(config).block
    model = build_model(block, vocab=V)
    with refuses("sentence-too-long", 4):
        model(torch.ones(1, 5, dtype=torch.long), torch.ones(1, 3, dtype=torch.long))
    assert model.max_length == 4
    assert build_model(assemble(transformer_config()).block, vocab=V).max_length is None


@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder-only"])
def test_decoding_stays_within_learned_positions(kind: str) -> None:
    block = assemble(transformer_config(model=kind, embedding__positions="learned",
                                        embedding__max_length=8)).block
    model = build_model(block, vocab=V).eval()
    source = torch.full((2, 5), 7)
    for hypotheses in (greedy_search(model, source), beam_search(model, source, 2)):
        assert max(map(len, hypotheses.best_ids())) <= 8


@pytest.mark.slow
def test_models_compile() -> None:
    for config in (transformer_config() | EDGE, transformer_config(model="decoder-only")):
        architecture = assemble(config)
        model = build_model(architecture.block, vocab=V).eval()
        source, target = pairs(Random(2))
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        assert torch.allclose(compiled(source, target), model(source, target), atol=1e-5)
