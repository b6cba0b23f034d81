"""Bundles: one file with the blocks of a model, without imports of this package."""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
import torch

from scalesearch.blocks.core import block
from scalesearch.blocks.ffn import FFN, FFNS, register_ffn
from scalesearch.blocks.maps.linear_factories import DENSE
from scalesearch.export.huggingface import bundle as bundling
from scalesearch.export.huggingface.bundle import bundle_source, format_block
from scalesearch.nn import build_model
from scalesearch.spaces.assembly.architecture import assemble
from scalesearch.testing import random_architecture
from tests.architectures import transformer_config
from tests.blocks.test_own_ffn import Grouped
from tests.errors import refuses
from tests.nn.covering import covering
from tests.nn.test_build import EDGE, pairs

V = 19
ALLOWED = {"__future__", "torch", "transformers", "numpy", *sys.stdlib_module_names}


class Anything(ModuleType):
    """A library of empty classes in place of transformers if it is not installed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return (lambda function: function) if name.islower() else type(name, (), {})


@pytest.fixture(autouse=True)
def without_transformers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("transformers", "transformers.modeling_outputs", "transformers.utils.generic"):
        monkeypatch.setitem(sys.modules, name, Anything(name))
    yield


def loaded(network: Any, folder: Path, name: str) -> Any:
    """The bundle of ``network`` as a module, after a check of its imports."""
    file = folder / f"{name}.py"
    file.write_text(bundle_source(network, "A model."))
    nodes = list(ast.walk(ast.parse(file.read_text())))
    places = [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    places += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    assert {str(place).split(".")[0] for place in places} <= ALLOWED
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


def same(network: Any, folder: Path, name: str) -> Any:
    """The bundle, after a check that it gives equal logits, also step by step."""
    model = build_model(network, vocab=V, seed=3).eval()
    module = loaded(network, folder, name)
    bundled = module.build_model(module.ARCHITECTURE, vocab=V, seed=3).eval()
    assert [(key, weight.tolist()) for key, weight in bundled.state_dict().items()] == [
        (key, weight.tolist()) for key, weight in model.state_dict().items()]
    source, target = pairs(Random(1))
    with torch.no_grad():
        memory = bundled.encode(source)
        cache = module.DecodingCache()
        assert torch.equal(bundled.logits(bundled.decode(target, memory)), model(source, target))
        rows = torch.tensor([2, 0, 0])
        model_memory = model.encode(source)
        model_cache = model.new_cache()
        for token in target.split(1, 1):
            stepped = [decoder.logits(decoder.decode(token, states, past))
                       for decoder, states, past in ((bundled, memory, cache),
                                                     (model, model_memory, model_cache))]
            assert torch.equal(*stepped)
        cache.select(rows), model_cache.select(rows)
        memory = memory.select(rows)
        model_memory = model_memory.select(rows)
        reordered = [decoder.logits(decoder.decode(token, states, past))
                     for decoder, states, past in ((bundled, memory, cache),
                                                   (model, model_memory, model_cache))]
        assert torch.equal(*reordered)
    return module


@pytest.mark.full
def test_random_networks_of_all_families_give_equal_logits(tmp_path):
    rng = Random(5)
    for number, architecture in enumerate([*covering(rng, 6),
                                           random_architecture(rng, model="decoder-only")]):
        same(architecture.block, tmp_path, f"network{number}")


def test_shared_and_tied_weights_are_kept(tmp_path):
    module = same(
        assemble(transformer_config(**{"decoder.depth": 2, **EDGE})).block, tmp_path, "edge"
    )
    assert (
        "CrossStackTie" in vars(module)
        and "ExplicitAttention" in vars(module)
        and "ChainLinear" not in vars(module)
    )


def test_registered_block_is_bundled(tmp_path):
    register_ffn("maxout")(Grouped)
    try:
        changes = {f"encoder.ffn.{key}": value
                   for key, value in {"hidden": 8, "pieces": 2, "groups": 2, "activation": "tanh",
                                      "skip": True}.items()}
        network = assemble(transformer_config(**{"encoder.ffn": "maxout", **changes})).block
    finally:
        del FFNS["maxout"]
    assert "Grouped" in vars(same(network, tmp_path, "own"))


def test_bundle_has_only_needed_code(tmp_path):
    text = bundle_source(assemble(transformer_config()).block, "A model.")
    # the same file for the same architecture
    assert text == bundle_source(assemble(transformer_config()).block, "A model.")
    assert "def loop_nests(" not in text and "validate" in text and "# A plain dict" in text
    assert max(map(len, text.splitlines())) <= 120


@block
class DecodingCache(FFN):
    """A block with the name of another class."""


def test_two_definitions_of_a_name_are_refused():
    with refuses("name-taken", "scalesearch.nn.model"):
        bundle_source(DecodingCache(4, ("src",), DENSE), "A model.")


@pytest.mark.parametrize(("name", "top", "body"),
                         [("renamed", "from scalesearch.blocks.leaves import Linear as Map",
                           "return Map(4, 4, self.over).forward(m, x)"),
                          ("whole", "import scalesearch.blocks.leaves",
                           "return scalesearch.blocks.leaves.Linear(4, 4, ()).forward(m, x)"),
                          ("module", "from scalesearch.blocks import leaves",
                           "return leaves.Linear(4, 4, self.over).forward(m, x)"),
                          ("inside", "",
                           "from scalesearch.blocks.elementwise import plus; return plus(x, x)")])
def test_unresolvable_imports_are_refused(name, top, body, tmp_path, monkeypatch):
    (tmp_path / f"somebodys_{name}.py").write_text(
        "from scalesearch.blocks.core import block\nfrom scalesearch.blocks.ffn "
        f"import FFN\n{top}\n\n@block\nclass Own(FFN):\n    def forward(self, m, x):\n     "
        f"   {body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with refuses("not-bundled", f"somebodys_{name}"):
        bundle_source(importlib.import_module(f"somebodys_{name}").Own(4, ("src",), DENSE),
                      "A model.")


def test_architecture_is_written_as_literal():
    network = assemble(transformer_config(**EDGE)).block
    assert eval(format_block(network),
                {kind.__name__: kind for kind in bundling._block_classes(network)}) == network
