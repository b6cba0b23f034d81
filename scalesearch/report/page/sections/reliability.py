"""How far the numbers carry: the noise between seeds, and whether early measurements rank as the final score does."""

from scalesearch.report.page.facts import Facts
from scalesearch.report.page.parts import Cell, Part, Section, number, table, text
from scalesearch.report.proxies import PROXIES


def section(facts: Facts) -> Section:
    """The verdict on the front's order, every replicate, and the rank correlations."""
    return Section("reliability", "Seed noise and early measurements",
                   [("heading", "Noise between seeds"), *_seeds(facts),
                    ("heading", "Early measurements against the final score"), _proxies(facts)])


def _seeds(facts: Facts) -> list[Part]:
    replicates = [one for one in facts.trials.values() if one.replicate]
    if not replicates:
        return [text("Each trial was trained with one seed: differences within the noise of a seed are no order.")]
    measured = [name for name in facts.subject.objectives if "." not in name]
    rows = [[one.of, one.seed, one.state, *(number((one.values or {}).get(name), ".2f") for name in measured)]
            for one in replicates]
    return [text(*facts.verdict or ["Replicates are under way; the noise is not known yet."]),
            table(["trial", "seed", "state", *measured], rows, f"{len(rows)} replicates: trainings with further seeds.",
                  "seeds-table")]


def _proxies(facts: Facts) -> Part:
    found = facts.proxies
    if not found.correlations:
        return text(*found.lines()[:1] if found.too_few else ["No early measurement differs between trials."])
    rows = [[PROXIES.get(one.proxy, one.proxy), number(one.rho, "+.2f"),
             Cell(f"{one.low:+.2f} to {one.high:+.2f}", one.low), one.trials, "yes" if one.significant else "no"]
            for one in found.correlations]
    caption = (f"Spearman's rank correlation with the final {found.metric}, with its 95 % interval "
               "(Fieller et al., 1957).")
    return table(["measurement", "rho", "95 % interval", "trials", "beyond chance"], rows, caption, "proxies-table")
