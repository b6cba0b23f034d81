"""The papers' tables: every recomputed number is the independent one's, to the last digit that it gives."""

from collections import Counter
from functools import cache

import pytest

from scalesearch.blocks.core import iterate_cost_lines
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.cost.protocol import weight_numel
from scalesearch.library import find_file, library_folder
from scalesearch.reference import COMMON_PROTOCOL, PAPERS, ReportedCost, excluded_rows, load_reported_costs, recompute
from scalesearch.reference.recompute import classify_agreement, load_reference_model, load_reference_space, round_like
from scalesearch.reference.reported_costs import read_paper
from scalesearch.space import Space, read_space
from scalesearch.space.assembly.architecture import ModelSpec
from scalesearch.space.parameters.param_values import ParamValues
from tests.errors import refuses

ROWS = [row for paper in PAPERS for row in load_reported_costs(paper)]
NAMES = [f"{row.paper}-{row.table}-{row.model_name}-{row.quantity}" for row in ROWS]
FILES = sorted({(row.file, tuple(row.settings.items()), row.space) for row in ROWS})
KEYS = {"table", "row", "file", "vocab", "set", "layer", "why", "note"}


@cache
def shipped(name: str) -> Space:
    return read_space(find_file(name, "spaces"))


def sheet(file: str, settings: tuple) -> ParamValues:
    space = load_reference_space(file, settings)
    assert space.parameters() == [], "a reference file leaves nothing to choose"
    return space.resolve(space.replay_values({}))


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_every_number_is_the_independent_one(row: ReportedCost) -> None:
    entry = recompute(row)
    assert round_like(entry.recomputed, row.recomputed_text) == row.recomputed_text
    assert bool(row.mismatch_reason) == (
        entry.agreement.name == "no fit"), "what fits nothing says what is known, nothing else does"


def counts(paper: str, quantity: str) -> Counter:
    return Counter(str(recompute(row).agreement)
                   for row in load_reported_costs(paper) if row.quantity == quantity)


def test_verdicts_on_partialformer() -> None:
    """Of distinct models 9 are cut, 3 rounded up; Tables 6 and 20 fit nothing, Table 18 contradicts Table 1."""
    assert counts("partialformer", "params.total") == {
        "equal": 42, "rounding (floor)": 11, "rounding (ceil)": 3, "no fit": 7
    }  # fmt: skip
    rows = [row for row in load_reported_costs("partialformer") if row.quantity == "params.total"]
    found = {(row.file, row.protocol.vocab, row.reported_text): str(recompute(row).agreement)
             for row in rows}
    assert Counter(found.values())["rounding (floor)"] == 9
    assert Counter(found.values())["rounding (ceil)"] == 3
    unfit = [(row.table, row.reported_text)
             for row in rows if recompute(row).agreement.name == "no fit"]
    quoted = [("1", "151M"), ("3", "192M")]
    assert sorted(set(unfit) - set(quoted)) == [("18", "67M"), ("20", "143M"), ("6", "37M")]
    assert counts("partialformer", "macs.total") == {
        "equal": 1, "rounding (floor)": 2, "rounding (ceil)": 3, "no fit": 1
    }  # fmt: skip


def test_verdicts_on_anthe() -> None:
    """Every row of its own translation models is cut to millions; the two that fit nothing are quoted."""
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
def test_macs_of_anthes_chains(file: str, matrix: str, cores: str, cheaper: str) -> None:
    """One pair of 32 and 32 tokens: each chain built into its matrix, applied core by core, or whichever is less."""
    lengths = find_protocol("forward", 32, 32, 32000)
    for how, expected in (("matrix", matrix), ("cores", cores), ("auto", cheaper)):
        architecture = load_reference_model(file, (("tensor_chain.apply", how),))
        assert round_like(evaluate_cost(architecture.block, lengths)["macs.total"],
                          expected) == expected


def test_verdicts_on_edgeformer() -> None:
    """46 of 56 params and 51 of 56 "FLOPS" are reproduced: as many as in the independent recomputation."""
    assert counts("edgeformer", "params.non_embedding") == {"equal": 46, "no fit": 10}
    assert counts("edgeformer", "macs.total") == {"equal": 51, "no fit": 5}


def test_the_reading_of_matrices_alone_is_as_the_reason_says() -> None:
    """It fits the cells whose reason names it, and none of the vanilla decoder cells of their column."""
    cells = [row
             for row in ROWS
             if row.paper == "EdgeFormer" and row.layer and row.quantity == "params.non_embedding"]
    assert len(cells) == 9
    for row in cells:
        lines = iterate_cost_lines(getattr(recompute(row).architecture.block, row.layer).layer)
        alone = sum(line.weight_copies[name] * weight_numel(shape, 1) for line in lines
                    for name, shape in line.weights.items() if len(shape) == 2)
        named = "matrices alone" in row.mismatch_reason
        assert named or "vanilla decoder" in row.model_name or not row.mismatch_reason
        assert (round_like(alone, row.reported_text) == row.reported_text) == (
            named or row.model_name.endswith("encoder layer")), row.model_name


def test_sixteen_heads_would_fit_table_6_as_its_reason_says() -> None:
    space = load_reference_space("partialformer-6-6-d400-h24-16", (("encoder.heads", "16"),))
    found = set()
    # the ends of what gives the 61M of the row before, rounded either way
    for vocab in (31_953, 34_881):
        baseline = evaluate_cost(load_reference_model("partialformer-baseline-6-6-d512").block,
                                 find_protocol("delight", vocab=vocab))
        assert {round_like(baseline["params.total"], "61M", by)
                for by in ("nearest", "floor")} & {"61M"}
        params = evaluate_cost(space.single_architecture().block,
                               find_protocol("delight", vocab=vocab))["params.total"]
        found.add(f"{params / 1e6:.2f}M")
    (why,
     ) = (row.mismatch_reason
          for row in ROWS
          if (row.paper, row.table, row.reported_text) == ("PartialFormer", "6", "37M"))
    assert found == {"37.42M", "38.59M"} and all(number in why for number in found)


@pytest.mark.parametrize(("file", "settings", "space"), FILES)
def test_every_architecture_is_in_its_papers_space_and_in_slim(
        file: str, settings: tuple, space: str) -> None:
    answers = sheet(file, settings)
    assert not space or (shipped(space).contains(answers) and shipped("slim").contains(answers))


def test_a_space_does_not_hold_what_it_cannot_answer() -> None:
    answers = sheet("edgeformer", ())
    assert not shipped("edgeformer").with_overrides({"share.decoder.ffn": "own"}).contains(answers)
    assert not shipped("edgeformer").with_overrides({"decoder.depth": "6"}).contains(answers)
    assert not Space.parse("width: 64 | 512").contains(answers)


def test_every_file_is_in_a_table_and_bears_its_name() -> None:
    shipped_files = {path.stem: path
                     for path in (library_folder("spaces") / "reference").glob("*.yaml")}
    assert set(shipped_files) == {row.file for row in ROWS}
    for name, path in shipped_files.items():
        assert read_space(path).name == name
        assert find_file(f"reference/{name}", "spaces") == path


def test_a_misspelt_file_is_answered_with_the_nearest() -> None:
    with refuses("no-such-file", "reference/anthe-no-patt?",
                 f"reference/… ({len({row.file for row in ROWS})})"):
        find_file("reference/anthe-no-pat", "spaces")


def test_the_tables_use_the_keys_that_are_read() -> None:
    for paper in PAPERS:
        for entry in read_paper(paper)["rows"]:
            assert all("." in key or key in KEYS for key in entry), entry
        assert all(set(item) == {"rows", "why"} for item in excluded_rows(paper))


def models(layers: int) -> dict[str, ModelSpec]:
    """Distinct whole networks with at most so many layers, by their files."""
    found = {row.file: load_reference_model(row.file) for row in ROWS if not row.settings}
    distinct = {architecture.id: file for file, architecture in found.items()}
    depths = {file: sum(found[file].config.get(f"{stack}.depth", 0)
                        for stack in ("encoder", "decoder")) for file in distinct.values()}
    return {file: found[file] for file, depth in depths.items() if depth <= layers}


def test_every_architecture_can_be_built() -> None:
    """As modules on the meta device, with as many parameters as the ledger says; the deep ones in the next test."""
    from scalesearch.nn.build import build_model

    chosen = models(layers=16)
    assert len(chosen) > 40
    for file, architecture in chosen.items():
        model = build_model(architecture.block, vocab=32768, device="meta")
        assert (sum(weight.numel() for weight in model.parameters())
                == evaluate_cost(architecture.block, COMMON_PROTOCOL)["params.total"]), file


@pytest.mark.slow
def test_every_architecture_does_what_its_bill_says() -> None:
    """The common protocol's params and MACs as PyTorch and fvcore count them."""
    from scalesearch.nn.verify import verify_costs

    for file, architecture in models(layers=99).items():
        assert all(check.is_equal
                   for check in verify_costs(architecture.block, 30, 30, 32768)), file


@pytest.mark.parametrize(
    ("printed", "exact", "also", "said"),
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
def test_a_verdict_is_read_off_the_printed_digits(
        printed: str, exact: int, also: tuple, said: str) -> None:
    assert str(classify_agreement(printed, exact, also)) == said
