"""The ``resources:`` and ``ray:`` of a study file: what one worker gets, and where it runs.

::

    ray: {address: "head:6379"}                    # of a running cluster; `auto` finds the one this machine is part of
    resources:
      cpus_per_trial: 4
      gpus_per_trial: 0.5                          # two candidates share a device
      custom: {"accelerator_type:H100": 0.001}     # only on nodes that have this; any name that a node states
"""

from scalesearch.space.syntax.nodes import Table, Text
from scalesearch.study.config.fields import Sections, plain
from scalesearch.study.config.spec import Resources

LEAST = 1e-4  # Ray counts resources in such steps


def read_resources(top: Sections) -> Resources:
    """What one worker gets; what is wrong with it goes to the file's problems."""
    part = top.part("resources", Resources.__dataclass_fields__)
    return Resources(
        _amount(part, "cpus_per_trial", 1.0),
        _amount(part, "gpus_per_trial", 0.0),
        part.whole("threads_per_trial", 1, 1),
        part.whole("processes_per_trial", 1, 1),
        _custom(part),
        _address(top, part),
    )


def _address(top: Sections, part: Sections) -> str | None:
    """``ray.address``; ``resources.address`` says the same."""
    here, there = top.part("ray", ("address",)), part.node("address")
    address, other = here.text("address"), part.text("address")
    if address and other and address != other and there is not None:
        part.complain(there.here, f"the cluster is at `{other}` here and at `{address}` under `ray:`", "keep one")
    return address or other


def _amount(part: Sections, key: str, default: float) -> float:
    amount, node = part.number(key, default), part.node(key)
    if node is not None and (why := _unfit(amount, key.startswith("gpus"))):
        part.complain(node.here, f"{key}: {why}")
    return amount


def _unfit(amount: float, devices: bool) -> str:
    """Why Ray would not take it; empty where it does."""
    if 0 < amount < LEAST:
        return f"{amount:g} is less than Ray counts; the least is {LEAST:g}"
    return "several devices come whole: 0.5, 1 or 2, not 1.5" if devices and amount > 1 and amount % 1 else ""


def _custom(part: Sections) -> dict[str, float]:
    node = part.node("custom")
    if node is None:
        return {}
    if not isinstance(node, Table):
        part.complain(node.here, "custom resources are a mapping of their names to numbers",
                      'such as `{"accelerator_type:H100": 0.001}`')
        return {}
    found: dict[str, float] = {}
    for key, value in node:
        amount = plain(value) if isinstance(value, Text) else None
        if key.text in ("CPU", "GPU", "memory", "object_store_memory"):
            part.complain(key.here, f"`{key.text}` is none of a cluster's own", "such are `cpus_per_trial` and "
                          "`gpus_per_trial`")
        elif isinstance(amount, bool) or not isinstance(amount, int | float) or amount < LEAST:
            part.complain(value.here, f"{key.text}: a number of at least {LEAST:g} is due here")
        else:
            found[key.text] = float(amount)
    return found
