"""Fairness audit on the report page: regrets, groups, and single recipes for all."""

from scalesearch.report.fairness import describe_option
from scalesearch.report.figures.fairness import plot_regrets
from scalesearch.report.intervals import ConfidenceInterval
from scalesearch.studies.results.audit import audit_findings
from scalesearch.studies.results.page.elements import (
    MISSING_CELL,
    PageSection,
    TableCell,
    number,
    table,
    text,
)
from scalesearch.studies.results.page.facts import PageFacts
from scalesearch.studies.results.page.svg import picture

RATES_CAPTION = ("Validation loss minus the lowest validation loss of the same architecture, by "
                 "recipe. For runs that were stopped early, the difference at the stop is shown.")


def fairness_section(facts: PageFacts) -> PageSection | None:
    """Create the section with the findings so far; None if the study has no audit."""
    findings = audit_findings(facts.results)
    if findings is None:
        return None
    if not findings.regrets:
        return PageSection("fairness", "Fairness of the recipe", [text(*findings.lines())])
    regrets = [[regret.architecture, number(regret.loss_regret, ".3g"),
                number(regret.score_regret, ".3g"), describe_option(regret.best_option),
                "yes" if regret.is_best_at_edge else "no"]
               for regret in findings.regrets]
    groups = [[group.name, group.n_architectures, _cell(group.mean_regret),
               _cell(group.difference_to_others), "yes" if group.is_disadvantaged else "no"]
              for group in findings.groups]
    recipes = [[describe_option(alternative.option), _cell(alternative.mean_regret),
                number(alternative.kendall_tau, ".2f")]
               for alternative in findings.alternatives]
    parts = [text(*findings.lines())]
    if figure := plot_regrets(findings):
        parts.append(picture(figure, "fairness-losses",
                             RATES_CAPTION + " The tables below contain the numbers.",
                             RATES_CAPTION))
    parts += [
        table(["architecture", "regret (loss)", f"regret ({findings.metric})", "best option",
               "at the edge"], regrets,
              "Regret of the study's recipe for each architecture.", "fairness-regrets"),
        table(["group", "architectures", "mean regret (loss)", "difference to others",
               "disadvantaged"], groups,
              "Groups, with intervals. Intervals of differences are corrected for the number of "
              "groups.", "fairness-groups"),
        table(["recipe for all", "mean regret (loss)", "Kendall's tau with the best recipes"],
              recipes, "Single recipes, from the lowest mean regret.", "fairness-recipes")]
    return PageSection("fairness", "Fairness of the recipe", parts, "Fairness")


def _cell(value: ConfidenceInterval | None) -> TableCell:
    return MISSING_CELL if value is None else TableCell(str(value), value.value)
