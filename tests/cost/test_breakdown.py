"""Laws of the ledger, and what protocols bind."""

from dataclasses import replace
from random import Random

import pytest

from scalesearch.cost import PROTOCOLS, evaluate_cost, find_protocol, load_protocol
from scalesearch.cost.modules import module_costs
from scalesearch.space.assembly.architecture import assemble
from scalesearch.space.schema.cost_names import COST_NAMES, COST_PARTS
from scalesearch.testing import random_architecture
from tests.architectures import transformer_config
from tests.cost.fits import fit_file
from tests.errors import refuses


def test_looking_a_token_up_is_free() -> None:
    for changes in ({}, {"embedding__positions": "learned"}, {"model": "decoder-only"}):
        assert evaluate_cost(assemble(transformer_config(**changes)).block,
                             find_protocol())["macs.embedding"] == 0


@pytest.mark.parametrize("name", PROTOCOLS)
def test_sections_add_up(name: str) -> None:
    rng = Random(1)
    for _ in range(30):
        c = evaluate_cost(random_architecture(rng).block,
                          find_protocol(name, rng.randint(1, 9), rng.randint(1, 9), 20))
        for quantity in ("params", "macs"):
            parts = [c[f"{quantity}.{section}"]
                     for section in ("embedding", "encoder", "decoder", "output")]
            assert sum(parts) == c[f"{quantity}.total"] == sum(
                getattr(entry, quantity) for entry in c.leaf_costs)
            assert c[f"{quantity}.non_embedding"] == c[f"{quantity}.total"] - c[
                f"{quantity}.embedding"]
        single = {kind: count
                  for kind, count in c.protocol.work_weights.items() if kind in ("norm", "bias")}
        # steps that are no multiply-adds are not doubled
        others = evaluate_cost(c.block, replace(c.protocol, work_weights=single))
        assert all(c[f"flops.{part}"] == 2 * c[f"macs.{part}"] - others[f"macs.{part}"]
                   for part in COST_PARTS)
        assert sum(row.macs for row in module_costs(c, 1)) == c["macs.total"]
        assert all(row.params >= 0 and row.macs >= 0 for row in module_costs(c, 4))


def test_every_name_of_the_language_is_a_cost(tmp_path) -> None:
    c = evaluate_cost(assemble(transformer_config()).block,
                      load_protocol({"artifact": "torch", "latency": fit_file(tmp_path)}))
    assert set(COST_NAMES) == {*c.values, *c.load_balance, *c.latency,
                               "refusals.ctranslate2"} - {"macs.once"}
    nested = c.to_json()
    assert all(nested[name.split(".")[0]][name.split(".")[1]] == c[name] for name in COST_NAMES)


def test_sharing_changes_params_and_never_macs() -> None:
    rng = Random(2)
    for _ in range(40):
        architecture = random_architecture(rng)
        plain = {
            path: ("own" if path.startswith("share.") and path.count(".") == 2 else value)
            for path, value in architecture.config.items()
        }
        shared, own = (evaluate_cost(one.block, find_protocol())
                       for one in (architecture, assemble(plain)))
        assert shared["macs.total"] == own["macs.total"]
        assert shared["params.total"] <= own["params.total"]


def test_protocols_order_as_the_work_does() -> None:
    """One pass does the least; a cache saves most of what re-running every prefix costs."""
    for model in ("encoder-decoder", "decoder-only"):
        block = assemble(transformer_config(model=model)).block
        once, cached, rerun = (
            evaluate_cost(block, find_protocol(name, 6, 8, 30))["macs.total"]
            for name in ("forward", "decode", "decode-uncached")
        )
        assert cached < once < rerun


def test_a_one_token_target_is_decoded_in_one_pass() -> None:
    block = assemble(transformer_config()).block
    costs = {evaluate_cost(block, find_protocol(name, 6, 1, 30))["macs.total"]
             for name in ("forward", "decode", "decode-uncached")}
    assert len(costs) == 1


def test_memory_of_a_small_model_by_hand() -> None:
    """2-2 layers, width 8: keys and values of 2 decoder layers, self over T and cross over S, 4 bytes each."""
    c = evaluate_cost(assemble(transformer_config()).block, find_protocol("forward", 5, 7, 30))
    assert c["memory.weights"] == 4 * c["params.total"]
    assert c["memory.cache"] == 4 * 2 * (8 + 8) * (7 + 5)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: find_protocol("foward"), ("unknown-protocol", "did you mean forward")),
        (lambda: find_protocol("forward", 0), ("below-one", "source is 0")),
        (lambda: find_protocol("forward", 1, 1, -5), ("below-one", "vocab is -5")),
    ],
)
def test_bad_protocols_say_what_would_be_right(call, error: tuple[str, str]) -> None:
    with refuses(*error):
        call()


def test_flags_win_over_the_files_protocol() -> None:
    chosen = load_protocol({"name": "decode", "source": 10, "vocab": 99}, name=None, source=4,
                           target=None, vocab=None)
    assert (chosen.name, chosen.source, chosen.target, chosen.vocab) == ("decode", 4, 30, 99)
    assert str(
        find_protocol("edgeformer")) == "edgeformer (S=30, T=30, V=32768, +5 per norm element)"
