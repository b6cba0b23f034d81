"""How many seeds a study gives to those of its front: the key ``seeds`` of a study file.

::

    seeds: {most: 3, trials: 6, confidence: 0.9}    # at most three a candidate, and six more trainings in all
    seeds: 3                                        # the same; more trainings: half as many as `trials`
    seeds: {most: 1, references: 3}                 # each reference trained three times, whatever its place
    seeds: none                                     # one a candidate, which is what goes without saying
"""

from dataclasses import asdict, dataclass
from typing import Any

from scalesearch.report.noise import CONFIDENCE
from scalesearch.space.raw import Table, Text
from scalesearch.study.objectives import Objective
from scalesearch.study.sections import Sections

KEYS = ("most", "trials", "confidence", "references")


@dataclass(frozen=True)
class Seeds:
    """What may be spent on further seeds, after the search.

    Attributes:
        most: seeds of one candidate, the one of the search counted; 1 asks for no others.
        trials: full trainings with further seeds in all.
        confidence: of the interval that a difference must leave 0 out of, to count as more than noise.
        references: seeds of each reference, which come on top of ``trials``, as the rows of a table need them.
    """

    most: int = 1
    trials: int = 0
    confidence: float = CONFIDENCE
    references: int = 1

    @property
    def asked(self) -> bool:
        """Whether anything may be trained again."""
        return self.most > 1 or self.references > 1

    def to_json(self) -> dict[str, Any]:
        """For ``study.json``; ``references`` only where it says something."""
        return {key: value for key, value in asdict(self).items() if key != "references" or value > 1}


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
    found = Seeds(most, trials, confidence, part.whole("references", 1, 1))
    return found if found.asked else ONE


def _half(searched: int) -> int:
    return (searched + 1) // 2
