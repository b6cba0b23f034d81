"""Keys of the JSON of commands: each command with --json has some."""

from scalesearch.cli.main import app
from tools.json_keys import keys_of, read_keys
from tools.pages import commands


def test_each_command_with_json_has_keys():
    with_json = {" ".join(path) for path, command in commands(app, ())
                 if any(parameter.name == "as_json" for parameter in command.params)}
    # the help of translate names its keys, and no test measures for a calibration
    assert with_json - {"translate", "latency calibrate"} == set(read_keys())


def test_keys_of_an_object_and_of_a_list():
    assert [*keys_of({"trial": 0, "params.total": 9})] == ["trial"]
    assert [*keys_of([{"a": 1}, {"b": 2}])] == ["a", "b"]
