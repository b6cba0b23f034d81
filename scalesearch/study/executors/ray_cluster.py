"""Nodes of a Ray cluster: which have the resources, and which can read the study's files."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from scalesearch.errors import UserError
from scalesearch.study.config.sections import Resources

NODE_TIMEOUT = 120.0  # seconds for a node to start a process, load the package and respond
BASIC_RESOURCES = ("CPU", "GPU")


class RayNode(TypedDict):
    """A node of a cluster, in Ray's format."""

    Alive: bool
    NodeID: str
    NodeManagerAddress: str
    Resources: dict[str, float]


@dataclass(frozen=True)
class ResourceRequest:
    """Resources of one worker.

    Attributes:
        per_process: amount by Ray's name, for one process of the worker.
        processes: number of processes of the worker.
        is_spread: whether the processes may be on different nodes.
    """

    per_process: Mapping[str, float]
    processes: int = 1
    is_spread: bool = False

    @classmethod
    def of(cls, resources: Resources, is_spread: bool) -> "ResourceRequest":
        """Make the request of one worker from the study's ``resources``."""
        per_process = {"CPU": resources.cpus_per_trial, "GPU": resources.gpus_per_trial,
                       **resources.custom}
        return cls(per_process, resources.processes_per_trial, is_spread)

    def per_node(self) -> dict[str, float]:
        """Return the resources that one node must have."""
        return {name: amount * (1 if self.is_spread else self.processes)
                for name, amount in self.per_process.items()}

    def __str__(self) -> str:
        amounts = [f"{amount:g} {name}" for name, amount in self.per_node().items()]
        return f"{', '.join(amounts[:-1])} and {amounts[-1]}"

    def worker_capacity(self) -> int | None:
        """Return the number of workers that fit on all nodes; None if they need no resources."""
        capacities = [self._process_capacity(node["Resources"]) for node in alive_nodes()]
        limited = [count for count in capacities if count is not None]
        if len(limited) < len(capacities):
            return None
        if self.is_spread:
            return sum(limited) // self.processes
        return sum(count // self.processes for count in limited)

    def fits(self, available: Mapping[str, float]) -> bool:
        """Whether a node with these resources can run a worker, or a process of it if spread."""
        count = self._process_capacity(available)
        return count is None or count >= (1 if self.is_spread else self.processes)

    def _process_capacity(self, available: Mapping[str, float]) -> int | None:
        """Return the number of processes that fit on a node; None if it is unlimited."""
        counts = [math.floor(available.get(name, 0.0) / amount + 1e-9)
                  for name, amount in self.per_process.items() if amount]
        return min(counts) if counts else None


def alive_nodes() -> list[RayNode]:
    """Return the nodes that are alive now."""
    listing: Any = ray.nodes  # untyped in Ray
    return [node for node in listing() if node["Alive"]]


def check_resources(request: ResourceRequest) -> None:
    """Check that one worker fits on the cluster; Ray itself would wait indefinitely.

    Raises:
        UserError: no node has these resources.
    """
    if request.worker_capacity() != 0:
        return
    names = [name for name in request.per_process if name not in BASIC_RESOURCES]
    available = "; ".join(", ".join(f"{node['Resources'].get(name, 0):g} {name}"
                                    for name in (*BASIC_RESOURCES, *names))
                          for node in alive_nodes())
    per_process = f" for each of {request.processes} processes" if request.is_spread else ""
    raise UserError(f"resources: one worker needs {request}{per_process}, and no node has that "
                    f"(nodes: {available})", key="resources", code="too-few-resources")


def check_nodes(inspect_machine: Callable[[], Mapping[str, str]],
                request: ResourceRequest) -> None:
    """Compare the package, the study and the data of every node with those of this machine.

    Args:
        inspect_machine: returns a short text by name; it is called here and on each node.
        request: only nodes that can run a worker are compared.

    Raises:
        UserError: a node differs, raises an error, or does not respond.
    """
    # Without CPUs, the task does not wait until a busy node is free.
    @ray.remote(num_cpus=0, max_retries=0, max_calls=1)
    def inspect() -> dict[str, str]:
        return dict(inspect_machine())

    expected = inspect_machine()
    nodes = {}
    for node in alive_nodes():
        if request.fits(node["Resources"]):
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = inspect.options(scheduling_strategy=strategy).remote()
            nodes[task] = node["NodeManagerAddress"]
    ready, silent = ray.wait(list(nodes), num_returns=len(nodes), timeout=NODE_TIMEOUT)
    for task in silent:
        ray.cancel(task, force=True)
    faults = [f"{nodes[task]} did not respond in {NODE_TIMEOUT:.0f} seconds" for task in silent]
    differences = [_describe_node_difference(task, nodes[task], expected) for task in ready]
    faults += [difference for difference in differences if difference]
    if faults:
        raise UserError("ray: not every node can train this study. All nodes need the same version "
                        "of scalesearch, and the study's folder and the data under the same path, "
                        "on a file system that they share:\n"
                        + "\n".join(f"  node {fault}" for fault in faults), key="ray",
                        code="incompatible-nodes")


def _describe_node_difference(task: Any, node: str, expected: Mapping[str, str]) -> str:
    """Describe how a node differs; empty if it is equal, or has left the cluster."""
    try:
        facts = ray.get(task)
    except RayTaskError as error:
        # The first lines are Ray's; the last one is the error itself.
        return f"{node}: {str(error.cause).strip().splitlines()[-1]}"
    except RayError:
        return ""
    differing = [f"{name}: {facts.get(name)}, and here {value}"
                 for name, value in expected.items() if facts.get(name) != value]
    return f"{node}: {'; '.join(differing)}" if differing else ""
