"""Values that show themselves: the same in a terminal and in a notebook, and never as markup."""

from html.parser import HTMLParser
from io import StringIO

import pytest
from rich.console import Console

import scalesearch as ss
from scalesearch.api.display import Displayable, to_html
from scalesearch.terminal import make_table
from tests.api.spaces import SMALL


class Texts(HTMLParser):
    """What a page says, and whether its tags are closed."""

    def __init__(self, page):
        super().__init__()
        self.open = []
        self.said = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.said.append(data)


def shown():
    space = ss.space(SMALL)
    return {"space": space, "cost": space.sample().cost(), "feasible": space.feasible("tiny"),
            "solve": ss.space("transformer").solve("max width", "params.total <= 9M")}


@pytest.mark.full
@pytest.mark.parametrize("name", ["space", "cost", "feasible", "solve"])
def test_text_and_html_say_the_same(name):
    value = shown()[name]
    page = Texts(value._repr_html_())
    assert page.open == [] and page.said
    words = [word for part in page.said for word in part.split()]
    text = repr(value)
    assert "\x1b" not in text and [word for word in words if word not in text] == []


def test_rich_prints_it_as_its_tables():
    console = Console(width=160, file=StringIO())
    console.print(ss.space(SMALL))
    assert "encoder.depth" in console.file.getvalue()


def test_what_a_user_wrote_is_text():
    name = "<script>alert(1)</script> [bold] \x1b[31m"
    page = to_html([name, make_table((name,), [(name,)], title=name)])
    assert "<script" not in page and "\x1b" not in page and page.count("&lt;script&gt;") == 4


def test_the_width_is_that_of_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len,
                   repr(ss.space("transformer").architecture().cost()).splitlines()[:20])) <= 60


def test_a_value_says_what_it_consists_of():
    with pytest.raises(NotImplementedError):
        repr(Displayable())
