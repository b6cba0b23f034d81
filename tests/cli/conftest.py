"""Check of the JSON that commands print."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import click
import pytest

from scalesearch.files import replace_non_finite
from tools.json_keys import add_keys, keys_of, read_keys


@pytest.fixture(autouse=True, scope="module")
def check_json_keys(pytestconfig: pytest.Config) -> Iterator[None]:
    """Check that the keys of the JSON of commands are documented; see ``tools.json_keys``."""
    keys = read_keys()
    printed: dict[str, list[str]] = defaultdict(list)
    is_writing = pytestconfig.getoption("--write-json-keys")

    def check(value: Any) -> Any:
        context = click.get_current_context(silent=True)
        if context is not None and context.params.get("as_json"):
            # a renamed command (with arguments, "...") calls the new one
            command = re.sub(r"^(app|scalesearch) (.*\.\.\. )?", "", context.command_path)
            printed[command] += keys_of(value)
            new = {*printed[command]}.difference(keys.get(command, []))
            assert is_writing or not new, f"--write-json-keys adds new keys of {command}: {new}"
        return replace_non_finite(value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scalesearch.cli.options.replace_non_finite", check)
        yield
    if is_writing:
        add_keys(printed)
