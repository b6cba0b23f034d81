"""Lowering to CTranslate2 without weights: populations and sections of a model."""

import math
from collections import defaultdict

import numpy as np
import pytest

from scalesearch.blocks.polynomial import PopulationColumns
from scalesearch.cost.population import evaluate_population_costs
from scalesearch.cost.protocol import find_protocol
from scalesearch.feasible.limits import read_budgets
from scalesearch.feasible.report import analyze_feasibility
from scalesearch.lowering.ctranslate2 import plan_variables
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.spaces import Space
from scalesearch.spaces.assembly.architecture import SECTION_NAMES, build_blocks, build_section
from tests.architectures import transformer_config

SIZES = {"width": [8, 16, 24], "encoder.ffn.hidden": [16, 32, 40], "encoder.head_dim": [4, 4, 8]}
SHARED = {"norm": "post", "decoder.interleaved": True, "share.encoder.ffn": "cycle(2)",
          "encoder.depth": 4}


def shared_names(plan):
    """Sets of names of variables that share one tensor."""
    names = defaultdict(set)
    for variable in plan.variables:
        names[variable.sharing_key].add(variable.name)
    return {frozenset(group) for group in names.values()}


def test_population_plan_equals_plans_of_candidates():
    columns = PopulationColumns(3)
    sizes = {name: columns.variable(np.array(values, np.int64)) for name, values in SIZES.items()}
    whole = plan_variables(build_blocks(transformer_config() | SHARED | sizes)[1], 100)
    numbers = columns.evaluate({variable.name: math.prod(variable.shape)
                                for variable in whole.variables})
    for row in range(3):
        row_sizes = {name: values[row] for name, values in SIZES.items()}
        alone = plan_variables(build_blocks(transformer_config() | SHARED | row_sizes)[1], 100)
        assert {variable.name: math.prod(variable.shape) for variable in alone.variables} == {
            name: int(values[row]) for name, values in numbers.items()}
        assert shared_names(whole) == shared_names(alone)


@pytest.mark.parametrize("changes", [
    {}, {"encoder.gate": "QgV", "decoder.cross_gate": "KgV"}, {"encoder.residual_scores": "global"},
    {"model": "decoder-only"}, {"encoder.middle_width": 4, "encoder.depth": 3},
    {"embedding": "adaptive", "embedding.cutoffs": (20,), "embedding.factor": 2, "vocab": 60},
], ids=str)
def test_refusals_of_sections_add_up_and_are_a_cost(changes):
    config = transformer_config() | changes
    whole = find_unsupported_parts(build_blocks(config)[1])
    assert [reason for name in SECTION_NAMES
            for reason in find_unsupported_parts(build_section(config, name))] == whole
    name = "refusals.ctranslate2"
    sizes = {"encoder.ffn.hidden": np.array([8, 16])}
    protocol = find_protocol("forward", 5, 5, 60)
    costs, built = evaluate_population_costs(config | sizes, 2, protocol, [name])
    assert built.all() and costs[name].tolist() == [len(whole)] * 2


SPACE = """
width: 16 | 32
norm: pre | post
embedding: { positions: sinusoidal | none }
encoder:
  depth: 1 | 2
  heads: 2
  head_dim: = width // 2
  gate: none | QgV
  relative_positions: no | yes
  ffn: { one of: { relu: { hidden: 16 | 32 }, none: {} } }
decoder: { depth: 1, heads: 2, head_dim: = width // 2, ffn: { relu: { hidden: 16 } } }
"""


def test_exportable_share_of_a_space_is_exact():
    space = Space.parse(SPACE)
    protocol = find_protocol("forward", 5, 5, 60)
    report = analyze_feasibility(
        space, protocol, read_budgets(space, ["refusals.ctranslate2 <= 0"]), n_samples=100
    )
    blocks = [space.architecture(params).block for params in space.enumerate()]
    assert report.exact and (report.n_candidates, report.n_feasible) == (
        len(blocks), sum(not find_unsupported_parts(block) for block in blocks))
    assert 0 < report.n_feasible < report.n_candidates
