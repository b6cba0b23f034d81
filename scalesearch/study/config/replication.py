"""How many seeds a study gives to those of its front: the key ``seeds`` of a study file.

::

    seeds: {most: 3, trials: 6, confidence: 0.9}    # at most three a candidate, and six more trainings in all
    seeds: 3                                        # the same; more trainings: half as many as `trials`
    seeds: {most: 1, references: 3}                 # each reference trained three times, whatever its place
    seeds: 3                                        # in a study that has rows: three each
    seeds: none                                     # one a candidate, which is what goes without saying
"""

from dataclasses import asdict, dataclass
from typing import Any

from scalesearch.pareto.noise import CONFIDENCE
from scalesearch.space.syntax.nodes import Node, Table, Text
from scalesearch.study.config.fields import Sections
from scalesearch.study.config.objectives import Objective

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
    def params(self) -> bool:
        """Whether anything may be trained again."""
        return self.most > 1 or self.references > 1

    def to_json(self) -> dict[str, Any]:
        """For ``study.json``; ``references`` only where it says something."""
        return {key: value for key, value in asdict(self).items() if key != "references" or value > 1}


ONE = Seeds()


def read_seeds(top: Sections, searched: int, objectives: tuple[Objective, ...], rows: bool = False) -> Seeds:
    """What the key ``seeds`` says, in a study of ``searched`` trials; problems are noted at their place.

    Args:
        rows: the study has rows instead of a search, and ``seeds: 3`` are those of each row.
    """
    node = top.node("seeds")
    if node is None or (isinstance(node, Text) and node.text == "none"):
        return ONE
    if objectives and not any(objective.measured for objective in objectives):
        top.complain(node.here, "seeds: none of the objectives is measured, so another seed gives the same numbers",
                     "remove `seeds`, or add a metric to the objectives")
    if rows:
        return _of_rows(top, node)
    if not isinstance(node, Table):
        most = top.whole("seeds", 1, 1)
        return Seeds(most, _half(searched)) if most > 1 else ONE
    part = top.part("seeds", KEYS)
    most, trials = part.whole("most", 3, 1), part.whole("trials", _half(searched), 0)
    found = Seeds(most, trials, _confidence(part), part.whole("references", 1, 1))
    return found if found.params else ONE


def _of_rows(top: Sections, node: Node) -> Seeds:
    """``seeds: 3``, or ``{references: 3, confidence: 0.95}``."""
    if not isinstance(node, Table):
        return Seeds(references=top.whole("seeds", 1, 1))
    part = top.part("seeds", ("references", "confidence"))
    return Seeds(confidence=_confidence(part), references=part.whole("references", 2, 1))


def _confidence(part: Sections) -> float:
    confidence, node = part.number("confidence", CONFIDENCE), part.node("confidence")
    if 0.5 <= confidence < 1 or node is None:
        return confidence
    part.complain(node.here, f"confidence: {confidence:g} is not from 0.5 to below 1", "such as `confidence: 0.9`")
    return CONFIDENCE


def _half(searched: int) -> int:
    return (searched + 1) // 2
