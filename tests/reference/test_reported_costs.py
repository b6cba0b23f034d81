"""Costs reported by the papers, compared with an independent recomputation."""

from collections import Counter
from functools import cache

import pytest

from scalesearch.blocks.core import iterate_cost_lines
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.cost.protocol import weight_numel
from scalesearch.library import find_file, library_folder
from scalesearch.reference import (
    COMMON_PROTOCOL,
    PAPERS,
    excluded_rows,
    load_reported_costs,
    recompute,
)
from scalesearch.reference.recompute import (
    classify_agreement,
    load_reference_model,
    load_reference_space,
    round_like,
)
from scalesearch.reference.reported_costs import read_paper
from scalesearch.spaces import Space, read_space
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.spaces.parameters.param_values import ParamValues
from tests.errors import refuses

ROWS = [row for paper in PAPERS for row in load_reported_costs(paper)]
FILES = sorted({(row.file, tuple(row.settings.items()), row.space) for row in ROWS})
KEYS = {"table", "row", "file", "vocab", "set", "layer", "why", "note"}


@cache
def shipped(name: str) -> Space:
    return read_space(find_file(name, "spaces"))


def reference_config(file: str, settings: tuple) -> ParamValues:
    space = load_reference_space(file, settings)
    assert space.parameters() == [], "reference files have no parameters"
    return space.resolve(space.replay_values({}))


@pytest.mark.parametrize("paper", PAPERS)
def test_recomputed_costs_equal_the_independent_recomputation(paper: str) -> None:
    """Only rows that do not fit have a reason."""
    entries = [(row, recompute(row)) for row in load_reported_costs(paper)]
    assert [row for row, entry in entries
            if round_like(entry.recomputed, row.recomputed_text) != row.recomputed_text] == []
    assert [row for row, entry in entries
            if bool(row.mismatch_reason) != (entry.agreement.name == "no fit")] == []


def counts(paper: str, quantity: str) -> Counter:
    return Counter(str(recompute(row).agreement)
                   for row in load_reported_costs(paper) if row.quantity == quantity)


def test_agreement_with_partialformer() -> None:
    """9 distinct models are truncated and 3 rounded up; Tables 6, 18 and 20 do not fit."""
    assert counts("partialformer", "params.total") == {
        "equal": 42, "rounding (floor)": 11, "rounding (ceil)": 3, "no fit": 7
    }  # fmt: skip
    rows = [row for row in load_reported_costs("partialformer") if row.quantity == "params.total"]
    agreement_of = {(row.file, row.protocol.vocab, row.reported_text): str(recompute(row).agreement)
                    for row in rows}
    assert Counter(agreement_of.values())["rounding (floor)"] == 9
    assert Counter(agreement_of.values())["rounding (ceil)"] == 3
    unfit = [(row.table, row.reported_text)
             for row in rows if recompute(row).agreement.name == "no fit"]
    quoted = [("1", "151M"), ("3", "192M")]
    assert sorted(set(unfit) - set(quoted)) == [("18", "67M"), ("20", "143M"), ("6", "37M")]
    assert counts("partialformer", "macs.total") == {
        "equal": 1, "rounding (floor)": 2, "rounding (ceil)": 3, "no fit": 1
    }  # fmt: skip


def test_agreement_with_anthe() -> None:
    """All own translation models are truncated to millions; only two quoted rows do not fit."""
    own = [row
           for row in load_reported_costs("anthe") if row.table != "7" and not row.mismatch_reason]
    assert len(own) == 27
    assert all(round_like(recompute(row).recomputed, row.reported_text, "floor")
               == row.reported_text for row in own)
    assert counts("anthe", "params.total") == {"equal": 15, "rounding (floor)": 15, "no fit": 2}


@pytest.mark.parametrize(
    ("file", "matrix", "cores", "cheaper"),
    [
        ("anthe-b", "1.952G", "1.952G", "1.952G"),
        ("anthe", "1.957G", "1.390G", "1.249G"),
        ("anthe-ff-chain", "1.957G", "2.983G", "1.957G"),
    ],
)
def test_macs_of_tensor_chains_of_anthe(file: str, matrix: str, cores: str, cheaper: str) -> None:
    """32 source and 32 target tokens; chains are applied as a matrix, by cores, or the cheaper."""
    lengths = find_protocol("forward", 32, 32, 32000)
    for application, expected in (("matrix", matrix), ("cores", cores), ("auto", cheaper)):
        architecture = load_reference_model(file, (("tensor_chain.apply", application),))
        assert round_like(evaluate_cost(architecture.block, lengths)["macs.total"],
                          expected) == expected


def test_agreement_with_edgeformer() -> None:
    """46 of 56 params and 51 of 56 "FLOPS" agree, equal to the independent recomputation."""
    assert counts("edgeformer", "params.non_embedding") == {"equal": 46, "no fit": 10}
    assert counts("edgeformer", "macs.total") == {"equal": 51, "no fit": 5}


def test_params_of_matrices_only_agree_as_the_reason_states() -> None:
    """It agrees with the cells whose reason names it, and with no vanilla decoder cell."""
    cells = [row
             for row in ROWS
             if row.paper == "EdgeFormer" and row.layer and row.quantity == "params.non_embedding"]
    assert len(cells) == 9
    for row in cells:
        lines = iterate_cost_lines(getattr(recompute(row).architecture.block, row.layer).layer)
        alone = sum(line.weight_copies[name] * weight_numel(shape, 1) for line in lines
                    for name, shape in line.weights.items() if len(shape) == 2)
        named = "only matrices" in row.mismatch_reason
        assert named or "vanilla decoder" in row.model_name or not row.mismatch_reason
        assert (round_like(alone, row.reported_text) == row.reported_text) == (
            named or row.model_name.endswith("encoder layer")), row.model_name


def test_sixteen_heads_agree_with_table_6_as_the_reason_states() -> None:
    space = load_reference_space("partialformer-6-6-d400-h24-16", (("encoder.heads", "16"),))
    totals = set()
    # the bounds of the vocabularies that give 61M in the previous row, with either rounding
    for vocab in (31_953, 34_881):
        baseline = evaluate_cost(load_reference_model("partialformer-baseline-6-6-d512").block,
                                 find_protocol("delight", vocab=vocab))
        assert {round_like(baseline["params.total"], "61M", rounding)
                for rounding in ("nearest", "floor")} & {"61M"}
        params = evaluate_cost(space.single_architecture().block,
                               find_protocol("delight", vocab=vocab))["params.total"]
        totals.add(f"{params / 1e6:.2f}M")
    (reason,) = (row.mismatch_reason
                 for row in ROWS
                 if (row.paper, row.table, row.reported_text) == ("PartialFormer", "6", "37M"))
    assert totals == {"37.42M", "38.59M"} and all(number in reason for number in totals)


@pytest.mark.parametrize(("file", "settings", "space"), FILES)
def test_spaces_contain_the_architectures_of_their_paper(
        file: str, settings: tuple, space: str) -> None:
    config = reference_config(file, settings)
    assert not space or (shipped(space).contains(config) and shipped("slim").contains(config))


def test_space_does_not_contain_other_architectures() -> None:
    config = reference_config("edgeformer", ())
    assert not shipped("edgeformer").with_overrides({"share.decoder.ffn": "own"}).contains(config)
    assert not shipped("edgeformer").with_overrides({"decoder.depth": "6"}).contains(config)
    assert not Space.parse("width: 64 | 512").contains(config)


def test_reference_files_are_in_a_table_and_have_their_name() -> None:
    shipped_files = {path.stem: path
                     for path in (library_folder("spaces") / "reference").glob("*.yaml")}
    assert set(shipped_files) == {row.file for row in ROWS}
    for name, path in shipped_files.items():
        assert read_space(path).name == name
        assert find_file(f"reference/{name}", "spaces") == path


def test_misspelled_file_suggests_similar_names() -> None:
    with refuses("no-such-file", "reference/anthe-no-patt?"):
        find_file("reference/anthe-no-pat", "spaces")


def test_tables_have_only_known_keys() -> None:
    for paper in PAPERS:
        for entry in read_paper(paper)["rows"]:
            assert all("." in key or key in KEYS for key in entry), entry
        assert all(set(item) == {"rows", "why"} for item in excluded_rows(paper))


def models(layers: int) -> dict[str, ModelSpec]:
    """Distinct networks with at most ``layers`` layers, by the names of their files."""
    architectures = {row.file: load_reference_model(row.file) for row in ROWS if not row.settings}
    distinct = {architecture.id: file for file, architecture in architectures.items()}
    depths = {file: sum(architectures[file].config.get(f"{stack}.depth", 0)
                        for stack in ("encoder", "decoder")) for file in distinct.values()}
    return {file: architectures[file] for file, depth in depths.items() if depth <= layers}


@pytest.mark.full
def test_reference_architectures_can_be_built() -> None:
    """The numbers of parameters on the meta device are the costs; the next test has deep models."""
    from scalesearch.nn.build import build_model

    chosen = models(layers=16)
    assert len(chosen) > 40
    for file, architecture in chosen.items():
        model = build_model(architecture.block, vocab=32768, device="meta")
        assert (sum(weight.numel() for weight in model.parameters())
                == evaluate_cost(architecture.block, COMMON_PROTOCOL)["params.total"]), file


@pytest.mark.slow
def test_costs_of_reference_architectures_equal_pytorch_and_fvcore() -> None:
    """Params and MACs under the common protocol."""
    from scalesearch.nn.verify import verify_costs

    for file, architecture in models(layers=99).items():
        assert all(check.is_equal
                   for check in verify_costs(architecture.block, 30, 30, 32768)), file


@pytest.mark.parametrize(
    ("printed", "exact", "roundings", "agreement"),
    [
        ("62M", 62_175_600, (), "equal"),
        ("62M", 61_500_000, (), "equal"),
        ("115M", 115_639_040, ("floor",), "rounding (floor)"),
        ("115M", 115_639_040, (), "no fit"),
        ("64M", 63_344_880, ("floor", "ceil"), "rounding (ceil)"),
        ("1.84G", 1_843_415_040, (), "equal"),
        ("37M", 41_049_988, ("floor", "ceil"), "no fit"),
    ],
)
def test_agreement_depends_on_the_printed_digits(
        printed: str, exact: int, roundings: tuple, agreement: str) -> None:
    assert str(classify_agreement(printed, exact, roundings)) == agreement
