"""How far the numbers carry: the noise between seeds, and whether early signs rank as the final score does."""

from scalesearch.report.page.facts import Facts
from scalesearch.report.page.html import GAP, Cell, Html, Section, join, paragraphs, table, tag
from scalesearch.report.proxies import FEWEST, SIGNS, Signs


def section(facts: Facts) -> Section:
    """The verdict on the front's order, every further training, and the correlations."""
    return Section("trust", "Noise and early signs", join((tag("h3", "Noise between seeds"), _verdict(facts),
                                                           tag("h3", "Early signs"), _signs(facts.signs))))


def _verdict(facts: Facts) -> Html:
    again = [one for one in facts.candidates.values() if one.origin == "seed"]
    said = facts.verdict or ("Further seeds are under way; nothing is known of the noise yet.",) if again else \
        ("Each candidate was trained with one seed: differences within the noise of a seed are no order.",)
    goals = list(facts.subject.objectives)
    measured = [goal for goal in goals if "." not in goal]
    rows = [[Cell(one.of, one.of), Cell(one.seed, one.seed), one.state,
             *(_value(one.values, goal) for goal in measured)] for one in again]
    found = [table(["trial", "seed", "state", *measured], rows, f"{len(rows)} trainings with further seeds.",
                   "seeds-table")] if again else []
    return join((paragraphs(said), *found))


def _value(values: object, goal: str) -> Cell:
    value = values.get(goal) if isinstance(values, dict) else None
    return GAP if value is None else Cell(f"{value:.2f}", float(value))


def _signs(signs: Signs) -> Html:
    if signs.candidates < FEWEST or not signs.found:
        return paragraphs(signs.lines()[:1] if signs.candidates < FEWEST else ["No sign differs between candidates."])
    rows = [[SIGNS.get(one.sign, one.sign), Cell(f"{one.rho:+.2f}", one.rho),
             Cell(f"{one.low:+.2f} to {one.high:+.2f}", one.low), Cell(one.candidates, one.candidates),
             "yes" if one.telling else "no"] for one in signs.found]
    caption = (f"Spearman's rank correlation with the final {signs.score}, with its 95 % interval "
               "(Fieller et al., 1957).")
    return table(["sign", "rho", "95 % interval", "candidates", "beyond chance"], rows, caption, "signs-table")
