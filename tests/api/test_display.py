"""Display of values: the same text in terminals and notebooks, with markup escaped."""

from html.parser import HTMLParser
from io import StringIO

import pytest
from rich.console import Console

import scalesearch as ss
from scalesearch.api.display import Displayable, to_html
from scalesearch.terminal import make_table
from tests.api.spaces import SMALL


class Texts(HTMLParser):
    """Parser that collects the text of a page and checks that tags are closed."""

    def __init__(self, page):
        super().__init__()
        self.open = []
        self.texts = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def shown():
    space = ss.space(SMALL)
    return {"space": space, "cost": space.sample().cost(), "feasible": space.feasible("tiny"),
            "solve": ss.space("transformer").solve("max width", "params.total <= 9M")}


@pytest.mark.full
@pytest.mark.parametrize("name", ["space", "cost", "feasible", "solve"])
def test_text_and_html_have_equal_content(name):
    value = shown()[name]
    page = Texts(value._repr_html_())
    assert page.open == [] and page.texts
    words = [word for part in page.texts for word in part.split()]
    text = repr(value)
    assert "\x1b" not in text and [word for word in words if word not in text] == []


def test_rich_prints_tables():
    console = Console(width=160, file=StringIO())
    console.print(ss.space(SMALL))
    assert "encoder.depth" in console.file.getvalue()


def test_user_text_is_escaped():
    name = "<script>alert(1)</script> [bold] \x1b[31m"
    page = to_html([name, make_table((name,), [(name,)], title=name)])
    assert "<script" not in page and "\x1b" not in page and page.count("&lt;script&gt;") == 4


def test_width_follows_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len,
                   repr(ss.space("transformer").architecture().cost()).splitlines()[:20])) <= 60


def test_displayable_needs_parts():
    with pytest.raises(NotImplementedError):
        repr(Displayable())
