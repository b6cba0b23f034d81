"""The GPU kit on a machine without a GPU: checks run, are skipped, or report faults."""

import json
import sys

import pytest
import torch

from tests.docs.blocks import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu
from gpu_kit import correctness, studies, timings
from gpu_kit.kit import CHECKS, Kit, Wrong

COMPARED_WITH_CPU = ("attention_kernels", "updates", "decoding", "soft_targets")


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path, quick=True, device=torch.device("cpu"))


def make_check(name, run):
    """A check that calls ``run`` on any device."""
    run.__doc__ = f"Check {name}."
    return gpu.Check(name, run, 0)


@pytest.mark.full
@pytest.mark.parametrize("name", COMPARED_WITH_CPU)
def test_checks_against_cpu_pass_on_cpu(kit, name):
    assert CHECKS[name].run(kit)


def test_device_with_other_gradients_is_wrong(kit, monkeypatch):
    monkeypatch.setattr(correctness, "FAMILIES", ("small/plain",))
    monkeypatch.setattr(correctness, "OTHER_PUBLISHED", ())
    assert max(CHECKS["forward_and_backward"].run(kit)["small/plain"].values()) == 0
    true = correctness.gradients
    off = iter([1.01, 1.0])  # the device comes first, then the CPU

    def wrong(*arguments):
        factor = next(off)
        return tuple(gradient * factor for gradient in true(*arguments))

    monkeypatch.setattr(correctness, "gradients", wrong)
    result = gpu.run(gpu.Check("forward_and_backward", CHECKS["forward_and_backward"].run, 0), kit)
    assert result["state"] == "wrong" and "small/plain" in result["why"]
    assert result["reproduce"] == "python benchmarks/gpu.py --only forward_and_backward"


@pytest.mark.parametrize("spoil", [lambda weight: weight * 100, lambda weight: weight + 1e-3])
def test_device_with_other_final_weights_is_wrong(kit, spoil, monkeypatch):
    true = correctness._end
    ends = []

    def wrong(*arguments):
        ends.append(true(*arguments))
        return spoil(ends[-1]) if len(ends) == 1 else ends[-1]

    monkeypatch.setattr(correctness, "_end", wrong)
    with pytest.raises(Wrong, match="adamw"):
        CHECKS["updates"].run(kit)


def test_check_restores_matmul_precision(kit, monkeypatch):
    monkeypatch.setattr(correctness, "FAMILIES", ("small/plain",))
    before = torch.get_float32_matmul_precision()
    CHECKS["tf32"].run(kit)
    assert torch.get_float32_matmul_precision() == before


def test_failed_check_keeps_figures_and_lists_all_excesses(kit, monkeypatch):
    monkeypatch.setattr(correctness, "FAMILIES", ("small/plain", "small/anthe"))
    result = gpu.run(make_check("bf16",
                         lambda kit: correctness._compared(kit, correctness.FAMILIES, -1.0)), kit)
    assert result["state"] == "wrong" and set(result["figures"]) == {"small/plain", "small/anthe"}
    assert result["why"].count("above") == 4


def test_check_does_not_depend_on_earlier_checks(kit, monkeypatch):
    precisions = []
    first = make_check("first", lambda kit: torch.set_float32_matmul_precision("high") or {})
    second = make_check(
        "second", lambda kit: precisions.append(torch.get_float32_matmul_precision()) or {}
    )
    gpu.run(first, kit)
    gpu.run(second, kit)
    assert precisions == ["highest"]


def test_process_with_broken_device_is_replaced(kit, monkeypatch, tmp_path):
    class Away(BaseException):
        pass

    def replaced(program, argv):
        raise Away(argv)

    monkeypatch.setattr(gpu.os, "execv", replaced)
    monkeypatch.setattr(gpu, "broken", lambda device: True)
    monkeypatch.setitem(CHECKS, "causality", make_check("causality", lambda kit: 1 / 0))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    arguments = ["gpu.py", "--quick", "--only", "causality", "from_space_to_front", "--out",
             str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(Away) as again:
        gpu.main()
    *others, option, minutes = again.value.args[0][1:]
    assert [*others, option] == [*arguments, "--continue", "--minutes"] and 9 < float(minutes) <= 10
    monkeypatch.setattr(sys, "argv", again.value.args[0][1:])
    with pytest.raises(SystemExit) as end:
        gpu.main()
    checks = json.loads((tmp_path / "out/report.json").read_text("utf-8"))["checks"]
    assert end.value.code == 1 and [check["state"] for check in checks] == ["wrong", "skipped"]


def test_study_with_failed_trials_is_wrong(tmp_path):
    with pytest.raises(Wrong, match="nothing"):
        studies.ended(tmp_path)
    record = {"state": "complete", "reason": "", "device": "cpu", "seconds": 1.0}
    for number, more in enumerate(({}, {"state": "failed", "reason": "out of memory"})):
        folder = tmp_path / f"trials/{number:04d}"
        folder.mkdir(parents=True)
        (folder / "record.json").write_text(json.dumps(record | more))
        if not number:
            assert studies.ended(tmp_path) == {
                "trained": 1, "devices": ["cpu"], "wall seconds": [1.0]}
    with pytest.raises(Wrong, match="failed, the first with: out of memory"):
        studies.ended(tmp_path)


def test_timed_engine_uses_kernel_of_training(kit):
    engine, _ = timings._engine(kit, "small", compiled=False)
    kernels = {node.attention_kernel
               for node in engine.model.modules() if hasattr(node, "attention_kernel")}
    assert kernels == {engine.hardware.attention_kernel}


def test_skipped_check_reports_requirements(kit, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    result = gpu.run(CHECKS["from_space_to_front"], kit)
    assert (result["state"], result["why"]) == ("skipped", "needs 1 GPU, and there are 0")


def test_report_has_all_checks_and_figures(kit, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(sys, "argv",
                        ["gpu.py", "--quick", "--only", "causality", "from_space_to_front", "--out",
                         str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    report = json.loads((tmp_path / "out/report.json").read_text("utf-8"))
    assert ended.value.code == 0 and [
        check["name"] for check in report["checks"]] == ["causality", "from_space_to_front"]
    page = (tmp_path / "out/report.md").read_text("utf-8")
    assert "## causality" in page and report["machine"]["torch"] in page


def test_no_check_starts_after_time_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv",
                        ["gpu.py", "--out", str(tmp_path), "--only", "causality", "--minutes", "0"])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    (only,) = json.loads((tmp_path / "report.json").read_text("utf-8"))["checks"]
    assert ended.value.code == 0 and only["state"] == "skipped" and "--only causality" in only[
        "why"]


def test_alternating_runs_are_timed_by_median(kit, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(timings.time, "perf_counter", lambda: next(clock))
    ran = []
    result = timings.in_turns(
        kit, {"one": lambda: ran.append(1), "other": lambda: ran.append(2)}, 2, 4
    )
    assert result == {"one": 0.25, "other": 0.25} and ran == [1, 1, 1, 1, 2, 2, 2, 2] * 3


def test_page_matches_figures():
    report = json.loads((ROOT / "docs/gpu-h100.json").read_text("utf-8"))
    assert gpu.markdown(report) == (ROOT / "docs/gpu-h100.md").read_text("utf-8")
    assert {check["state"] for check in report["checks"]} == {"passed"}
