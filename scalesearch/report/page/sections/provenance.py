"""Where the numbers come from: what it takes to make them again."""

import json
from collections.abc import Mapping
from typing import Any

from scalesearch.report.labels import protocol_words
from scalesearch.report.page.facts import Facts
from scalesearch.report.page.parts import Link, Part, Section, fold, text

BLOCKS = {"Recipe": "recipe", "Versions": "versions", "Data": "data", "Protocol": "protocol"}


def section(facts: Facts) -> Section:
    """Notes, then everything in study.json, then the study's files."""
    blocks = {title: facts.meta.get(key) for title, key in BLOCKS.items()} | {"All of study.json": facts.meta}
    links = [Link(name, address) for name, address in facts.files.items()]
    return Section("provenance", "Provenance", [
        text(*facts.notes), ("names", _main(facts)),
        *(_block(title, value) for title, value in blocks.items() if value),
        *[("heading", "Files"), ("links", links)] * bool(links)])


def _main(facts: Facts) -> list[tuple[str, Any]]:
    meta, table = facts.meta, facts.table
    used = {name: ", ".join(sorted({str(value) for value in table[name].dropna()})) if name in table else ""
            for name in ("device", "dtype")}
    found = {
        **{key: meta.get(key) for key in ("name", "id", "created")}, "space (hash)": meta.get("space"),
        "data (hash)": f"{meta['data']['name']}, {meta['data']['hash']}", "seed": meta.get("seed"),
        "objectives": _plain(meta.get("objectives")),
        "constraints": "; ".join(meta.get("limits") or ()) or _plain(meta.get("bounds")),
        "costs": protocol_words(facts.subject.protocol), "metrics (signature)": facts.subject.signature,
        **{key: _plain(meta.get(key)) for key in ("sampler", "rungs", "seeds", "teacher")},
        "devices": used["device"], "precision": used["dtype"],
    }
    return [(name, value) for name, value in found.items() if value not in (None, "")]


def _plain(value: Any) -> str:
    """A mapping on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(one)}" for key, one in value.items())
    return "" if value is None else str(value)


def _block(title: str, value: Any) -> Part:
    if isinstance(value, Mapping) and not any(isinstance(one, Mapping) for one in value.values()):
        return fold(title, [("names", [(key, "–" if one is None else one) for key, one in value.items()])])
    return fold(title, [("code", json.dumps(value, indent=2, ensure_ascii=False))])
