"""Fixture base for tests that run ``scalesearch study`` in this process, with fake training."""

from pathlib import Path

import pytest

from scalesearch.cli.main import main
from scalesearch.studies.executors.local import InProcessRunner
from scalesearch.studies.executors.worker import finish_job


def study_command(folder, monkeypatch, capsys, cache, study, measure):
    """Return a function that runs ``scalesearch study`` in ``folder``, without figures.

    Args:
        cache: folder of the corpora.
        study: text of ``s.yaml``.
        measure: returns the metrics of a job from its folder and content.
    """
    def work(place):
        def run(place, job):
            return {"state": "complete", "seconds": 1.0, "metrics": measure(place, job)}

        finish_job(Path(place), run)

    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr("scalesearch.studies.executors.local.PoolRunner",
                        lambda work_of_pool, *_: InProcessRunner(work))
    monkeypatch.setattr("scalesearch.studies.results.publish.write_figures", lambda *_: [])
    monkeypatch.setenv("COLUMNS", "200")
    (folder / "s.yaml").write_text(study)

    def call(*arguments, status=0):
        monkeypatch.setattr("sys.argv", ["scalesearch", "study", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        output = capsys.readouterr()
        assert (ended.value.code or 0) == status, output.out + output.err
        return output.out if "--json" in arguments else output.out + output.err

    return call
