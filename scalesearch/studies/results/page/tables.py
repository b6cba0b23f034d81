"""Tables of the report page: trials, costs, architectures, seeds, failures, provenance, audit."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from scalesearch.blocks.sizes import is_number
from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.cost.breakdown import ModuleCost, module_costs
from scalesearch.errors import UserError
from scalesearch.report.fairness import describe_option
from scalesearch.report.figures import style
from scalesearch.report.figures.fairness import plot_regrets
from scalesearch.report.intervals import ConfidenceInterval
from scalesearch.report.labels import MISSING_CELL as MISSING_TEXT
from scalesearch.report.labels import (
    column_heading,
    format_protocol,
    format_value,
    plain_label,
    protocol_conventions,
)
from scalesearch.report.proxies import proxy_label
from scalesearch.report.table import (
    PARAM_PREFIX,
    TIME_HEADINGS,
    column_decimals,
    differing_columns,
    format_cell,
    shown_test_metrics,
    shown_time_column,
)
from scalesearch.spaces import read_space
from scalesearch.studies.monitor.format import format_percent
from scalesearch.studies.results.audit import audit_findings
from scalesearch.studies.results.page.elements import (
    MISSING_CELL,
    PageLink,
    PageSection,
    Part,
    TableCell,
    fold,
    number,
    picture,
    table,
    text,
)
from scalesearch.studies.results.page.facts import PageFacts, name_of
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import State, Trial
from scalesearch.tasks import score_decimals
from scalesearch.terminal import format_bytes, format_count

MAX_PARAMS = 12  # maximum number of columns of hyperparameters
SECTION_COLORS = {"embedding": "#0072B2", "encoder": "#E69F00", "decoder": "#009E73",
                  "output": "#CC79A7"}
QUANTITY_CAPTIONS = {
    "params": "unique weights; a tied table counts once, in the section that uses it first",
    "macs": "multiply-accumulates per example; the look-up of embeddings is free",
    "flops": "floating-point operations per example"}
MEMORY_LABELS = {"weights": "weights", "cache": "key-value cache",
                 "activations": "training activations"}
MAX_BARS = 40
MAX_MODULE_DEPTH = 3  # depth of the module tree: down to the parts of a layer
PROVENANCE_BLOCKS = {"Recipe": "recipe", "Versions": "versions", "Data": "data",
                     "Protocol": "protocol"}
RATES_CAPTION = ("Validation loss minus the lowest validation loss of the same architecture, by "
                 "recipe. For runs that were stopped early, the difference at the stop is shown.")


def trials_section(facts: PageFacts) -> PageSection:
    """Create the section with all trials except infeasible ones and duplicates."""
    rows = facts.results.table
    rows = rows[~rows["state"].isin([State.INFEASIBLE, State.DUPLICATE])]
    rows = rows.sort_values("front", ascending=False, kind="stable")  # members of the front first
    if rows.empty:
        return PageSection("trials", "Trials", [text("No trial has started.")])
    metrics = [name for name in dict.fromkeys([
        *facts.results.objectives, facts.main_metric,
        *shown_test_metrics(facts.results.table, [facts.main_metric]), "params.total",
        "macs.total"]) if name in rows]
    params = differing_columns(rows, facts.sampled, MAX_PARAMS)
    time_column = shown_time_column(rows)
    decimals = {name: column_decimals(rows, name) for name in metrics}
    cells = []
    attributes = []
    for row in rows.to_dict("records"):
        trial = facts.trials[int(row["trial"])]
        on_front = bool(row["front"])
        losses = ", ".join(f"{loss:.3f}" for loss in trial.losses)
        columns: dict[str, Any] = {
            "trial": TableCell(name_of(trial).removeprefix("trial "), trial.number, left=True),
            "state": TableCell(trial.state, trial.state, css=trial.state),
            "front": TableCell("yes" if on_front else "", "1" if on_front else "0")}
        columns |= {name: MISSING_CELL if pd.isna(row[name])
                    else TableCell(format_cell(row, name, decimals[name]), float(row[name]))
                    for name in metrics}
        columns |= {
            "seeds": number(row["seeds"]),
            TIME_HEADINGS[time_column]: number(row[time_column], ",.1f"),
            "loss at rungs": TableCell(losses, trial.losses[-1]) if losses else MISSING_CELL}
        for name in params:
            value = row[name]
            shown = format_value(value)
            key = value if is_number(value) and pd.notna(value) else shown
            columns[name] = TableCell(shown, key)
        columns["files"] = TableCell("", links=trial_links(facts, trial))
        if not facts.has_front:
            del columns["front"]
        if not facts.meta.rungs.n_pauses:
            del columns["loss at rungs"]
        cells.append(columns)
        attributes.append({"id": f"trial-{trial.number}", "data-trial": trial.number,
                           "data-state": trial.state, "class": "front" if on_front else None})
    headings = [column_heading(name, facts.meta.protocol) if name in metrics
                else name.removeprefix(PARAM_PREFIX) for name in cells[0]]
    caption = (f"{format_count(len(rows), 'trial')}; costs under "
               f"{format_protocol(facts.meta.protocol)}. Click a heading to sort. The time is that "
               "of the updates, for the first seed.")
    states = [*[("front", "on the front")] * facts.has_front,
              *((state, state) for state in sorted(set(rows["state"])))]
    return PageSection("trials", "Trials", [
        ("filter", states), table(headings, [columns.values() for columns in cells], caption,
                                  "trials-table", attributes)])


def trial_links(facts: PageFacts, trial: Trial) -> list[PageLink]:
    """Links to the files of a trial, and to its costs and curve on the page."""
    links = [PageLink(name, address) for name, address in facts.links(trial).items()]
    if trial.number in facts.itemized:
        links.append(PageLink("costs", f"#costs-{trial.number}"))
    if trial.number in facts.plotted_numbers:
        links.append(PageLink("curve", "#curves", trial.number))
    return links


# -- costs


def cost_section(facts: PageFacts) -> PageSection:
    """Create the section: figures and tables per quantity, and modules of each trial."""
    title = "Cost breakdowns of the front" if facts.is_search else "Cost breakdowns"
    trials = [facts.trials[trial_number] for trial_number in facts.itemized]
    if not trials:
        empty = "No trial is on the front yet." if facts.is_search else "No finished trials."
        return PageSection("costs", title, [text(empty)])
    protocol = facts.meta.protocol
    length = protocol.get("length")  # of a language model
    target = protocol["target"] or "the protocol's"
    tokens = f"{length:,} tokens" if length else f"{target} target tokens"
    names = [TableCell(name_of(trial), trial.number, left=True) for trial in trials]
    tables = {}
    for quantity, caption in QUANTITY_CAPTIONS.items():
        rows = []
        for name, trial in zip(names, trials):
            total = amount(trial, quantity)
            rows.append([name, *(share_cell(amount(trial, quantity, section), total)
                                 for section in SECTION_COLORS), total])
        tables[quantity] = table(
            ["trial", *SECTION_COLORS, "total"], rows,
            f"{quantity}: {caption}; {format_protocol(protocol)}; "
            f"{protocol_conventions(protocol)}.", f"costs-{quantity}")
    rows = []
    for name, trial in zip(names, trials):
        sizes = [trial.costs.get(f"memory.{part}") for part in MEMORY_LABELS]
        rows.append([name, *(MISSING_CELL if size is None
                             else TableCell(format_bytes(size), size) for size in sizes)])
    cache_type = f" in {protocol['cache']}" if protocol.get("cache") else ""
    caption = (f"memory in float32; the key-value cache{cache_type} after {tokens}; activations: "
               "estimated memory of one example for the backward pass.")
    content = "The front, from the lowest cost" if facts.is_search else "All finished trials"
    return PageSection("costs", title, [
        ("panels", ([cost_picture(trials[:MAX_BARS], "params", "Params (millions)"),
                     cost_picture(trials[:MAX_BARS], "macs",
                                  "MACs per example (millions)")], None)),
        ("caption", f"{content}; {format_protocol(protocol)}."),
        tables["params"], tables["macs"], fold("FLOPs by section", [tables["flops"]]),
        table(["trial", *MEMORY_LABELS.values()], rows, caption, "costs-memory"),
        ("heading", "Module by module"),
        *(module_breakdown(facts.results.study, trial) for trial in trials)], "Cost breakdowns")


def amount(trial: Trial, quantity: str, section: str = "total") -> int:
    """Cost of a section of a trial; 0 if it is missing."""
    return int(trial.costs.get(f"{quantity}.{section}", 0))


def share_cell(value: int, total: int) -> TableCell:
    """Cell of a cost with its share of the total."""
    return TableCell(f"{value:,} ({format_percent(value / total)})" if total else "0", value)


def cost_picture(trials: Sequence[Trial], quantity: str, axis_label: str) -> Part:
    """Bars of a cost by section, one per trial."""
    positions = np.arange(len(trials))[::-1]
    with style.fixed_size_panel(0.9 + 0.22 * len(trials), (0.55, 0.5, 0.1, 0.3)) as (figure, axes):
        left = np.zeros(len(trials))
        for section, color in SECTION_COLORS.items():
            values = np.array([amount(trial, quantity, section) for trial in trials]) / 1e6
            axes.barh(positions, values, left=left, color=color, height=0.7, label=section)
            left += values
        axes.grid(False, axis="y")
        axes.set_yticks(positions, [str(trial.number) for trial in trials])
        axes.set(xlabel=axis_label, ylabel="Trial")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(SECTION_COLORS),
                    borderaxespad=0.3)
    words = "; ".join(f"trial {trial.number}: "
                      + ", ".join(f"{section} {amount(trial, quantity, section):,}"
                                  for section in (*SECTION_COLORS, "total")) for trial in trials)
    return picture(figure, f"costs-figure-{quantity}", f"Bars of {quantity} by section. {words}.",
                   "")


def module_breakdown(study: StudyDir, trial: Trial) -> Part:
    """Module costs of a trial, the uses of its weights, and its architecture file."""
    params = amount(trial, "params")
    macs = amount(trial, "macs")
    rows = [[TableCell(row.path.rpartition(".")[2], index, left=True, indent=row.level),
             share_cell(row.params, params), share_cell(row.macs, macs),
             "" if row.calls is None else row.calls]
            for index, row in enumerate(trial_module_costs(study, trial))]
    parts = [table(["module", "params", "MACs", "calls per pass"], rows,
                   f"{name_of(trial)}: the costs of a module include its parts; the layers of a "
                   "stack are summed.", f"costs-{trial.number}-modules") if rows
             else text("The architecture file is missing, or its costs differ from those of the "
                       "trial, so module costs are not shown.")]
    costs = trial.costs
    if any(name.startswith("load.") for name in costs):
        parts.append(text(f"Uses of a weight per pass: {costs['load.mean']:.3g} on average, "
                          f"{costs['load.min']:.3g} to {costs['load.max']:.3g}; balance (Jain's "
                          f"index) {costs['load.balance']:.3g}."))
    if config := architecture_text(study, trial):
        parts.append(fold("architecture.yaml", [("code", config)]))
    return fold(f"{name_of(trial)}: {params:,} params, {macs:,} MACs", parts,
                f"costs-{trial.number}")


def architecture_text(study: StudyDir, trial: Trial) -> str:
    """Text of the candidate's architecture file; empty if it is missing."""
    file = study.trial_folder(trial) / "architecture.yaml"
    return file.read_text("utf-8", errors="replace") if file.is_file() else ""


def trial_module_costs(study: StudyDir, trial: Trial) -> tuple[ModuleCost, ...]:
    """Costs per module of a candidate.

    Empty if the architecture file is missing, damaged, or its costs differ from the trial's.
    """
    file = study.trial_folder(trial) / "architecture.yaml"
    try:
        architecture = read_space(file).single_architecture()
    except (UserError, OSError):
        return ()
    costs = evaluate_cost(architecture.block,
                          load_protocol(study.meta.protocol).for_candidates(architecture.config))
    same = all(costs[name] == trial.costs.get(name) for name in ("params.total", "macs.total"))
    return tuple(module_costs(costs, MAX_MODULE_DEPTH)) if same else ()


# -- architectures, seeds and failures


def named_architectures_section(facts: PageFacts) -> PageSection | None:
    """Create the section with the named architectures and differences to the base.

    None if fewer than two architectures are named.
    """
    comparison = facts.architecture_table
    if comparison is None or len(comparison.rows) < 2:
        return None
    trials = {trial.label: trial for trial in reversed(facts.candidates)
              if trial.state not in (State.INFEASIBLE, State.DUPLICATE)}
    texts = comparison.format_cells()
    rows = []
    for row, cells in zip(comparison.rows, texts.itertuples(index=False)):
        keys = (row.params, row.macs, row.score, row.n_seeds, row.difference)
        trial = trials.get(row.name)  # its row in the table of trials
        name = (TableCell("", links=[PageLink(row.name, f"#trial-{trial.number}")]) if trial
                else TableCell(row.name))
        rows.append([name, *(MISSING_CELL if cell == MISSING_TEXT else TableCell(cell, key)
                             for cell, key in zip(cells[1:], keys))])
    headings = [plain_label(name) if name == comparison.metric else name for name in texts]
    caption = (f"{format_count(len(rows), 'named architecture')}; costs under "
               f"{format_protocol(facts.meta.protocol)}.")
    return PageSection("named", "Named architectures",
                       [table(headings, rows, caption, "named-table"), text(*comparison.notes())])


def interval_cell(value: ConfidenceInterval | None) -> TableCell:
    """Cell with an estimate and its interval."""
    return MISSING_CELL if value is None else TableCell(str(value), value.value)


def reliability_section(facts: PageFacts) -> PageSection:
    """Create the section on seed noise and correlations of early measurements."""
    replicates = facts.trials.replicates()
    seeds = [text("Each trial was trained with one seed; the noise between seeds is unknown.")]
    rows: list[list[Any]]
    if replicates:
        measured = [name for name in facts.results.objectives if "." not in name]
        rows = [[replicate.original, replicate.seed, replicate.state,
                 *(number((replicate.values or {}).get(name), f".{score_decimals(name)}f")
                   for name in measured)]
                for replicate in replicates]
        sentences = facts.results.seed_analysis.sentences()
        seeds = [text(*sentences or ["Replicates are in training; the noise is still unknown."]),
                 table(["trial", "seed", "state", *measured], rows,
                       f"{format_count(len(rows), 'run')} with further seeds.", "seeds-table")]
    audit = facts.results.proxy_audit()
    early = [text(*audit.lines()[:1], *["No early measurement differs between trials."]
                  * (audit.n >= audit.needed and not audit.proxies))]
    if audit.proxies:
        rows = [[TableCell(proxy_label(row.proxy)), row.n, number(row.rho, "+.2f"),
                 *map(interval_cell, (row.tau, row.tau_at_equal_cost, row.error, row.recall,
                                      row.regret))] for row in audit.proxies]
        early = [text(*audit.lines()),
                 table(["measurement", "trials", "Spearman's rho", "Kendall's tau",
                        "tau at equal cost", f"error ({audit.metric})", "recall of the front",
                        "regret of the front"], rows,
                       "How well early measurements predict the final score. Tau at equal cost "
                       "counts pairs in the same decile of the cost.", "proxies-table")]
    return PageSection("reliability", "Seed noise and early measurements",
                       [("heading", "Noise between seeds"), *seeds,
                        ("heading", "Early measurements against the final score"), *early])


def failures_section(facts: PageFacts) -> PageSection:
    """Create the section with failed trials and infeasible proposals by constraint."""
    failed, infeasible, duplicates = (
        facts.trials.with_state(state)
        for state in (State.FAILED, State.INFEASIBLE, State.DUPLICATE))
    parts = [text("No training run has failed.")]
    if failed:
        rows = [[TableCell(name_of(trial), trial.number, left=True),
                 TableCell(trial.reason or "unknown reason", css="failed"),
                 TableCell("", links=trial_links(facts, trial))] for trial in failed]
        parts = [table(["trial", "reason", "files"], rows,
                       f"{format_count(len(failed), 'failed trial')}.", "failures-table")]
    if infeasible:
        counts: Counter[str] = Counter()
        for trial in infeasible:
            violated = [name for name, violation in trial.constraints.items() if violation > 0]
            counts.update(violated or [trial.reason or "cannot be built"])
        caption = ("Infeasible by their exact costs, and not trained: "
                   f"{format_count(len(infeasible), 'proposal')}. A proposal that violates several "
                   "constraints counts for each of them.")
        parts.append(table(["constraint", "proposals that violate it"], counts.most_common(),
                           caption, "infeasible-table"))
    elif facts.is_search:
        parts.append(text("No proposal was infeasible."))
    if duplicates:
        noun = "proposal" if facts.is_search else "named architecture"
        parts.append(text(f"{len(duplicates)} {noun}{'s' * (len(duplicates) > 1)} duplicated "
                          "another trial of the study and had no run of its own."))
    title = "Failures and infeasible proposals" if infeasible or facts.is_search else "Failures"
    return PageSection("failures", title, parts, "Failures")


# -- provenance


def provenance_section(facts: PageFacts) -> PageSection:
    """Create the section with notes, ``study.json`` and links to files."""
    meta = facts.meta.encode()
    subject = facts.results.subject
    used = {name: ", ".join(sorted({str(value)
                                    for value in facts.results.table[name].dropna()}))
            for name in ("device", "dtype")}
    data: Any = meta["data"]
    limits: Any = meta["limits"]
    values = {**{key: meta[key] for key in ("name", "id", "created")},
              "space (hash)": meta["space_hash"], "data (hash)": f"{data['name']}, {data['hash']}",
              "seed": meta["seed"],
              "objectives": format_mapping(meta["objectives"]),
              "constraints": "; ".join(limits) or format_mapping(meta["bounds"]),
              "costs": format_protocol(subject.protocol), "metrics (signature)": subject.signature,
              **{key: format_mapping(meta[key])
                 for key in ("sampler", "rungs", "seeds", "teacher")},
              "devices": used["device"], "precision": used["dtype"]}
    parts = [text(*facts.results.notes()),
             ("names", [(name, value) for name, value in values.items()
                        if value not in (None, "")])]
    blocks = {title: meta.get(key) for title, key in PROVENANCE_BLOCKS.items()}
    for title, value in {**blocks, "All of study.json": meta}.items():
        if not value:
            continue
        if isinstance(value, Mapping) and not any(isinstance(inner, Mapping)
                                                  for inner in value.values()):
            part: Part = ("names", [(key, "–" if inner is None else inner)
                                    for key, inner in value.items()])
        else:
            part = ("code", json.dumps(value, indent=2, ensure_ascii=False))
        parts.append(fold(title, [part]))
    links = [PageLink(name, address) for name, address in facts.links().items()]
    if links:
        parts += [("heading", "Files"), ("links", links)]
    return PageSection("provenance", "Provenance", parts)


def format_mapping(value: object) -> str:
    """Format a mapping on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {format_mapping(inner)}" for key, inner in value.items()
                         if inner not in (None, "", {}))
    return "" if value is None else str(value)


# -- audit


def fairness_section(facts: PageFacts) -> PageSection | None:
    """Create the section with the findings so far; None if the study has no audit."""
    findings = audit_findings(facts.results)
    if findings is None:
        return None
    if not findings.regrets:
        return PageSection("fairness", "Fairness of the recipe", [text(*findings.lines())])

    def yes_or_no(condition: bool) -> str:
        return "yes" if condition else "no"

    regrets = [[regret.architecture, number(regret.loss_regret, ".3g"),
                number(regret.score_regret, ".3g"), describe_option(regret.best_option),
                yes_or_no(regret.is_best_at_edge)] for regret in findings.regrets]
    groups = [[group.name, group.n_architectures, interval_cell(group.mean_regret),
               interval_cell(group.difference_to_others), yes_or_no(group.is_disadvantaged)]
              for group in findings.groups]
    recipes = [[describe_option(alternative.option), interval_cell(alternative.mean_regret),
                number(alternative.kendall_tau, ".2f")] for alternative in findings.alternatives]
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
