"""The space of all three papers holds an architecture of each, to the last bias."""

import pytest

from scalesearch.library import find_file
from scalesearch.space import read_space


@pytest.mark.parametrize("name",
                         ["partialformer-24-6-d360-h24-24", "partialformer-24-6-d512-h24-24",
                          "anthe", "edgeformer", "edgeformer-bias", "edgeformer-adapter"])
def test_the_space_of_the_papers_holds_their_architectures(name: str) -> None:
    published = read_space(find_file(f"reference/{name}", "spaces"))
    answers = published.resolve(lambda parameter, _: pytest.fail(f"{parameter} is open"))
    assert read_space(find_file("papers", "spaces")).contains(answers)
