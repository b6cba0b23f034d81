"""Tables that account for a study: named architectures, seed noise, failures, provenance."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from scalesearch.report.ablation import MISSING_CELL as MISSING_TEXT
from scalesearch.report.labels import format_protocol, one_line_label
from scalesearch.report.proxies import PROXY_LABELS
from scalesearch.study.results.page.elements import (
    MISSING_CELL,
    PageLink,
    PageSection,
    Part,
    TableCell,
    fold,
    number,
    table,
    text,
)
from scalesearch.study.results.page.facts import PageFacts, trial_name
from scalesearch.study.results.page.trials import trial_links
from scalesearch.study.trials.trial import State, Trial

PROVENANCE_BLOCKS = {"Recipe": "recipe", "Versions": "versions", "Data": "data",
                     "Protocol": "protocol"}


def named_architectures_section(facts: PageFacts) -> PageSection | None:
    """The named architectures and their differences to the base; None where there are not two to compare."""
    found = facts.architecture_table
    if found is None or len(found.rows) < 2:
        return None
    texts = found.format_cells()
    rows = []
    for row, cells in zip(found.rows, texts.itertuples(index=False)):
        keys = (row.params, row.macs, row.score, row.n_seeds, row.difference)
        rows.append([_linked(facts, row.name),
                     *(MISSING_CELL if cell == MISSING_TEXT else TableCell(cell, key)
                       for cell, key in zip(cells[1:], keys))])
    headings = [one_line_label(name) if name == found.metric else name for name in texts]
    caption = (f"{len(rows)} named architectures; costs under "
               f"{format_protocol(facts.meta.protocol)}.")
    return PageSection("named", "Named architectures",
                       [table(headings, rows, caption, "named-table"), text(*found.notes())])


def _linked(facts: PageFacts, name: str) -> TableCell:
    """The name, with a link to its row in the table of trials."""
    untrained = (State.INFEASIBLE, State.DUPLICATE)
    trial = next(
        (one for one in facts.candidates if one.label == name and one.state not in untrained), None)
    return TableCell("",
                     links=[PageLink(name, f"#trial-{trial.number}")]) if trial else TableCell(name)


def reliability_section(facts: PageFacts) -> PageSection:
    """The verdict on the front's order, every replicate, and whether early measurements rank as the final score."""
    return PageSection("reliability", "Seed noise and early measurements",
                   [("heading", "Noise between seeds"), *_seeds(facts),
                    ("heading", "Early measurements against the final score"), _proxies(facts)])


def _seeds(facts: PageFacts) -> list[Part]:
    replicates = facts.trials.replicates()
    if not replicates:
        return [text("Each trial was trained with one seed: differences within the noise of a seed "
                     "are no order.")]
    measured = [name for name in facts.results.objectives if "." not in name]
    rows = [[one.original, one.seed, one.state,
             *(number((one.values or {}).get(name), ".2f") for name in measured)]
            for one in replicates]
    verdict = facts.results.seed_analysis.sentences()
    return [text(*verdict or ["Replicates are under way; the noise is not known yet."]),
            table(["trial", "seed", "state", *measured], rows,
                  f"{len(rows)} replicates: trainings with further seeds.", "seeds-table")]


def _proxies(facts: PageFacts) -> Part:
    found = facts.results.proxies()
    if not found.correlations:
        return text(*found.lines()[:1] if found.has_too_few_trials
                    else ["No early measurement " "differs between trials."])
    rows = [[PROXY_LABELS.get(one.proxy, one.proxy), number(one.rho, "+.2f"),
             TableCell(f"{one.low:+.2f} to {one.high:+.2f}", one.low), one.n_trials,
             "yes" if one.is_significant else "no"] for one in found.correlations]
    caption = (f"Spearman's rank correlation with the final {found.metric}, with its 95 % interval "
               "(Fieller et al., 1957).")
    return table(["measurement", "rho", "95 % interval", "trials", "beyond chance"], rows, caption,
                 "proxies-table")


def failures_section(facts: PageFacts) -> PageSection:
    """Failed trainings one by one, infeasible proposals by the constraint that they violate."""
    failed = facts.trials.with_state(State.FAILED)
    infeasible = facts.trials.with_state(State.INFEASIBLE)
    duplicates = len(facts.trials.with_state(State.DUPLICATE))
    parts = [_failed(facts, failed) if failed else text("No training has failed.")]
    if infeasible or facts.is_search:
        parts.append(_infeasible(infeasible) if infeasible else text("No proposal was infeasible."))
    if duplicates:
        what = ("proposal" if facts.is_search else "named architecture") + "s" * (duplicates > 1)
        parts.append(text(f"{duplicates} {what} duplicated an architecture that was there already; "
                          "it was not trained again."))
    title = "Failures and infeasible proposals" if infeasible or facts.is_search else "Failures"
    return PageSection("failures", title, parts, "Failures")


def _failed(facts: PageFacts, failed: Sequence[Trial]) -> Part:
    rows = [[TableCell(trial_name(one), one.number, left=True),
             TableCell(one.reason or "the reason is not known", css="failed"),
             TableCell("", links=trial_links(facts, one))] for one in failed]
    return table(["trial", "reason", "files"], rows, f"{len(failed)} failed trainings.",
                 "failures-table")


def _infeasible(infeasible: Sequence[Trial]) -> Part:
    violated = ([name for name, miss in one.constraints.items() if miss > 0]
                or [one.reason or "could not be built"] for one in infeasible)
    counts = Counter(name for names in violated for name in names)
    caption = (f"{len(infeasible):,} proposals were infeasible by their exact costs, before any "
               "training. One that violates several constraints counts for each.")
    return table(["constraint", "proposals that violate it"], counts.most_common(), caption,
                 "infeasible-table")


def provenance_section(facts: PageFacts) -> PageSection:
    """What it takes to make the numbers again: notes, then everything in study.json, then the study's files."""
    meta = facts.meta.to_json()
    blocks = {title: meta.get(key)
              for title, key in PROVENANCE_BLOCKS.items()} | {"All of study.json": meta}
    links = [PageLink(name, address) for name, address in facts.links().items()]
    return PageSection("provenance", "Provenance", [
        text(*facts.results.notes()), ("names", _main(facts, meta)),
        *(_block(title, value) for title, value in blocks.items() if value),
        *[("heading", "Files"), ("links", links)] * bool(links)])


def _main(facts: PageFacts, meta: Mapping[str, Any]) -> list[tuple[str, Any]]:
    rows = facts.results.table
    subject = facts.results.subject
    used = {name: ", ".join(sorted({str(value) for value in rows[name].dropna()}))
            for name in ("device", "dtype")}
    found = {**{key: meta[key] for key in ("name", "id", "created")}, "space (hash)": meta["space_hash"],
             "data (hash)": f"{meta['data']['name']}, {meta['data']['hash']}", "seed": meta["seed"],
             "objectives": _plain(meta["objectives"]),
             "constraints": "; ".join(meta["limits"]) or _plain(meta["bounds"]),
             "costs": format_protocol(subject.protocol), "metrics (signature)": subject.signature,
             **{key: _plain(meta[key]) for key in ("sampler", "rungs", "seeds", "teacher")},
             "devices": used["device"], "precision": used["dtype"]}
    return [(name, value) for name, value in found.items() if value not in (None, "")]


def _plain(value: Any) -> str:
    """A mapping on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(one)}" for key, one in value.items())
    return "" if value is None else str(value)


def _block(title: str, value: Any) -> Part:
    if isinstance(value, Mapping) and not any(isinstance(one, Mapping) for one in value.values()):
        return fold(title,
                    [("names", [(key, "–" if one is None else one) for key, one in value.items()])])
    return fold(title, [("code", json.dumps(value, indent=2, ensure_ascii=False))])
