"""A user-defined feed-forward network with all types of options."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import scalesearch as ss
from scalesearch.blocks.core import Block, Size, Use, block
from scalesearch.blocks.elementwise import dropout
from scalesearch.blocks.ffn import FFN, FFNS, register_ffn
from scalesearch.blocks.leaves import Linear
from scalesearch.blocks.options import option_field
from scalesearch.nn.build import build_module
from scalesearch.spaces import ConfigError, Space, UnbuildableError
from scalesearch.spaces.schema import builtin
from scalesearch.studies.engine.setup import check_blocks, drop_infeasible_architectures, make_evaluator
from scalesearch.testing import check_ffn
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


def test_installed_packages_register_ffns(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        def load(self) -> None:
            monkeypatch.setitem(FFNS, "installed", Grouped)

    monkeypatch.setattr(builtin, "entry_points",
                        lambda group: [Point()] if group == "scalesearch.blocks" else [])
    builtin._load_installed.cache_clear()
    space = Space.parse("width: 8\nencoder: { ffn: { installed: { hidden: 8 } } }\n")
    assert isinstance(space.single_architecture().block.encoder.layer.ffn, Grouped)


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
    evaluator = make_evaluator(spec, None)
    assert drop_infeasible_architectures(spec, evaluator) is spec
    once = Grouped.forward
    monkeypatch.setattr(Grouped, "forward",
                        lambda self, *arguments: once(self, *arguments) + once(self, *arguments))
    with refuses("costs-differ", "maxout"):
        drop_infeasible_architectures(spec, evaluator)
