"""Lowering for CTranslate2 without weights: populations, sections; artifacts are tested in tests/export."""

import math

import numpy as np
import pytest

from scalesearch.blocks.polynomial import PopulationColumns
from scalesearch.cost.population import evaluate_population_costs
from scalesearch.cost.protocol import find_protocol
from scalesearch.feasible.limits import read_budgets
from scalesearch.feasible.report import analyze_feasibility
from scalesearch.lowering.ctranslate2 import plan_variables
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.space import Space
from scalesearch.space.assembly.architecture import SECTION_NAMES, build_blocks, build_section
from tests.architectures import transformer_config

SIZES = {"width": [8, 16, 24], "encoder.ffn.hidden": [16, 32, 40], "encoder.head_dim": [4, 4, 8]}
SHARED = {"norm": "post", "decoder.interleaved": True, "share.encoder.ffn": "cycle(2)",
          "encoder.depth": 4}


def test_a_populations_plan_is_that_of_each_candidate():
    columns = PopulationColumns(3)
    sizes = {name: columns.variable(np.array(values, np.int64)) for name, values in SIZES.items()}
    whole = plan_variables(build_blocks(transformer_config() | SHARED | sizes)[1], 100)
    numbers = columns.evaluate({one.name: math.prod(one.shape) for one in whole.variables})
    for at in range(3):
        alone = plan_variables(
            build_blocks(transformer_config() | SHARED
                         | {name: values[at] for name, values in SIZES.items()})[1], 100)
        assert {one.name: math.prod(one.shape) for one in alone.variables} == {
            name: int(values[at]) for name, values in numbers.items()}
        groups = [{frozenset(one.name for one in made.variables if one.sharing_key == key)
                   for key in {one.sharing_key for one in made.variables}}
                  for made in (whole, alone)]
        assert groups[0] == groups[1], "and they share alike"


@pytest.mark.parametrize("changes", [
    {}, {"encoder.gate": "QgV", "decoder.cross_gate": "KgV"}, {"encoder.residual_scores": "global"},
    {"model": "decoder-only"}, {"encoder.middle_width": 4, "encoder.depth": 3},
    {"embedding": "adaptive", "embedding.cutoffs": (20,), "embedding.factor": 2, "vocab": 60},
], ids=str)
def test_refusals_of_sections_are_the_wholes_and_a_cost(changes):
    given = transformer_config() | changes
    whole = find_unsupported_parts(build_blocks(given)[1])
    assert [reason for name in SECTION_NAMES
            for reason in find_unsupported_parts(build_section(given, name))] == whole
    name = "refusals.ctranslate2"
    sizes = {"encoder.ffn.hidden": np.array([8, 16])}
    costs, built = evaluate_population_costs(given | sizes, 2, find_protocol("forward", 5, 5, 60), [name])
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


def test_the_share_of_a_space_that_it_takes_is_counted_exactly():
    space = Space.parse(SPACE)
    protocol = find_protocol("forward", 5, 5, 60)
    found = analyze_feasibility(space, protocol, read_budgets(space, ["refusals.ctranslate2 <= 0"]),
                                n_samples=100)
    blocks = [space.architecture(sheet).block for sheet in space.enumerate()]
    assert found.exact and (found.n_candidates, found.n_feasible) == (
        len(blocks), sum(not find_unsupported_parts(one) for one in blocks))
    assert 0 < found.n_feasible < found.n_candidates
