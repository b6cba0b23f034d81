"""The model card: what the model is, costs, did, and comes from."""

from __future__ import annotations

import re
from typing import Any

from scalesearch.cost import load_protocol
from scalesearch.export.export import collect_provenance
from scalesearch.tasks import TASKS
from scalesearch.train.checkpoint import Checkpoint
from scalesearch.train.scoring.evaluate import DecodingOptions

# tasks that have a name there
HUB_TASK_TAGS = {"translation": "translation", "summarization": "summarization"}
COST_LABELS = {"params.total": "parameters",
               "params.non_embedding": "parameters without embeddings",
               "macs.total": "multiply-adds", "memory.weights": "bytes of weights in float32"}


def model_card(trained: Checkpoint) -> str:
    """The text of ``README.md``."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    facts = collect_provenance(trained)
    architecture = trained.architecture
    data = facts.get("data", {})
    metrics = facts.get("metrics", {})
    sides = (str(data.get("spec", {}).get(side)) for side in ("source", "target"))
    languages = [code for code in sides if re.fullmatch("[a-z]{2,3}", code)]
    name = f"scalesearch {architecture.id}"
    kind = HUB_TASK_TAGS.get(trained.task)
    scores = [(metric.label, metrics[key],
               str(metrics.get(f"{key}_signature", "")).replace("|", r"\|"))
              for key, metric in TASKS[trained.task].metrics.items() if key in metrics]
    head = {"library_name": "transformers", "license": "unknown",
            "tags": ["scalesearch", "neural-architecture-search"], "language": languages,
            "pipeline_tag": kind,
            "model-index": [_model_index(name, kind, data, metrics, scores)] if kind and scores
            else None}
    templates = Environment(loader=PackageLoader("scalesearch.export.huggingface", ""),
                            trim_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return templates.get_template("card.md").render(
        {"trained_with": {}, "seed": None} | facts,
        head={key: value for key, value in head.items() if value}, name=name, languages=languages,
        lowercase=trained.is_lowercase, data=data, metrics={"weights": ""} | metrics, scores=scores,
        costs=[(what, facts["costs"][key]) for key, what in COST_LABELS.items()],
        protocol=load_protocol(architecture.protocol).with_vocab(architecture.vocab),
        search=DecodingOptions(trained.recipe.beam, trained.recipe.length_penalty).description)


def _model_index(name: str, kind: str, data: dict[str, Any], metrics: dict[str, Any],
                 scores: list[Any]) -> dict[str, Any]:
    """Scores as the Hub reads them."""
    dataset = {"name": data["name"], "type": data["name"], "split": metrics["split"]}
    values = [{"type": what.lower(), "name": what, "value": value} for what, value, _ in scores]
    return {"name": name,
            "results": [{"task": {"type": kind}, "dataset": dataset, "metrics": values}]}
