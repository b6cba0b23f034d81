"""The key ``seeds`` of a study file: seeds for the front or for each row.

::

    seeds: {most: 3, trials: 6, confidence: 0.9}    # at most three a candidate, and six more trainings in all
    seeds: 3                                        # the same; more trainings: half as many as `trials`
    seeds: {most: 1, references: 3}                 # each reference trained three times, whatever its place
    seeds: 3                                        # in a study that has rows: three each
    seeds: none                                     # one a candidate, the default
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from scalesearch.pareto.noise import CONFIDENCE
from scalesearch.space.schema.settings import schema_of, setting
from scalesearch.space.syntax.nodes import Node, Text
from scalesearch.study.config.objectives import Objective

MOST, OF_ROWS = 3, 2  # where a mapping does not say how many
Wrong = tuple[str, str, str | None]


@dataclass(frozen=True)
class Seeds:
    """Limits of further seeds, after the search."""

    most: int = setting(1, "seeds of one candidate, the one of the search counted", shown=f"{MOST}",
                        synonyms=("max", "seeds", "repeats"))
    trials: int = setting(0, "full trainings with further seeds in all", low=0, unit="trainings",
                          shown="half as many as `trials`", synonyms=("budget",))
    confidence: float = setting(CONFIDENCE, "of the interval that a difference must leave 0 out of, to count as more "
                                "than noise", low=0.5, high=0.9999, synonyms=("alpha", "level"))
    references: int = setting(1, f"seeds of each reference or row, on top of `trials` ({OF_ROWS} in a mapping of a "
                              "study of rows)", synonyms=("rows",))

    @property
    def wanted(self) -> bool:
        """Whether anything may be trained again."""
        return self.most > 1 or self.references > 1

    def to_json(self) -> dict[str, Any]:
        """For ``study.json``; ``references`` only where it says something."""
        return {key: value for key, value in asdict(self).items() if key != "references" or value > 1}


ONE = Seeds()
SEEDS = replace(schema_of(Seeds), bare="most", optional=True, make=dict)


def seeds_of(given: Mapping[str, Any] | None, node: Node | None, searched: int,
             objectives: tuple[Objective, ...], rows: bool) -> tuple[Seeds, list[Wrong]]:
    """Reads the key ``seeds``; problems are (key, message, help).

    Args:
        given: the values under it; None where there are none.
        node: as it stands in the file: ``seeds: 3`` are those of each row where ``rows`` are trained.
        searched: trials of the search.
    """
    if given is None:
        return ONE, []
    wrong: list[Wrong] = []
    if objectives and not any(objective.measured for objective in objectives):
        wrong.append(("seeds", "seeds: none of the objectives is measured, so another seed gives the same numbers",
                      "remove `seeds`, or add a metric to the objectives"))
    if rows:
        if isinstance(node, Text):
            return Seeds(references=given.get("most", 1)), wrong
        wrong += [(f"seeds.{key}", f"seeds.{key}: it is for a search, and this study trains its rows",
                   "`references` are the seeds of each row") for key in ("most", "trials") if key in given]
        return replace(Seeds(references=OF_ROWS), **{key: given[key] for key in ("references", "confidence")
                                                     if key in given}), wrong
    seeds = Seeds(**{"most": MOST, "trials": (searched + 1) // 2} | dict(given))
    return (seeds if seeds.wanted else ONE), wrong
