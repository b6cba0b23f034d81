"""Figures of a study's page: growth of scores, of a scaling study."""

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from scalesearch.errors import UserError
from scalesearch.study.config.rows import SCALING
from scalesearch.study.results.results import Results

if TYPE_CHECKING:
    from scalesearch.report.scaling.study import ScalingStudy

Drawn = tuple[str, Figure, str]  # title, figure, caption


def own_figures(results: Results) -> tuple[Drawn, ...]:
    """Figures of ``results``; none where the study is no scaling study, or has nothing to draw."""
    if results.study.meta.kind != SCALING:
        return ()
    from scalesearch.report.scaling.figures import curves, laws  # which other studies need not load
    from scalesearch.study.results.scaling import scaling_of

    try:
        study = scaling_of(results)
    except UserError:  # nothing is finished
        return ()
    figures = [("How scores grow", curves(study), _followed(study))]
    figures += [(f"Laws against {cost}", laws(study, cost), "A power law a rule, its band as far as the next size; the "
               "ring is the score at the largest size, the black bar what the others predict there.")
              for cost in study.costs]
    return tuple((title, figure, caption) for title, figure, caption in figures if figure is not None)


def _followed(study: "ScalingStudy") -> str:
    """The sentences of the rankings: which rule to follow."""
    from scalesearch.report.scaling.tables import sheets

    return " ".join(line for sheet in sheets(study) for line in sheet.below)
