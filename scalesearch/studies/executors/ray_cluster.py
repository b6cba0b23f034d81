"""Nodes of a Ray cluster that have the resources and read the study's files."""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from scalesearch.errors import UserError
from scalesearch.training.gpus import Gpu, find_gpus

NODE_TIMEOUT = 120.0  # seconds for a node to start a process, load the package and respond
Amounts = Mapping[str, float]  # of resources, by Ray's name


class RayNode(TypedDict):
    """A node of a cluster, in Ray's format."""

    Alive: bool
    NodeID: str
    NodeManagerAddress: str
    Resources: dict[str, float]


def alive_nodes() -> list[RayNode]:
    """Return the nodes that are alive now."""
    listing: Any = ray.nodes  # untyped in Ray
    return [node for node in listing() if node["Alive"]]


def node_capacity(node: RayNode, amounts: Amounts) -> float:
    """Return the number of workers that fit on ``node``.

    The result is infinite if they need no resources.
    """
    return min((math.floor(node["Resources"].get(name, 0.0) / amount + 1e-9)
                for name, amount in amounts.items() if amount), default=math.inf)


def cluster_capacity(amounts: Amounts) -> float:
    """Return the number of workers that fit on all nodes."""
    return sum(node_capacity(node, amounts) for node in alive_nodes())


def check_resources(amounts: Amounts) -> None:
    """Check that one worker fits on the cluster; Ray itself would wait indefinitely.

    Raises:
        UserError: no node has these resources.
    """
    if cluster_capacity(amounts):
        return
    *others, last = (f"{amount:g} {name}" for name, amount in amounts.items())
    available = "; ".join(", ".join(f"{node['Resources'].get(name, 0):g} {name}"
                                    for name in amounts) for node in alive_nodes())
    raise UserError(f"resources: one worker needs {', '.join(others)} and {last}, and no node has "
                    f"that (nodes: {available})", key="resources", code="too-few-resources")


def find_cluster_gpus() -> list[Gpu]:
    """Return the GPUs of all nodes of the cluster; nodes that do not respond are left out."""
    # Without CPUs, the task does not wait until a busy node is free.
    @ray.remote(num_cpus=0, max_retries=0, max_calls=1)
    def find() -> list[Gpu]:
        return find_gpus()

    tasks = [find.options(scheduling_strategy=NodeAffinitySchedulingStrategy(
                 node["NodeID"], soft=False)).remote()
             for node in alive_nodes() if node["Resources"].get("GPU")]
    gpus: list[Gpu] = []
    for task in tasks:
        try:
            node_gpus = ray.get(task, timeout=NODE_TIMEOUT)
        except RayError:
            continue
        gpus += node_gpus
    return gpus


def check_nodes(inspect_machine: Callable[[], Mapping[str, str]], amounts: Amounts) -> None:
    """Compare package, study and data of every node with those of this machine.

    Args:
        inspect_machine: returns a short text by name; it is called here and on each node.
        amounts: of one worker. Only nodes that can run a worker are compared.

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
        if node_capacity(node, amounts):
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = inspect.options(scheduling_strategy=strategy).remote()
            nodes[task] = node["NodeManagerAddress"]
    ready, silent = ray.wait(list(nodes), num_returns=len(nodes), timeout=NODE_TIMEOUT)
    for task in silent:
        ray.cancel(task, force=True)
    faults = [f"{nodes[task]} did not respond in {NODE_TIMEOUT:.0f} seconds" for task in silent]
    for task in ready:
        try:
            facts = ray.get(task)
        except RayTaskError as error:
            # The first lines are Ray's; the last one is the error itself.
            faults.append(f"{nodes[task]}: {str(error.cause).strip().splitlines()[-1]}")
            continue
        except RayError:  # the node has left the cluster
            continue
        differences = [f"{name}: {facts.get(name)}, and here {value}"
                       for name, value in expected.items() if facts.get(name) != value]
        if differences:
            faults.append(f"{nodes[task]}: {'; '.join(differences)}")
    if faults:
        raise UserError("ray: not every node can train this study. All nodes need the same version "
                        "of scalesearch, and the study's folder and the data under the same path, "
                        "on a file system that they share:\n"
                        + "\n".join(f"  node {fault}" for fault in faults), key="ray",
                        code="incompatible-nodes")
