"""Training of one trial in several processes, which Ray Train starts.

Ray Train reserves the CPUs and GPUs, connects the processes and ends them together. The processes
run the data-parallel training of :mod:`scalesearch.train`. Requires the extra ``ray-train``.
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
    """Work of a runner: trains the job in a folder with Ray Train.

    Each process gets ``resources``. Gradients are exchanged with NCCL on GPUs, else with gloo.
    """

    # The task that calls this reserves no resources itself: its processes wait for them.
    reserves_resources = True

    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    def __call__(self, folder: str) -> None:
        """Train the job in ``folder``. Ray Train does not retry: the study counts attempts.

        Raises:
            UserError: an input is invalid; raised by the leading process.
            Exception: any other error of Ray Train.
        """
        gpus = self.resources.gpus_per_trial
        request = ResourceRequest.of(self.resources, True)
        per_process = {name: amount for name, amount in request.per_process.items()
                       if name != "GPU" or gpus}
        trainer = TorchTrainer(
            run_process, train_loop_config={"folder": folder},
            torch_config=TorchConfig(backend="nccl" if gpus else "gloo"),
            scaling_config=ScalingConfig(num_workers=self.resources.processes_per_trial,
                                         use_gpu=bool(gpus), resources_per_worker=per_process),
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
    """Run one process: the first trains the job, the others compute shares of its updates."""
    from scalesearch.train.parallel.gradients import run_follower
    from scalesearch.train.parallel.team import END_MESSAGE, Team

    team = Team()
    if team.rank:
        raise_niceness(json.loads((Path(config["folder"]) / "job.json").read_text()).get("nice", 0))
        run_follower(team)
        return
    train_job(config["folder"], team)
    team.broadcast(END_MESSAGE)
