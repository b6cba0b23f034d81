"""Studies for tests of the report page, and a parser that lists the problems of a page."""

import json
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.executors.worker import finish_job
from scalesearch.studies.results.page.render import write_page
from scalesearch.studies.results.results import load_results
from scalesearch.studies.trials.study_dir import StudyDir
from tests.studies.fakes import architecture_of, fake_result, make_driver, make_plan

HOSTILE = """<script>alert("it's")</script>&<img src=x onerror=alert(1)>"""
VOID = {"meta", "input", "br", "img", "link", "hr"}
FAULT = "no memory for <32 & \"more\""


class Page(HTMLParser):
    """Parser of a page; ``problems`` lists invalid elements and links."""

    def __init__(self, file):
        super().__init__()
        self.file = Path(file)
        self.problems = []
        self.open = []
        self.ids = []
        self.hrefs = []
        self.tags = []
        self.texts = []
        self.marks = []
        self.feed(self.file.read_text())
        self.close()
        self.problems += [f"not closed: {name}" for name in self.open]
        self.problems += [f"duplicate id: {key}" for key in set(self.ids)
                          if self.ids.count(key) > 1]
        self.problems += [f"missing target: {href}" for href in self.hrefs
                          if not self._has_target(href)]

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attribute_list):
        attributes = dict(attribute_list)
        self.tags.append((tag, attributes))
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.hrefs += [attributes[key]
                       for key in ("href", "xlink:href", "src") if key in attributes]
        self.problems += [f"event handler: {key}" for key in attributes if key.startswith("on")]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"closed out of order: {tag}")

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.texts.append(data)
        elif self.open[-1] == "script" and self.tags[-1][1].get("type") == "application/json":
            self.marks.append(json.loads(data))

    def _has_target(self, href):
        if href.startswith("#"):
            return href[1:] in self.ids
        if href.startswith("data:image/png;base64,"):  # a color bar
            return True
        parts = urlsplit(href)
        return not parts.scheme and not parts.netloc and (
            self.file.parent / unquote(parts.path)).is_file()

    @property
    def text(self):
        """Visible text of the page."""
        return " ".join(" ".join(self.texts).split())

    def alts(self):
        """Descriptions of all figures."""
        return [attributes.get("aria-label")
                for _, attributes in self.tags if attributes.get("role") == "img"]


def page_of(folder, to=None):
    """Write and parse the page of the study in ``folder``."""
    return Page(write_page(load_results(Path(folder)), Path(to or Path(folder) / "report.html")))


def curved_result(folder, job):
    """Result of a run with a curve; architectures of depth 8 fail."""
    config = json.loads((folder / "architecture.yaml").read_text())
    if config["depth"] == 8:
        return {"state": "failed", "reason": FAULT}
    curve = [{"step": step, "train_loss": 4 - step / 10, "validation_loss": 5 - step / 10}
             for step in (2, 4, 8)]
    return fake_result(folder, job) | {"curve": curve}


def curved_work(folder):
    """Finish the job without training."""
    finish_job(Path(folder), curved_result)


def study(folder, trials=10, **changes):
    """Run a study with a reference whose name contains HTML."""
    large = {"width": 64, "depth": 4, "kind": "plain"}
    plan = make_plan(
        trials, references=(FixedArchitecture(HOSTILE, architecture_of(large), large),), **changes)
    make_driver(folder, plan, curved_work).run()
    return Path(folder)


def references_only(folder, architectures=None, params=None, **changes):
    """Run a study of named architectures without a search.

    If ``params`` is None, the architectures are not in the space of the study.
    """
    configs = architectures or {"small": {"width": 16, "depth": 2, "kind": "plain"},
                                HOSTILE: {"width": 64, "depth": 4, "kind": "plain"}}
    named = tuple(FixedArchitecture(name, architecture_of(config), params)
                  for name, config in configs.items())
    make_driver(folder, make_plan(0, references=named, **changes), curved_work).run()
    revise(folder, total_trials=len(named))
    return Path(folder)


def revise(folder, **changed):
    """Change keys of ``study.json``."""
    StudyDir(Path(folder)).load().update_meta(**changed)
