"""The space ``papers`` contains architectures of all three papers."""

import pytest

from scalesearch.library import find_file
from scalesearch.spaces import read_space


@pytest.mark.parametrize("name",
                         ["partialformer-24-6-d360-h24-24", "partialformer-24-6-d512-h24-24",
                          "anthe", "edgeformer", "edgeformer-bias", "edgeformer-adapter"])
def test_space_of_the_papers_contains_their_architectures(name: str) -> None:
    published = read_space(find_file(f"reference/{name}", "spaces"))
    config = published.resolve(lambda parameter, _: pytest.fail(f"{parameter} is open"))
    assert read_space(find_file("papers", "spaces")).contains(config)
