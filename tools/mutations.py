"""Breaks the code on purpose, one place at a time, and says whether the default tests notice.

    python -m tools.mutations [NAME ...]

Run at the root of a checkout; NAME is a part of a file's path. Every mutation is made in a copy of
the files that git tracks, where the tests that should fail are run. Exits with 1 where one was
missed, or its text is no longer there.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutation:
    """``old``, which ``file`` of the package holds once, becomes ``new``; one of ``tests`` should fail."""

    file: str
    old: str
    new: str
    tests: str


MUTATIONS = [
    # What a network costs, and when two are one.
    Mutation("cost/breakdown.py", 'total - sums["embedding"]', "total", "cost"),
    Mutation("cost/breakdown.py", "return total * line.calls", "return total", "cost"),
    Mutation("cost/breakdown.py", '= 2 * values[f"macs', '= values[f"macs', "cost"),
    Mutation("cost/protocol.py", "for step in values)\n", "for step in list(values)[:1])\n", "cost reference"),
    # Spaces.
    Mutation("space/syntax/composite_domains.py", "sheet.lookup) is True else self.other", "sheet.lookup) else self.other",  # noqa: E501
             "space"),
    Mutation("space/syntax/composite_domains.py", "return sum(option.count(sheet)", "return max(option.count(sheet)", "space"),  # noqa: E501
    Mutation("space/assembly/weight_sharing.py", "0 <= layer < depth", "0 <= layer <= depth", "space cost"),
    Mutation("space/assembly/architecture.py", "canonical(block), sort_keys", "sorted(answers), sort_keys",
             "space feasible"),
    # What fits a budget.
    Mutation("feasible/counter.py", "self.costs(names, groups[number], columns) * signs",
             "self.costs(names, groups[number], columns)", "feasible"),
    Mutation("feasible/counter.py", "good &= self", "good |= self", "feasible"),
    Mutation("feasible/dominance.py", 'prefix = np.searchsorted(self.first, room[:, 0], side="right")',
             'prefix = np.searchsorted(self.first, room[:, 0], side="left")', "feasible"),
    # Samplers, promotions, fronts.
    Mutation("pareto/front.py", "keep_weakly=True", "keep_weakly=False", "pareto"),
    Mutation("pareto/hypervolume.py", "points.max(axis=0) + margin", "points.max(axis=0) - margin", "pareto"),
    Mutation("schedule/rungs.py", "len(there) // rungs.eta", "-(-len(there) // rungs.eta)", "schedule"),
    Mutation("samplers/trial_history.py", "slope * objective.sign > 0 else 0.0", "True else 0.0", "samplers"),
    Mutation("samplers/gains.py", "np.argsort(-promise", "np.argsort(promise", "samplers"),
    # Studies: durability, attempts, replicates, owners.
    Mutation("study/trials/trial.py", 'self.crashes + event.is_own_fault', "self.crashes + 1",
             "study/trials study/engine/test_driver.py"),
    Mutation("study/trials/event_log.py", "data[whole:])\n            os.truncate(self.file, whole)", "data[whole:])",
             "study/engine/test_kill.py study/trials"),
    Mutation("study/engine/driver.py", "trial.crashes < self.plan.attempts", "trial.crashes <= self.plan.attempts",
             "study/engine/test_driver.py"),
    Mutation("study/replicates/summary.py", "seed=seed + chosen.tried", "seed=seed", "study/replicates"),
    Mutation("study/executors/lease.py", "        raise LeaseHeldError(folder.name, was_taken_over=True)",
             "        LeaseHeldError(folder.name, was_taken_over=True)", "study/executors/test_lease.py"),
    Mutation("signals.py", "self.number == number == signal.SIGINT", "self.number is not None", "test_signals.py"),
    # Training.
    Mutation("train/updates/loss.py", "smoothing / len(weight)", "smoothing / (len(weight) - 1)",
             "train/updates/test_loss.py"),
    Mutation("train/updates/averaging.py", "(item[1], -item[0])", "(-item[1], -item[0])", "train"),
    Mutation("train/checkpoint.py", '    torch.set_rng_state(state["torch"].cpu())\n', "", "train/test_training.py"),
    Mutation("train/updates/schedule.py", "math.sqrt(start / share)", "start / share", "train"),
    # Reports and commands.
    Mutation("report/table.py", "float(np.mean(sample)) if sample", "float(sample[0]) if sample",
             "report study/replicates"),
    Mutation("report/table.py", '& table["is_feasible"].astype(bool) ', "", "report study/results"),
    Mutation("report/compare.py", "if self.low > 0 else other", "if self.low < 0 else other", "report"),
    Mutation("cli/main.py", "click.echo(plain(error), err=True)\n        sys.exit(2)",
             "click.echo(plain(error), err=True)\n        sys.exit(0)", "cli/calculator"),
    Mutation("cli/train.py", "if held and not resume:", "if False:", "cli/test_train.py"),
]


def main(names: list[str]) -> int:
    """Tries the mutations of files in whose path one of ``names`` is, or all; returns how many were not caught."""
    chosen = [one for one in MUTATIONS if not names or any(name in one.file for name in names)]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in subprocess.check_output(["git", "ls-files", "-z"], text=True).split("\0")[:-1]:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, copy / name)
        outcomes = []
        for one in chosen:
            outcomes.append(try_mutation(copy, one))
            print(f"{outcomes[-1]:6}  {one.file}: {one.old.strip()!r} -> {one.new.strip()!r}",
                  flush=True)
    caught = outcomes.count("caught")
    print(f"{caught} of {len(outcomes)} caught")
    return len(outcomes) - caught


def try_mutation(copy: Path, one: Mutation) -> str:
    """``caught`` or ``missed`` by the tests in ``copy``; ``stale`` where the text is not there once.

    ``broken`` where the test that failed does so without the mutation, too.
    """
    file = copy / "scalesearch" / one.file
    text = file.read_text() if file.is_file() else ""
    if text.count(one.old) != 1:
        return "stale"
    file.write_text(text.replace(one.old, one.new))
    failed = first_failure(copy, [f"tests/{name}" for name in one.tests.split()])
    file.write_text(text)
    if not failed:
        return "missed"
    return "broken" if first_failure(copy, failed) else "caught"


def first_failure(copy: Path, tests: list[str]) -> list[str]:
    """The first of ``tests``, files or folders, that fails, or all where the run is cut off; none where all pass."""
    done = subprocess.run([sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider",
                           *tests], cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)},
                          capture_output=True, text=True)
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return [found[1]] if found else tests if done.returncode else []


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
