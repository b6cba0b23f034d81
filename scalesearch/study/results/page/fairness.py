"""The fairness audit of a study, where there is one: regrets, kinds, and recipes for all."""

from typing import Any

from scalesearch.report.fairness import describe_option
from scalesearch.report.figures.fairness import plot_regrets
from scalesearch.report.intervals import ConfidenceInterval
from scalesearch.study.results.audit import audit_findings
from scalesearch.study.results.page.elements import MISSING_CELL, PageSection, TableCell, number, table, text
from scalesearch.study.results.page.facts import PageFacts
from scalesearch.study.results.page.svg import picture

RATES_CAPTION = ("Validation loss above the least of its architecture, by recipe. What was stopped "
                 "early counts as far behind at its end as it was there.")


def fairness_section(facts: PageFacts) -> PageSection | None:
    """What the audit has found so far; None where the study has none."""
    found = audit_findings(facts.results)
    if found is None:
        return None
    if not found.regrets:
        return PageSection("fairness", "Fairness of the recipe", [text(*found.lines())])
    regrets = [[one.architecture, number(one.loss_regret, ".3g"), number(one.score_regret, ".3g"),
                describe_option(one.best_option), "yes" if one.is_best_at_edge else "no"]
               for one in found.regrets]
    kinds = [[one.name, one.n_architectures, _cell(one.mean_regret),
              _cell(one.difference_to_others), "yes" if one.is_disadvantaged else "no"]
             for one in found.groups]
    recipes = [[describe_option(one.option), _cell(one.mean_regret), number(one.kendall_tau, ".2f")]
               for one in found.alternatives]
    figure = plot_regrets(found)
    return PageSection(
        "fairness", "Fairness of the recipe",
        [text(*found.lines()),
         *([picture(figure, "fairness-losses",
                    RATES_CAPTION + " The numbers stand in the tables below.", RATES_CAPTION)]
           if figure else []),
         table(["architecture", "regret (loss)", f"regret ({found.metric})", "best", "at the edge"],
               regrets, "What each architecture loses by the study's recipe.", "fairness-regrets"),
         table(["kind", "architectures", "mean regret (loss)", "more than others", "unfair"], kinds,
               "Kinds, with intervals; those of differences are corrected for the "
               "number of kinds.", "fairness-kinds"),
         table(["recipe for all", "mean regret (loss)", "Kendall's tau with the best recipes"],
               recipes, "Single recipes, the fairest first.", "fairness-recipes")], "Fairness")


def _cell(value: ConfidenceInterval | None) -> Any:
    return MISSING_CELL if value is None else TableCell(str(value), value.value)
