"""Training of one trial in several processes that Ray Train starts.

Ray Train asks Ray for the processes' CPUs and GPUs, connects them and ends them together; what they
do is what processes of :mod:`scalesearch.train` do anywhere. It needs the extra ``ray-train``.
"""

import json
from pathlib import Path

from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from scalesearch.errors import UserError
from scalesearch.study.config.sections import Resources
from scalesearch.study.executors.lease import LeaseHeldError
from scalesearch.study.executors.ray_cluster import ResourceRequest
from scalesearch.study.executors.worker import raise_niceness, train_job


class RayTrainWork:
    """A runner's work: trains the job in a folder by Ray Train.

    Each process gets ``resources``; gradients go over NCCL between GPUs, else over gloo.
    """

    # the task that runs this needs nothing itself, and must not take what the processes wait for
    reserves_resources = True

    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    def __call__(self, folder: str) -> None:
        """Trains the job in ``folder``; retries are the study's, so Ray Train makes none.

        Raises:
            UserError: what the leading process has found to be wrong.
            Exception: that Ray Train raises of anything else.
        """
        gpus = self.resources.gpus_per_trial
        each = {name: amount
                for name, amount in ResourceRequest.of(self.resources, True).per_process.items()
                if name != "GPU" or gpus}
        trainer = TorchTrainer(
            run_process, train_loop_config={"folder": folder},
            torch_config=TorchConfig(backend="nccl" if gpus else "gloo"),
            scaling_config=ScalingConfig(num_workers=self.resources.processes_per_trial,
                                         use_gpu=bool(gpus), resources_per_worker=each),
            run_config=RunConfig(storage_path=str(Path(folder).resolve() / "ray_train"), name="run",
                                 failure_config=FailureConfig(max_failures=0)))
        try:
            trainer.fit()
        except Exception as error:
            for cause in getattr(error, "worker_failures", {}).values():
                if isinstance(cause, UserError | LeaseHeldError):
                    raise cause from None
            raise


def run_process(config: dict[str, str]) -> None:
    """Runs one process: the first trains the job, the others follow it."""
    from scalesearch.train.parallel.gradients import run_follower
    from scalesearch.train.parallel.team import END_MESSAGE, Team

    team = Team()
    if team.rank:
        raise_niceness(json.loads((Path(config["folder"]) / "job.json").read_text()).get("nice", 0))
        run_follower(team)
        return
    train_job(config["folder"], team)
    team.broadcast(END_MESSAGE)
