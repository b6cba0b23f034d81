"""Where the numbers come from: what would be needed to make them again."""

import json
from collections.abc import Mapping
from typing import Any

from scalesearch.report.page.facts import Facts
from scalesearch.report.page.html import Html, Section, join, pairs, paragraphs, tag
from scalesearch.report.page.words import under


def section(facts: Facts) -> Section:
    """Notes, then everything the study's own file says, then its files."""
    meta = facts.meta
    body = [paragraphs(facts.notes), pairs(_main(facts)), _block("Recipe", meta.get("recipe")),
            _block("Versions", meta.get("versions")), _block("Data", meta.get("data")),
            _block("Protocol", meta.get("protocol")), _block("All of study.json", meta), _files(facts)]
    return Section("provenance", "Provenance", join(body))


def _main(facts: Facts) -> list[tuple[object, object]]:
    meta, table = facts.meta, facts.table
    used = {name: sorted({str(value) for value in table[name].dropna()}) for name in ("device", "dtype")
            if name in table}
    found = [
        ("study", meta.get("name")), ("id", meta.get("id")), ("created", meta.get("created")),
        ("space (hash)", meta.get("space")), ("data (hash)", f"{meta['data']['name']}, {meta['data']['hash']}"),
        ("seed", meta.get("seed")), ("objectives", _plain(meta.get("objectives"))),
        ("limits", "; ".join(meta.get("limits") or ()) or _plain(meta.get("bounds"))),
        ("protocol", under(facts.subject.protocol)), ("metrics (signature)", facts.subject.signature),
        ("proposer", _plain(meta.get("proposer"))), ("rungs", _plain(meta.get("rungs"))),
        ("seeds", _plain(meta.get("seeds"))), ("teacher", _plain(meta.get("teacher"))),
        ("devices", ", ".join(used.get("device", ()))), ("precision", ", ".join(used.get("dtype", ()))),
    ]
    return [(name, value) for name, value in found if value not in (None, "")]


def _plain(value: Any) -> str:
    """A mapping on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(one)}" for key, one in value.items())
    return "" if value is None else str(value)


def _block(title: str, value: Any) -> Html:
    if not value:
        return Html("")
    flat = isinstance(value, Mapping) and not any(isinstance(one, Mapping) for one in value.values())
    inside = pairs((key, "–" if one is None else str(one)) for key, one in value.items()) if flat else \
        tag("pre", json.dumps(value, indent=2, ensure_ascii=False), class_="scroll")
    return tag("details", tag("summary", title), inside)


def _files(facts: Facts) -> Html:
    links = (tag("a", name, href=address) for name, address in facts.files.items())
    return tag("p", "Files: ", join(links, ", ")) if facts.files else Html("")
