"""Studies to make pages of, and a reader that says what is wrong with a page."""

import json
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from scalesearch.study.config.fixed_architectures import FixedArchitecture
from scalesearch.study.executors.worker import finish_job
from scalesearch.study.results.page.render import write_page
from scalesearch.study.results.results import load_results
from scalesearch.study.trials.study_dir import StudyDir
from tests.study.fakes import architecture_of, fake_result, make_driver, make_plan

HOSTILE = """<script>alert("it's")</script>&<img src=x onerror=alert(1)>"""
VOID = {"meta", "input", "br", "img", "link", "hr"}
FAULT = "no memory for <32 & \"more\""


class Page(HTMLParser):
    """Reads a page; ``wrong`` lists what no page may have."""

    def __init__(self, file):
        super().__init__()
        self.file = Path(file)
        self.wrong = []
        self.open = []
        self.ids = []
        self.hrefs = []
        self.tags = []
        self.said = []
        self.marks = []
        self.feed(self.file.read_text())
        self.close()
        self.wrong += [f"never closed: {name}" for name in self.open]
        self.wrong += [f"twice: {one}" for one in set(self.ids) if self.ids.count(one) > 1]
        self.wrong += [f"leads nowhere: {href}" for href in self.hrefs if not self._leads(href)]

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append((tag, found))
        self.ids += [found["id"]] if "id" in found else []
        self.hrefs += [found[key] for key in ("href", "xlink:href", "src") if key in found]
        self.wrong += [f"a handler: {key}" for key in found if key.startswith("on")]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"closed out of order: {tag}")

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.said.append(data)
        elif self.open[-1] == "script" and self.tags[-1][1].get("type") == "application/json":
            self.marks.append(json.loads(data))

    def _leads(self, href):
        if href.startswith("#"):
            return href[1:] in self.ids
        if href.startswith("data:image/png;base64,"):  # a color scale
            return True
        parts = urlsplit(href)
        return not parts.scheme and not parts.netloc and (
            self.file.parent / unquote(parts.path)).is_file()

    @property
    def text(self):
        """What a reader sees."""
        return " ".join(" ".join(self.said).split())

    def alts(self):
        """The words for each figure."""
        return [found.get("aria-label") for _, found in self.tags if found.get("role") == "img"]


def page_of(folder, to=None):
    """The study's page, written and read."""
    return Page(write_page(load_results(Path(folder)), Path(to or Path(folder) / "report.html")))


def curved_result(folder, job):
    """What training would leave, with a curve; the deepest fail."""
    answers = json.loads((folder / "architecture.yaml").read_text())
    if answers["depth"] == 8:
        return {"state": "failed", "reason": FAULT}
    curve = [{"step": step, "train_loss": 4 - step / 10, "validation_loss": 5 - step / 10}
             for step in (2, 4, 8)]
    return fake_result(folder, job) | {"curve": curve}


def curved_work(folder):
    """Trains in no time."""
    finish_job(Path(folder), curved_result)


def study(folder, trials=10, **changes):
    """A finished study with a reference whose name would break a careless page."""
    large = {"width": 64, "depth": 4, "kind": "plain"}
    plan = make_plan(
        trials, references=(FixedArchitecture(HOSTILE, architecture_of(large), large),), **changes)
    make_driver(folder, plan, curved_work).run()
    return Path(folder)


def references_only(folder, architectures=None, params=None, **changes):
    """A finished study of named architectures, which searches nothing; ``params`` None: from outside its space."""
    sheets = architectures or {"small": {"width": 16, "depth": 2, "kind": "plain"},
                               HOSTILE: {"width": 64, "depth": 4, "kind": "plain"}}
    named = tuple(FixedArchitecture(name, architecture_of(sheet), params)
                  for name, sheet in sheets.items())
    make_driver(folder, make_plan(0, references=named, **changes), curved_work).run()
    revise(folder, total_trials=len(named))
    return Path(folder)


def revise(folder, **changed):
    """Has ``study.json`` say something else."""
    StudyDir(Path(folder)).load().update_meta(**changed)
