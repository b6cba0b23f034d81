"""From answers to networks: identity, and what cannot be built."""

import pytest

from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.space import Space
from scalesearch.space.assembly.architecture import UnbuildableError, assemble
from tests.architectures import transformer_config
from tests.errors import refuses


def identity(**changes) -> str:
    return assemble(transformer_config(**changes)).id


def test_two_sheets_of_one_network_have_one_id() -> None:
    assert identity(share__encoder__attention="cycle(2)") == identity()
    assert identity(share__encoder__attention="runs(2)") == identity(
        share__encoder__attention="one")
    assert identity(
        share__encoder__attention=[3, 3]) == identity(share__encoder__attention="sequence(1)")
    assert identity(embedding__max_length=99) == identity(), "a length that sinusoids do not use"
    assert identity(model="decoder-only", encoder__depth=9) == identity(model="decoder-only")
    assert identity(decoder__interleaved=True, decoder__ffn="none") == identity(decoder__ffn="none")
    assert identity(
        encoder__key_value_heads=2) == identity(), "as many heads of keys and values as of queries"
    borrowed = {"encoder__depth": 4, "share__encoder__attention": "cycle(2)"}
    assert identity(**borrowed, share__decoder__self="encoder.attention[2*i]") == identity(
        **borrowed, share__decoder__self="encoder.attention[0]"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"width": 9},
        {"norm": "post"},
        {"encoder__depth": 3},
        {"encoder__heads": 4},
        {"decoder__head_dim": 5},
        {"decoder__interleaved": True},
        {"encoder__key_value_heads": 1},
        {"embedding__tie": "none"},
        {"embedding__positions": "learned"},
        {"share__decoder__cross": "one"},
        {"share__encoder__ffn": "one", "share__biases": "own"},
        {"encoder__ffn": "gelu"},
    ],
)
def test_another_network_has_another_id(change) -> None:
    assert identity(**change) != identity()


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [({"share__encoder__ffn": "runs(1, 11)"}, "share.encoder.ffn",
      "has 12 layers, but there are 2"),
     ({"encoder__score_heads": 3}, "encoder.score_heads", "are not a multiple of 3 score heads"),
     ({"share__decoder__self": "encoder.attention[2*i]"}, "share.decoder.self",
      "refers to encoder layer 2"),
     ({"share__decoder__ffn": "decoder.self[i]"}, "share.decoder.ffn",
      "only decoder layers can be tied"),
     ({"share__decoder__self": "encoder.ffn[i]"}, "share.decoder.self", "only one of them is"),
     ({"share__decoder__self": "encoder.attention[i]", "encoder__heads": 4}, "share.decoder.self",
      "encoder.heads is 4, decoder.heads is 2"),
     ({"share__decoder__cross": "encoder.attention[i]", "encoder__pg": "relu",
       "encoder__pg__on": "both", "encoder__pg__ratio": 2, "encoder__pg__per_head": False,
       "encoder__pg__gate": "none", "encoder__pg__residual": False,
       "encoder__pg__activation": "relu"}, "share.decoder.cross",
      "encoder.pg is relu, decoder.pg is none"),
     ({"share__decoder__ffn": "encoder.ffn[i]", "encoder__ffn__hidden": 9}, "share.decoder.ffn",
      "encoder.ffn.hidden is 9, decoder.ffn.hidden is"),
     ({"share__decoder__self": "encoder.attention[i/2]"}, "share.decoder.self",
      "refers to encoder layer None"),
     ({"embedding": "adaptive", "embedding__cutoffs": (40, 10), "embedding__factor": 2,
       "vocab": 100}, "embedding.cutoffs", "cutoffs must increase, unlike [40, 10]"),
     ({"share__encoder__attention": "cicle(2)"}, "share.encoder.attention", "no such schedule")])
def test_what_cannot_be_built_says_where_and_why(change, path: str, reason: str) -> None:
    with pytest.raises(UnbuildableError) as caught:
        assemble(transformer_config(**change))
    assert caught.value.key == path
    assert reason in caught.value.reason


def test_borrowed_attention_is_billed_once() -> None:
    protocol = find_protocol("forward", 4, 4, 10)
    borrow = {"share__decoder__self": "encoder.attention[i]",
              "share__decoder__cross": "encoder.attention[i]"}
    own, lent = (evaluate_cost(assemble(transformer_config(**changes)).block, protocol)
                 for changes in ({}, borrow))
    attention = 4 * (8 * 8 + 8)
    assert own["params.decoder"] - lent["params.decoder"] == 2 * 2 * attention
    assert own["macs.total"] == lent["macs.total"]


def test_a_closed_space_is_one_architecture_and_an_open_one_names_its_keys():
    space = Space.parse("width: 64\nencoder: {depth: 2 | 4, heads: 2}\ndecoder: {depth: 2, heads: "
                        "2}\n", "small.yaml")
    with refuses("open-parameters", "small.yaml", "encoder.depth"):
        space.single_architecture()
    with refuses("open-parameters", "encoder.depth", place="teacher: it"):
        space.single_architecture("teacher: it")
    closed = space.with_overrides({"encoder.depth": "4"})
    assert closed.single_architecture() == next(
        closed.architecture(answers) for answers in closed.enumerate())
