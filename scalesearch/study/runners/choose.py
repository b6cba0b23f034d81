"""Who trains the candidates of a study, by its file."""

from scalesearch.study.runners.base import Runner
from scalesearch.study.runners.inprocess import InProcessRunner
from scalesearch.study.spec import StudySpec
from scalesearch.study.work import train_job


def make_runner(spec: StudySpec) -> Runner:
    """Whoever trains. Ray is imported only where it is asked for."""
    if spec.backend == "inprocess":
        return InProcessRunner(train_job)
    from scalesearch.study.runners.ray import RayRunner

    r = spec.resources
    work = train_job
    if r.processes_per_trial > 1 and ray_train_is_there():
        from scalesearch.study.runners.ray_train import RayTrainWork

        work = RayTrainWork(r.processes_per_trial, r.cpus_per_trial, r.gpus_per_trial, r.custom)
    return RayRunner(work, spec.workers, r.cpus_per_trial, r.gpus_per_trial, r.threads_per_trial, r.address,
                     r.processes_per_trial, r.custom)


def ray_train_is_there() -> bool:
    """Whether Ray Train can be used: it needs more packages than Ray itself. Without it, workers start processes."""
    try:
        import ray.train.torch  # noqa: F401
    except ImportError:
        return False
    return True
