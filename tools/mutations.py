"""Mutation tests: change the code in one place, and check that the tests fail.

    python -m tools.mutations [NAME ...]

Run it at the root of a checkout; NAME is a part of a file's path. Each mutation is applied to a
copy of the tracked files. The tests that should fail are run there, first those of `make test`,
then all of them if none failed. The exit status is 1 if a mutation was missed, or if its text is
not in the file.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Mutation:
    """Replacement of ``old``, which occurs once in ``file``, by ``new``; a test should fail."""

    file: str
    old: str
    new: str
    tests: str


MUTATIONS = [
    # Costs of a network.
    Mutation("cost/breakdown.py", 'total - sums["embedding"]', "total", "cost"),
    Mutation("cost/breakdown.py", "return total * line.calls", "return total", "cost"),
    Mutation("cost/breakdown.py", '= 2 * values[f"macs', '= values[f"macs', "cost"),
    Mutation("cost/protocol.py", "for lengths in passes)\n", "for lengths in list(passes)[:1])\n",
             "cost reference"),
    # Spaces.
    Mutation("spaces/syntax/domains.py", "assignment.value_of) is True",
             "assignment.value_of)", "spaces"),
    Mutation("spaces/syntax/domains.py", "return sum(option.count_values(assignment)",
             "return max(option.count_values(assignment)", "spaces"),
    Mutation("spaces/assembly/weight_sharing.py", "0 <= index < depth", "0 <= index <= depth",
             "spaces cost"),
    Mutation("spaces/assembly/architecture.py", "json.dumps(canonical_config(block)",
             "json.dumps(sorted(own_config)", "spaces feasible"),
    # Candidates that fit a budget.
    Mutation("feasible/extremes.py", "left[promising] * signs, right * signs",
             "left[promising], right", "feasible"),
    Mutation("feasible/counter.py", "is_valid &= self", "is_valid |= self", "feasible"),
    Mutation("feasible/dominance.py",
             'prefix = np.searchsorted(self.first, upper_bounds[:, 0], side="right")',
             'prefix = np.searchsorted(self.first, upper_bounds[:, 0], side="left")', "feasible"),
    # Samplers, promotions, fronts.
    Mutation("pareto/front.py", "keep_weakly=True", "keep_weakly=False", "pareto"),
    Mutation("pareto/front.py", "points.max(axis=0) + REFERENCE_MARGIN",
             "points.max(axis=0) - REFERENCE_MARGIN", "pareto"),
    Mutation("schedule.py", "len(reached) // rungs.eta",
             "-(-len(reached) // rungs.eta)", "schedule"),
    Mutation("samplers/trial_history.py", "slope * objective.sign > 0 else 0.0",
             "True else 0.0", "samplers"),
    Mutation("samplers/bayes/hypervolume_improvement.py", "np.argsort(-priority",
             "np.argsort(priority", "samplers"),
    # Studies: durability, attempts, replicates, owners.
    Mutation("studies/trials/trial.py", "self.crashes + event.is_own_fault", "self.crashes + 1",
             "studies/trials studies/engine/test_driver.py"),
    Mutation("studies/trials/event_log.py",
             "data[whole:])\n            os.truncate(self.file, whole)", "data[whole:])",
             "studies/trials"),
    Mutation("studies/engine/jobs.py", "crashes < self.max_attempts", "crashes <= self.max_attempts",
             "studies/engine/test_driver.py"),
    Mutation("studies/replicates/summary.py", "seed=new_seed", "seed=study.meta.seed",
             "studies/replicates"),
    Mutation("studies/executors/lease.py",
             "read_holder(folder) is not None and not owns_lease(folder)",
             "False", "studies/executors/test_lease.py"),
    Mutation("signals.py", "self.signal_number == number == signal.SIGINT",
             "self.signal_number is not None", "test_signals.py"),
    # Training.
    Mutation("training/updates/loss.py", "smoothing / len(weight)", "smoothing / (len(weight) - 1)",
             "training/updates/test_loss.py"),
    Mutation("training/updates/averaging.py", "(item[1], -item[0])", "(-item[1], -item[0])", "training"),
    Mutation("training/checkpoint.py", '    torch.set_rng_state(state["torch"].cpu())\n', "",
             "training/test_run.py"),
    Mutation("training/updates/schedule.py", "math.sqrt(start / share)", "start / share", "training"),
    # Reports and commands.
    Mutation("report/table.py", "float(np.mean(sample)) if sample", "float(sample[0]) if sample",
             "report studies/replicates"),
    Mutation("studies/trials/trial.py", "and self.is_feasible and self.is_in_space)",
             "and self.is_in_space)", "studies/replicates report studies/results"),
    Mutation("report/compare.py", "if interval.low > 0 else second", "if interval.low < 0 else second", "report"),
    Mutation("cli/main.py",
             "click.echo(escape_control_characters(error), err=True)\n        sys.exit(2)",
             "click.echo(escape_control_characters(error), err=True)\n        sys.exit(0)",
             "cli/test_main.py cli/test_outputs.py"),
    Mutation("cli/train.py", "if training_files and not resume:", "if False:",
             "cli/test_train.py"),
]


def main(names: list[str]) -> int:
    """Test the mutations of files that match ``names``, or all; return the number not caught."""
    mutations = [mutation for mutation in MUTATIONS
                 if not names or any(name in mutation.file for name in names)]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in subprocess.check_output(["git", "ls-files", "-z"], text=True).split("\0")[:-1]:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, copy / name)
        outcomes = []
        for mutation in mutations:
            outcomes.append(try_mutation(copy, mutation))
            print(f"{outcomes[-1]:6}  {mutation.file}: {mutation.old.strip()!r} -> "
                  f"{mutation.new.strip()!r}", flush=True)
    print(f"{outcomes.count('fast')} of {len(outcomes)} caught by make test, "
          f"{outcomes.count('full')} more by make test-all")
    return len(outcomes) - outcomes.count("fast") - outcomes.count("full")


def try_mutation(copy: Path, mutation: Mutation) -> str:
    """Return ``fast`` or ``full``, the tier that caught the mutation, or ``missed``.

    ``stale`` means that the text does not occur exactly once; ``broken``, that the failed test also
    fails without the mutation.
    """
    file = copy / "scalesearch" / mutation.file
    text = file.read_text() if file.is_file() else ""
    if text.count(mutation.old) != 1:
        return "stale"
    tests = [f"tests/{name}" for name in mutation.tests.split()]
    for tier, options in {"fast": ["--fast"], "full": []}.items():
        file.write_text(text.replace(mutation.old, mutation.new))
        failed = first_failure(copy, [*options, *tests])
        file.write_text(text)
        if failed:
            return "broken" if first_failure(copy, failed) else tier
    return "missed"


def first_failure(copy: Path, arguments: list[str]) -> list[str]:
    """Return the first test that fails, all ``arguments`` if the run crashes, or an empty list."""
    run = subprocess.run([sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider",
                          *arguments], cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)},
                         capture_output=True, text=True)
    match = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", run.stdout, re.MULTILINE)
    if match:
        return [match[1]]
    is_crash = run.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return arguments if is_crash else []


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
