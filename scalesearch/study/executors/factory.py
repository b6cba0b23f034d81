"""Creation of a study's executor."""

from scalesearch.study.config.sections import Resources
from scalesearch.study.executors.base import Runner
from scalesearch.study.executors.local import InProcessRunner
from scalesearch.study.executors.worker import train_job


def make_runner(backend: str, workers: int, resources: Resources) -> Runner:
    """Make the executor of a study. Ray is imported only for the backend ``ray``."""
    if backend == "inprocess":
        return InProcessRunner(train_job)
    from scalesearch.study.executors.ray import RayRunner

    work = train_job
    if resources.processes_per_trial > 1 and has_ray_train():
        from scalesearch.study.executors.ray_ddp import RayTrainWork

        work = RayTrainWork(resources)
    return RayRunner(work, workers, resources)


def has_ray_train() -> bool:
    """Whether Ray Train is installed; it needs more packages than Ray itself.

    Without Ray Train, each worker starts its processes itself.
    """
    try:
        import ray.train.torch  # noqa: F401
    except ImportError:
        return False
    return True
