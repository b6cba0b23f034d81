"""The GPU kit on a machine without a GPU: checks run, are skipped, or report faults."""

import json
import sys

import pytest
import torch

from tests.docs.blocks import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu
from gpu_kit import correctness, headline, studies
from gpu_kit.kit import CHECKS, Kit, Wrong

COMPARED_WITH_CPU = ("attention_kernels", "updates", "decoding", "soft_targets")


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path, quick=True, device=torch.device("cpu"))


def make_check(name, run):
    """A check that calls ``run`` on any device."""
    run.__doc__ = f"Check {name}."
    return gpu.Check(name, run, 0, 15)


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
    check = gpu.Check("forward_and_backward", CHECKS["forward_and_backward"].run, 0, 15)
    result = gpu.run(check, kit)
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
    assert [*others, option] == [*arguments, "--continue", "--minutes"] and 5 < float(minutes) <= 6
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


@pytest.mark.parametrize("minutes", ["0", "0.2"])  # less than the planned 15 seconds
def test_check_that_does_not_fit_is_skipped(tmp_path, monkeypatch, minutes):
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path), "--only", "causality",
                                      "--minutes", minutes])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    (only,) = json.loads((tmp_path / "report.json").read_text("utf-8"))["checks"]
    assert ended.value.code == 0 and only["state"] == "skipped"
    assert "--only causality" in only["why"]


def test_headline_is_planned_for_six_minutes():
    assert gpu.ORDER[: len(gpu.HEADLINE)] == gpu.HEADLINE
    assert sum(CHECKS[name].seconds for name in gpu.HEADLINE[:7]) <= 6 * 60


def dry_run(tmp_path, monkeypatch, *names):
    """Run checks of a GPU on the CPU; return their results and the page."""
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--dry-run", "--minutes", "60", "--out",
                                      str(tmp_path / "out"), "--only", *names])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    checks = json.loads((tmp_path / "out/report.json").read_text("utf-8"))["checks"]
    assert ended.value.code == 0, [check.get("why") for check in checks]
    return checks, (tmp_path / "out/report.md").read_text("utf-8")


@pytest.mark.full
def test_dry_run_of_the_headline(tmp_path, monkeypatch):
    names = ("updates_128", "peers_128", "predicted_memory", "captured_updates", "optimizers",
             "decoding_speed", "compilation")
    checks, page = dry_run(tmp_path, monkeypatch, *names)
    assert {check["state"] for check in checks} == {"passed"}
    figures = checks[0]["figures"]
    assert f"| captured, 1 process | {figures['captured, 1 process']} | not measured |" in page
    assert "| eager, 8 processes, MPS | not measured | not measured | not measured |" in page
    assert "Tiny sizes" in page


@pytest.mark.slow
def test_dry_run_goes_through_all_checks(tmp_path, monkeypatch):
    checks, page = dry_run(tmp_path, monkeypatch, *gpu.ORDER)
    skipped = {check["name"] for check in checks if check["state"] == "skipped"}
    assert skipped == {"out_of_memory", "idle_share"}
    assert page.count("not measured") < 60


def test_alternating_runs_are_timed_by_median(kit, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(headline.time, "perf_counter", lambda: next(clock))
    ran = []
    result = headline.in_turns(
        kit, {"one": lambda: ran.append(1), "other": lambda: ran.append(2)}, 2, 4
    )
    assert result == {"one": 0.25, "other": 0.25} and ran == [1, 1, 1, 1, 2, 2, 2, 2] * 3


def test_committed_report_has_all_checks_passed_and_is_printed():
    report = json.loads((ROOT / "benchmarks/gpu_h100.json").read_text("utf-8"))
    page = gpu.markdown(report)
    assert all(f"`{check['name']}`" in page for check in report["checks"])
    assert {check["state"] for check in report["checks"]} == {"passed"}


def test_goals_without_figures_are_not_measured():
    assert sum("not measured" in line for line in headline.goals_table({})) == 7
    figures = {"updates_512": {"captured, 1 process": 207.0, "eager, 1 process": 36.0,
                               "share of product, captured, 1 process": 0.095,
                               "share of product, eager, 1 process": 0.017},
               "updates_128": {"eager, 1 process": 60.0, "captured, 8 processes, MPS": 717.0}}
    table = headline.goals_table(figures)
    assert table[2].split(" | ")[2] == "717"
    assert table[4].split(" | ")[2] == "not measured / not measured / 9.5 %"
    assert "| share of its speed, captured, 1 process | not measured | not measured | 9.5 % |" in (
        headline.headline_table(figures))
