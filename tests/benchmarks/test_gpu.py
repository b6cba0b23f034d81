"""The GPU kit where there is no GPU: what it can it runs, what it cannot it says, and a fault is found."""

import json
import sys

import pytest
import torch

from tests.docs.blocks import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu
from gpu_kit import correctness
from gpu_kit.kit import CHECKS, Kit, Wrong

BESIDE_THE_CPU = ("attention_kernels", "updates", "decoding", "soft_targets")


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path, quick=True, device=torch.device("cpu"))


@pytest.mark.parametrize("name", BESIDE_THE_CPU)
def test_what_is_compared_with_the_cpu_agrees_with_itself(kit, name):
    assert CHECKS[name].run(kit)


def test_a_device_that_computes_something_else_is_found(kit, monkeypatch):
    monkeypatch.setattr(correctness, "FAMILIES", ("small/plain",))
    monkeypatch.setattr(correctness, "SECOND_TIER", ())
    assert max(CHECKS["forward_and_backward"].run(kit)["small/plain"].values()) == 0
    true, off = correctness.gradients, iter([1.01, 1.0])  # the device comes first, then the CPU

    def wrong(*given):
        factor = next(off)
        return tuple(one * factor for one in true(*given))

    monkeypatch.setattr(correctness, "gradients", wrong)
    found = gpu.run(gpu.Check("forward_and_backward", CHECKS["forward_and_backward"].run, 0), kit)
    assert found["state"] == "wrong" and "small/plain" in found["why"]
    assert found["reproduce"] == "python benchmarks/gpu.py --only forward_and_backward"


@pytest.mark.parametrize("spoil", [lambda weight: weight * 100, lambda weight: weight + 1e-3])
def test_weights_that_end_elsewhere_are_found(kit, spoil, monkeypatch):
    true, ends = correctness._end, []

    def wrong(*given):
        ends.append(true(*given))
        return spoil(ends[-1]) if len(ends) == 1 else ends[-1]

    monkeypatch.setattr(correctness, "_end", wrong)
    with pytest.raises(Wrong, match="adamw"):
        CHECKS["updates"].run(kit)


def test_a_check_leaves_the_precision_as_it_was(kit, monkeypatch):
    monkeypatch.setattr(correctness, "FAMILIES", ("small/plain",))
    before = torch.get_float32_matmul_precision()
    CHECKS["tf32"].run(kit)
    assert torch.get_float32_matmul_precision() == before


def test_what_cannot_run_says_what_it_needs(kit, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    found = gpu.run(CHECKS["one_on_two_devices"], kit)
    assert (found["state"], found["why"]) == ("skipped", "needs 2 GPUs, and there are 1")


def test_a_report_has_every_check_and_its_figures(kit, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--quick", "--only", "causality", "one_on_two_devices", "--out",
                                      str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    report = json.loads((tmp_path / "out/report.json").read_text("utf-8"))
    assert ended.value.code == 0 and [one["name"] for one in report["checks"]] == ["causality", "one_on_two_devices"]
    page = (tmp_path / "out/report.md").read_text("utf-8")
    assert "## causality" in page and report["machine"]["torch"] in page
