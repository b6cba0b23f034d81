"""Tables of the report page: architectures, seed noise, failures, provenance."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from scalesearch.report.ablation import MISSING_CELL as MISSING_TEXT
from scalesearch.report.labels import format_protocol, one_line_label
from scalesearch.report.proxies import PROXY_LABELS
from scalesearch.studies.results.page.elements import (
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
from scalesearch.studies.results.page.facts import PageFacts, trial_name
from scalesearch.studies.results.page.trials import trial_links
from scalesearch.studies.trials.trial import State, Trial

PROVENANCE_BLOCKS = {"Recipe": "recipe", "Versions": "versions", "Data": "data",
                     "Protocol": "protocol"}


def named_architectures_section(facts: PageFacts) -> PageSection | None:
    """Create the section with the named architectures and differences to the base.

    None if fewer than two architectures are named.
    """
    comparison = facts.architecture_table
    if comparison is None or len(comparison.rows) < 2:
        return None
    texts = comparison.format_cells()
    rows = []
    for row, cells in zip(comparison.rows, texts.itertuples(index=False)):
        keys = (row.params, row.macs, row.score, row.n_seeds, row.difference)
        rows.append([_linked(facts, row.name),
                     *(MISSING_CELL if cell == MISSING_TEXT else TableCell(cell, key)
                       for cell, key in zip(cells[1:], keys))])
    headings = [one_line_label(name) if name == comparison.metric else name for name in texts]
    caption = (f"{len(rows)} named architectures; costs under "
               f"{format_protocol(facts.meta.protocol)}.")
    return PageSection("named", "Named architectures",
                       [table(headings, rows, caption, "named-table"), text(*comparison.notes())])


def _linked(facts: PageFacts, name: str) -> TableCell:
    """Cell with a name that links to its row in the table of trials."""
    untrained = (State.INFEASIBLE, State.DUPLICATE)
    trial = next((trial for trial in facts.candidates
                  if trial.label == name and trial.state not in untrained), None)
    if trial is None:
        return TableCell(name)
    return TableCell("", links=[PageLink(name, f"#trial-{trial.number}")])


def reliability_section(facts: PageFacts) -> PageSection:
    """Create the section on seed noise and correlations of early measurements."""
    return PageSection("reliability", "Seed noise and early measurements",
                   [("heading", "Noise between seeds"), *_seeds(facts),
                    ("heading", "Early measurements against the final score"), _proxies(facts)])


def _seeds(facts: PageFacts) -> list[Part]:
    replicates = facts.trials.replicates()
    if not replicates:
        return [text("Each trial was trained with one seed; the noise between seeds is unknown.")]
    measured = [name for name in facts.results.objectives if "." not in name]
    rows = [[replicate.original, replicate.seed, replicate.state,
             *(number((replicate.values or {}).get(name), ".2f") for name in measured)]
            for replicate in replicates]
    sentences = facts.results.seed_analysis.sentences()
    return [text(*sentences or ["Replicates are in training; the noise is still unknown."]),
            table(["trial", "seed", "state", *measured], rows,
                  f"{len(rows)} replicates: runs with further seeds.", "seeds-table")]


def _proxies(facts: PageFacts) -> Part:
    proxies = facts.results.proxies()
    if not proxies.correlations:
        return text(*proxies.lines()[:1] if proxies.has_too_few_trials
                    else ["No early measurement differs between trials."])
    rows = [[PROXY_LABELS.get(row.proxy, row.proxy), number(row.rho, "+.2f"),
             TableCell(f"{row.low:+.2f} to {row.high:+.2f}", row.low), row.n_trials,
             "yes" if row.is_significant else "no"] for row in proxies.correlations]
    caption = (f"Spearman's rank correlation with the final {proxies.metric}, with its 95 % "
               "interval (Fieller et al., 1957).")
    return table(["measurement", "rho", "95 % interval", "trials", "significant"], rows, caption,
                 "proxies-table")


def failures_section(facts: PageFacts) -> PageSection:
    """Create the section with failed trials and infeasible proposals by constraint."""
    failed = facts.trials.with_state(State.FAILED)
    infeasible = facts.trials.with_state(State.INFEASIBLE)
    duplicates = len(facts.trials.with_state(State.DUPLICATE))
    parts = [_failed(facts, failed) if failed else text("No training run has failed.")]
    if infeasible or facts.is_search:
        parts.append(_infeasible(infeasible) if infeasible else text("No proposal was infeasible."))
    if duplicates:
        noun = ("proposal" if facts.is_search else "named architecture") + "s" * (duplicates > 1)
        parts.append(text(f"{duplicates} {noun} duplicated another trial of the study and had no "
                          "training of its own."))
    title = "Failures and infeasible proposals" if infeasible or facts.is_search else "Failures"
    return PageSection("failures", title, parts, "Failures")


def _failed(facts: PageFacts, failed: Sequence[Trial]) -> Part:
    rows = [[TableCell(trial_name(trial), trial.number, left=True),
             TableCell(trial.reason or "unknown reason", css="failed"),
             TableCell("", links=trial_links(facts, trial))] for trial in failed]
    return table(["trial", "reason", "files"], rows, f"{len(failed)} failed trials.",
                 "failures-table")


def _infeasible(infeasible: Sequence[Trial]) -> Part:
    violated = ([name for name, violation in trial.constraints.items() if violation > 0]
                or [trial.reason or "cannot be built"] for trial in infeasible)
    counts = Counter(name for names in violated for name in names)
    caption = (f"{len(infeasible):,} proposals were infeasible by their exact costs and were not "
               "trained. A proposal that violates several constraints counts for each of them.")
    return table(["constraint", "proposals that violate it"], counts.most_common(), caption,
                 "infeasible-table")


def provenance_section(facts: PageFacts) -> PageSection:
    """Create the section with notes, ``study.json`` and links to files."""
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
    values = {**{key: meta[key] for key in ("name", "id", "created")},
              "space (hash)": meta["space_hash"],
              "data (hash)": f"{meta['data']['name']}, {meta['data']['hash']}",
              "seed": meta["seed"],
              "objectives": _plain(meta["objectives"]),
              "constraints": "; ".join(meta["limits"]) or _plain(meta["bounds"]),
              "costs": format_protocol(subject.protocol), "metrics (signature)": subject.signature,
              **{key: _plain(meta[key]) for key in ("sampler", "rungs", "seeds", "teacher")},
              "devices": used["device"], "precision": used["dtype"]}
    return [(name, value) for name, value in values.items() if value not in (None, "")]


def _plain(value: Any) -> str:
    """Format a mapping on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    return "" if value is None else str(value)


def _block(title: str, value: Any) -> Part:
    if isinstance(value, Mapping) and not any(isinstance(inner, Mapping)
                                              for inner in value.values()):
        pairs = [(key, "–" if inner is None else inner) for key, inner in value.items()]
        return fold(title, [("names", pairs)])
    return fold(title, [("code", json.dumps(value, indent=2, ensure_ascii=False))])
