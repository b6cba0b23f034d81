"""The page as a whole: its head, its sections in order, its script."""

from collections import Counter
from collections.abc import Callable

from scalesearch.report.page import (
    bills,
    candidates,
    course,
    curves,
    failures,
    figures,
    importance,
    named,
    parallel,
    provenance,
    tradeoffs,
    trust,
)
from scalesearch.report.page.facts import Facts
from scalesearch.report.page.html import Html, Section, join, paragraphs, tag
from scalesearch.report.page.script import JS
from scalesearch.report.page.slim import sharing_letters
from scalesearch.report.page.style import CSS

SECTIONS: tuple[Callable[[Facts], Section | None], ...] = (
    tradeoffs.section, named.section, figures.section, candidates.section, trust.section, course.section,
    parallel.section, importance.section, curves.section, bills.section, failures.section, provenance.section,
)
STATES = {"complete": "finished", "pending": "in training or waiting", "paused": "at a rung",
          "failed": "failed", "infeasible": "refused", "duplicate": "seen before"}
# Nothing is fetched, whatever a label may hold: the page says so, and browsers keep to it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def render(facts: Facts) -> str:
    """The whole file."""
    made = [one for section in SECTIONS if (one := section(facts)) is not None]
    title = f"Study {facts.name}"
    head = tag("head", tag("meta", charset="utf-8"),
               tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
               tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
               tag("title", title), tag("style", Html(CSS)))
    menu = tag("nav", *(tag("a", one.short or one.title, href=f"#{one.key}") for one in made), aria_label="Sections")
    body = tag("body", menu, tag("header", tag("h1", title), _tiles(facts), paragraphs(facts.notes[:2])),
               tag("main", sharing_letters(join(one.render() for one in made))),
               tag("footer", tag("p", "Made by scalesearch study report; it holds no link to any network.")),
               tag("script", Html(JS)))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _tiles(facts: Facts) -> Html:
    own = [one for one in facts.candidates.values() if one.origin != "seed"]
    counts = Counter(one.state for one in own)
    tiles = [(counts[state], words) for state, words in STATES.items() if counts[state] or state == "complete"]
    again = sum(one.origin == "seed" and one.state == "complete" for one in facts.candidates.values())
    tiles += [(again, "further seeds")] if again else []
    tiles += [(len(facts.front), "on the front")] if facts.ranked else []
    running = any(one.state == "pending" for one in facts.candidates.values())
    state = tag("p", "Some candidates are not finished: this is how the study stood when the page was made.") \
        if running else Html("")
    return join((tag("div", *(tag("div", tag("b", f"{count:,}"), tag("span", words), class_="tile")
                              for count, words in tiles), class_="tiles"), state))
