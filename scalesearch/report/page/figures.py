"""The figures that a study has of its own, such as the laws of a scaling study."""

import re

from scalesearch.report.page.facts import Facts
from scalesearch.report.page.html import Section, join, tag
from scalesearch.report.page.svg import framed, inline_text


def section(facts: Facts) -> Section | None:
    """Each figure under its title; None where the study has none."""
    if not facts.figures:
        return None
    body = [join((tag("h3", title), framed(inline_text(text, _key(at, title), f"{title}. {caption}"), caption)))
            for at, (title, text, caption) in enumerate(facts.figures)]
    return Section("figures", "Figures of this study", join(body))


def _key(at: int, title: str) -> str:
    """What stands before the figure's ids: no two figures have the same."""
    return f"figure-{at}-" + re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
