"""Nodes of a Ray cluster: which can train, and which see the study's files."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from scalesearch.errors import UserError
from scalesearch.study.config.sections import Resources

NODE_TIMEOUT = 120.0  # seconds for a node to start a process, load the package and say what it sees
BASIC_RESOURCES = ("CPU", "GPU")


class RayNode(TypedDict):
    """Node of a cluster, as Ray lists it."""

    Alive: bool
    NodeID: str
    NodeManagerAddress: str
    Resources: dict[str, float]


@dataclass(frozen=True)
class ResourceRequest:
    """Resources of one process of a worker, by Ray's names, and the number of processes.

    ``is_spread``: the processes may be on different nodes.
    """

    per_process: Mapping[str, float]
    processes: int = 1
    is_spread: bool = False

    @classmethod
    def of(cls, resources: Resources, is_spread: bool) -> "ResourceRequest":
        """The need of one worker with such resources."""
        each = {"CPU": resources.cpus_per_trial, "GPU": resources.gpus_per_trial,
                **resources.custom}
        return cls(each, resources.processes_per_trial, is_spread)

    def per_node(self) -> dict[str, float]:
        """Resources that one node must have."""
        return {name: amount * (1 if self.is_spread else self.processes)
                for name, amount in self.per_process.items()}

    def __str__(self) -> str:
        amounts = [f"{amount:g} {name}" for name, amount in self.per_node().items()]
        return f"{', '.join(amounts[:-1])} and {amounts[-1]}"

    def worker_capacity(self) -> int | None:
        """Number of such workers that fit on all nodes; None where they need nothing."""
        nodes = [self._process_capacity(node["Resources"]) for node in alive_nodes()]
        known = [count for count in nodes if count is not None]
        if len(known) < len(nodes):
            return None
        return sum(known) // self.processes if self.is_spread else sum(
            count // self.processes for count in known)

    def fits(self, available: Mapping[str, float]) -> bool:
        """Whether a node that has ``available`` could ever take part."""
        count = self._process_capacity(available)
        return count is None or count >= (1 if self.is_spread else self.processes)

    def _process_capacity(self, available: Mapping[str, float]) -> int | None:
        """Number of processes that fit on a node; None for any number."""
        counts = [math.floor(available.get(name, 0.0) / amount + 1e-9)
                  for name, amount in self.per_process.items() if amount]
        return min(counts) if counts else None


def alive_nodes() -> list[RayNode]:
    """The nodes that there are now."""
    listing: Any = ray.nodes  # untyped in Ray
    return [node for node in listing() if node["Alive"]]


def check_resources(need: ResourceRequest) -> None:
    """Refuses resources that the cluster can never give.

    Raises UserError; Ray would wait for ever.
    """
    if need.worker_capacity() != 0:
        return
    names = [name for name in need.per_process if name not in BASIC_RESOURCES]
    have = "; ".join(", ".join(f"{node['Resources'].get(name, 0):g} {name}"
                               for name in (*BASIC_RESOURCES, *names)) for node in alive_nodes())
    each = f" for each of {need.processes} processes" if need.is_spread else ""
    raise UserError(f"resources: one worker asks for {need}{each}, and no node has that (nodes: "
                    f"{have})", key="resources", code="too-few-resources")


def check_nodes(inspect_machine: Callable[[], Mapping[str, str]], need: ResourceRequest) -> None:
    """Holds what every node that may train sees against what this machine sees.

    Args:
        inspect_machine: name to what is found under it, in few words; run here and on each node.

    Raises:
        UserError: a node sees something else, cannot look, or does not answer.
    """
    # no CPU: looking must not wait until a busy node is free
    @ray.remote(num_cpus=0, max_retries=0, max_calls=1)
    def ask() -> dict[str, str]:
        return dict(inspect_machine())

    here = inspect_machine()
    params = {ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote():
             node["NodeManagerAddress"] for node in alive_nodes() if need.fits(node["Resources"])}
    answered, silent = ray.wait(list(params), num_returns=len(params), timeout=NODE_TIMEOUT)
    for one in silent:
        ray.cancel(one, force=True)
    faults = [f"{params[one]} did not answer in {NODE_TIMEOUT:.0f} seconds" for one in silent]
    faults += [fault
               for one in answered if (fault := _describe_node_difference(one, params[one], here))]
    if faults:
        raise UserError("ray: not every node can train this study. All nodes need the same version "
                        "of scalesearch, and the study's folder and the data under the same path, "
                        "on a file system that they share:\n"
                        + "\n".join(f"  node {fault}" for fault in faults), key="ray",
                        code="incompatible-nodes")


def _describe_node_difference(answer: Any, node: str, here: Mapping[str, str]) -> str:
    """Describes how a node differs; empty where it does not, or has left."""
    try:
        there = ray.get(answer)
    except RayTaskError as error:
        # the first of several lines is Ray's
        return f"{node}: {str(error.cause).strip().splitlines()[-1]}"
    except RayError:
        return ""
    differing = [f"{name}: {there.get(name)}, and here {value}" for name, value in here.items()
                 if there.get(name) != value]
    return f"{node}: {'; '.join(differing)}" if differing else ""
