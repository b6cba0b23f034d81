"""The model card: task, usage, costs, scores and provenance of an exported model."""

from __future__ import annotations

import re
from typing import Any

from scalesearch.cost import load_protocol
from scalesearch.export.export import collect_provenance
from scalesearch.tasks import TASKS
from scalesearch.train.checkpoint import Checkpoint
from scalesearch.train.scoring.evaluate import DecodingOptions

# Tasks that have a tag on the Hugging Face Hub.
HUB_TASK_TAGS = {"translation": "translation", "summarization": "summarization"}
COST_LABELS = {"params.total": "parameters",
               "params.non_embedding": "parameters without embeddings",
               "macs.total": "multiply-adds", "memory.weights": "bytes of weights in float32"}


def model_card(trained: Checkpoint) -> str:
    """Write the text of ``README.md``."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    facts = collect_provenance(trained)
    architecture = trained.architecture
    data = facts.get("data", {})
    metrics = facts.get("metrics", {})
    sides = (str(data.get("spec", {}).get(side)) for side in ("source", "target"))
    languages = [code for code in sides if re.fullmatch("[a-z]{2,3}", code)]
    name = f"scalesearch {architecture.id}"
    task_tag = HUB_TASK_TAGS.get(trained.task)
    scores = [(metric.label, metrics[key],
               str(metrics.get(f"{key}_signature", "")).replace("|", r"\|"))
              for key, metric in TASKS[trained.task].metrics.items() if key in metrics]
    head = {"library_name": "transformers", "license": "unknown",
            "tags": ["scalesearch", "neural-architecture-search"], "language": languages,
            "pipeline_tag": task_tag,
            "model-index": [_model_index(name, task_tag, data, metrics, scores)]
            if task_tag and scores else None}
    templates = Environment(loader=PackageLoader("scalesearch.export.huggingface", ""),
                            trim_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return templates.get_template("card.md").render(
        {"trained_with": {}, "seed": None} | facts,
        head={key: value for key, value in head.items() if value}, name=name, languages=languages,
        lowercase=trained.is_lowercase, data=data, metrics={"weights": ""} | metrics, scores=scores,
        costs=[(label, facts["costs"][key]) for key, label in COST_LABELS.items()],
        protocol=load_protocol(architecture.protocol).with_vocab(architecture.vocab),
        search=DecodingOptions(trained.recipe.beam, trained.recipe.length_penalty).description)


def _model_index(name: str, task_tag: str, data: dict[str, Any], metrics: dict[str, Any],
                 scores: list[Any]) -> dict[str, Any]:
    """Format the scores as the Hub expects them."""
    dataset = {"name": data["name"], "type": data["name"], "split": metrics["split"]}
    values = [{"type": label.lower(), "name": label, "value": value} for label, value, _ in scores]
    return {"name": name,
            "results": [{"task": {"type": task_tag}, "dataset": dataset, "metrics": values}]}
