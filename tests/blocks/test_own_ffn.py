"""A user-defined feed-forward network with all types of options."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import optuna
import pytest

import scalesearch as ss
from scalesearch.blocks.core import SRC, Block, LoopNest, Size, Use, block
from scalesearch.blocks.elementwise import dropout
from scalesearch.blocks.ffn import FFN, FFNS, register_ffn
from scalesearch.blocks.leaves import Linear
from scalesearch.blocks.maps.linear_factories import DENSE
from scalesearch.blocks.options import option_field
from scalesearch.nn.build import build_module
from scalesearch.spaces import ConfigError, Space, UnbuildableError
from scalesearch.spaces.schema import builtin
from scalesearch.studies.engine.dry_run import dry_run
from scalesearch.studies.engine.setup import (
    check_blocks,
    check_costs_of_blocks,
    make_evaluator,
)
from scalesearch.testing import BlockSample, check_ffn, check_model, checks, registered_blocks
from tests.errors import refuses


@block
class Grouped(FFN):
    """Maxout over ``pieces`` (Goodfellow et al. 2013), then a grouped linear map."""

    hidden: Size = option_field("= 4 * width", doc="hidden units")
    pieces: Size = option_field("2", maximum=4, doc="maps of which the greatest counts")
    groups: Size = option_field("2", choices=(1, 2, 4), doc="groups that the hidden units form")
    activation: str = option_field("relu", type="word", choices=("relu", "tanh"))
    skip: bool = option_field("no", type="flag", doc="add the mean of the groups")

    def validate(self) -> tuple[str, str] | None:
        if self.hidden % self.groups:
            return "hidden", f"{self.hidden} hidden units do not form {self.groups} groups"
        return None

    def parts(self) -> Mapping[str, Block | Use]:
        up = Linear(self.d, self.pieces * self.hidden, self.over)
        inner = Linear(self.hidden // self.groups, self.d, (*self.over, self.groups), bias=False)
        return {"up": up, "down": inner}

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((*self.over, 2 * self.hidden), "activation")]  # of amax, then activation

    def forward(self, module: Any, x: Any) -> Any:
        hidden = module.up(x).unflatten(-1, (self.pieces, -1)).amax(-2)
        hidden = dropout(getattr(hidden, self.activation)(), module.dropout_rates.activation,
                         module.training)
        groups = hidden.unflatten(-1, (self.groups, -1))
        output = module.down(groups).sum(-2)
        return output + groups.mean((-1, -2))[..., None] if self.skip else output


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register_ffn("maxout")(Grouped)
    yield
    del FFNS["maxout"]


@pytest.mark.slow  # docs/develop/blocks.md runs the same check on a similar network
def test_registered_ffn_passes_the_public_check() -> None:
    check_ffn("maxout")


def test_public_check_compares_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered_blocks, "NUM_BLOCKS", 0)
    monkeypatch.setattr(registered_blocks, "NUM_MODELS", 0)
    monkeypatch.setattr(Grouped, "loop_nests", FFN.loop_nests)
    with pytest.raises(AssertionError) as caught:
        check_ffn("maxout")
    assert str(caught.value).startswith("activations")


def test_failed_check_prints_declared_and_counted_macs(monkeypatch: pytest.MonkeyPatch) -> None:
    once = Grouped.forward
    monkeypatch.setattr(Grouped, "forward", lambda self, module, x: once(
        self, module, module.up(x)[..., :1] + x))
    grouped = Grouped(8, (SRC,), DENSE, hidden=10, pieces=2, groups=1, activation="relu",
                      skip=False)
    declared = checks.BATCH * checks.S * (8 * 20 + 10 * 8)
    counted = declared + checks.BATCH * checks.S * 8 * 20
    with pytest.raises(AssertionError) as caught:
        checks.check_costs(BlockSample(grouped, ((SRC, 8),)))
    assert f"{declared:,}" in str(caught.value) and f"{counted:,}" in str(caught.value)
    assert "The difference is in up: 2,400 and 4,800. In Grouped(" in str(caught.value)


@pytest.mark.parametrize("shapes, forward, expected", [
    ({}, lambda self, module, x: x @ x.new_ones(8, 8), "encoder.layers.ffn: 0 and "),
    ({"weight": (8, 8)}, lambda self, module, x: x, "encoder.layers.1.ffn.weight"),
], ids=["MACs", "unused weight"])
def test_failed_check_of_a_model_names_the_part(
        shapes: dict[str, Any], forward: Any, expected: str,
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Grouped, "parts", lambda self: {})
    monkeypatch.setattr(Grouped, "weights", lambda self: shapes)
    monkeypatch.setattr(Grouped, "forward", forward)
    model = Space.from_python({"width": 8, "encoder": {"depth": 2, "ffn": {"maxout": {}}}})
    with pytest.raises(AssertionError) as caught:
        check_model(model.single_architecture(), 1)
    message = str(caught.value)
    assert expected in message and "'decoder." not in message and len(message) < 1000


def test_check_of_search_logs_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    optuna.logging.set_verbosity(optuna.logging.INFO)
    ffns = {"one of": {"relu": {}, "maxout": {"hidden": 8}}}
    registered_blocks.check_search(registered_blocks.tiny_space({"ffn": ffns}), "encoder.ffn",
                                   "maxout")
    assert capfd.readouterr().err == ""


def test_inconsistent_sizes_are_unbuildable() -> None:
    space = Space.from_python({"width": 8,
                               "encoder": {"ffn": {"maxout": {"hidden": 65, "groups": "1 | 2"}}}})
    configs = {config["encoder.ffn.groups"]: config for config in space.enumerate()}
    space.architecture(configs[1])
    with pytest.raises(UnbuildableError) as caught:
        space.architecture(configs[2])
    assert caught.value.key == "encoder.ffn.maxout.hidden"
    with pytest.raises(ValueError):
        build_module(replace(space.architecture(configs[1]).block.encoder.layer.ffn, groups=2),
                     vocab=8)


def text(keys: str) -> str:
    return f"width: 8\nencoder:\n  ffn:\n    maxout:\n      {keys}\n"


@pytest.mark.parametrize("keys",
                         ["groups: 3", "groups: 1..4", "activation: gelu", "pieces: 5", "skip: 1"])
def test_illegal_option_values_are_rejected_with_position(keys: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse(text(keys))
    assert [problem.position.line for problem in caught.value.problems] == [4]


def test_illegal_computed_option_values_are_infeasible() -> None:
    config = Space.parse(text("groups: = 3")).resolve(lambda *request: None)
    assert [key for key, _ in config.infeasible_values] == ["encoder.ffn.groups"]


def install(monkeypatch: pytest.MonkeyPatch, point: object) -> None:
    """Register an entry point of blocks, as an installed package does."""
    monkeypatch.setattr(builtin, "entry_points",
                        lambda group: [point] if group == "scalesearch.blocks" else [])
    builtin._load_installed.cache_clear()


def test_installed_packages_register_ffns(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        def load(self) -> None:
            monkeypatch.setitem(FFNS, "installed", Grouped)

    install(monkeypatch, Point())
    space = Space.parse("width: 8\nencoder: { ffn: { installed: { hidden: 8 } } }\n")
    assert isinstance(space.single_architecture().block.encoder.layer.ffn, Grouped)


def test_packages_that_cannot_be_imported_are_errors_of_the_user(
        monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, EntryPoint("own", "no_such_module", builtin.ENTRY_POINT_GROUP))
    with refuses("package-not-loaded", "no_such_module", "ModuleNotFoundError"):
        Space.parse("width: 8\n")


def test_duplicate_ffn_names_are_rejected() -> None:
    for name in ("relu", "other"):  # the name or the class is in use
        with pytest.raises(ValueError, match="already registered"):
            register_ffn(name)(Grouped)


def test_a_notebook_cell_may_register_its_class_again() -> None:
    copy = type("Grouped", (Grouped,), {"__module__": Grouped.__module__})
    assert register_ffn("maxout")(copy) is FFNS["maxout"] is copy
    other = type("Grouped", (Grouped,), {"__module__": "elsewhere"})
    with pytest.raises(ValueError, match="already registered"):
        register_ffn("maxout")(other)


def test_studies_in_worker_processes_need_installed_blocks(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"study": "own", "space": ss.space(text("hidden: 8 | 16")), "data": "builtin",
            "recipe": "quick", "objectives": {"bleu": "max"}}
    with refuses("block-not-installed", "maxout", "docs/develop/blocks.md"):
        ss.study(keys, out=tmp_path / "own").run()
    own = ss.space(text("hidden: 8")).architecture()
    spec = ss.study({**keys, "space": "small/plain", "reference": own}).spec
    with refuses("block-not-installed", "maxout"):
        check_blocks(spec)
    keys["recipe"] = {"steps": 1}
    (tmp_path / "teacher.yaml").write_text(text("hidden: 8"))
    for study in (ss.study(keys),
                  ss.study({**keys, "space": "small/plain",
                            "teacher": {"file": str(tmp_path / "teacher.yaml")}})):
        with refuses("block-not-installed", "maxout"):
            dry_run(study.spec)
    spec = ss.study(keys, backend="inprocess", workers=1).spec
    check_blocks(spec)
    point = EntryPoint("maxout", f"{Grouped.__module__}:Grouped", builtin.ENTRY_POINT_GROUP)
    monkeypatch.setattr(builtin, "entry_points", lambda group: [point])
    check_blocks(ss.study(keys).spec)


def test_studies_refuse_blocks_with_undeclared_products(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = ss.space("width: 8\nencoder: { ffn: { one of: { relu: {}, maxout: {} } } }\n")
    keys = {"study": "own", "space": space, "data": "builtin", "recipe": "quick",
            "objectives": {"bleu": "max"}, "protocol": {"source": 6, "target": 6, "vocab": 40}}
    spec = ss.study(keys, backend="inprocess", workers=1, out=tmp_path / "own").spec
    reference = ss.space(text("hidden: 8")).architecture()
    of_reference = ss.study({**keys, "space": "small/plain", "reference": reference}).spec
    specs = (spec, of_reference)
    warnings: list[str] = []
    for spec in specs:
        check_costs_of_blocks(spec, make_evaluator(spec, None), warnings.append)
    assert not warnings
    once = Grouped.forward
    with monkeypatch.context() as context:
        context.setattr(Grouped, "forward",
                        lambda self, module, x: once(self, module, x) * x.sum().item())
        check_costs_of_blocks(spec, make_evaluator(spec, None), warnings.append)
    assert len(warnings) == 1 and "`maxout`" in warnings[0]
    monkeypatch.setattr(Grouped, "forward",
                        lambda self, *arguments: once(self, *arguments) + once(self, *arguments))
    for spec in specs:
        with refuses("costs-differ", "maxout"):
            check_costs_of_blocks(spec, make_evaluator(spec, None), warnings.append)
