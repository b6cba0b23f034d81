"""How many seeds a study gives to those of its front: the key ``seeds`` of a study file.

::

    seeds: {most: 3, trials: 6, confidence: 0.9}    # at most three a candidate, and six more trainings in all
    seeds: 3                                        # the same; more trainings: half as many as `trials`
    seeds: none                                     # one a candidate, which is what goes without saying
"""

from dataclasses import asdict, dataclass
from typing import Any

from scalesearch.report.noise import CONFIDENCE
from scalesearch.space.raw import Table, Text
from scalesearch.study.objectives import Objective
from scalesearch.study.sections import Sections

KEYS = ("most", "trials", "confidence")


@dataclass(frozen=True)
class Seeds:
    """What may be spent on further seeds, after the search.

    Attributes:
        most: seeds of one candidate, the one of the search counted; 1 asks for no others.
        trials: full trainings with further seeds in all.
        confidence: of the interval that a difference must leave 0 out of, to count as more than noise.
    """

    most: int = 1
    trials: int = 0
    confidence: float = CONFIDENCE

    def to_json(self) -> dict[str, Any]:
        """For ``study.json``."""
        return asdict(self)


ONE = Seeds()


def read_seeds(top: Sections, searched: int, objectives: tuple[Objective, ...]) -> Seeds:
    """What the key ``seeds`` says, in a study of ``searched`` trials; problems are noted at their place."""
    node = top.node("seeds")
    if node is None or (isinstance(node, Text) and node.text == "none"):
        return ONE
    if objectives and not any(objective.measured for objective in objectives):
        top.complain(node.here, "seeds: none of the objectives is measured, so another seed gives the same numbers",
                     "remove `seeds`, or add a metric to the objectives")
    if not isinstance(node, Table):
        most = top.whole("seeds", 1, 1)
        return Seeds(most, _half(searched)) if most > 1 else ONE
    part = top.part("seeds", KEYS)
    most, trials = part.whole("most", 3, 1), part.whole("trials", _half(searched), 0)
    confidence = part.number("confidence", CONFIDENCE)
    if not 0.5 <= confidence < 1:
        place = part.node("confidence")
        part.complain(place.here if place else node.here, f"confidence: {confidence:g} is not from 0.5 to below 1",
                      "such as `confidence: 0.9`")
        return ONE
    return Seeds(most, trials, confidence) if most > 1 else ONE


def _half(searched: int) -> int:
    return (searched + 1) // 2
