# SPDX-License-Identifier: Apache-2.0
"""Base class and helpers of the engines on Ray: session, nodes, and how many workers of an op fit on them."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from thresher.backends.engines.engine import EngineExecutor
from thresher.backends.engines.unit_call import op_chain
from thresher.backends.ray_nodes.session import RayNodeFacts, RayRequest, RaySession
from thresher.core.arguments.options import RunOptions, check_flag
from thresher.core.pipeline import Pipeline
from thresher.core.planning.plan import Op, Plan
from thresher.core.registry import require_package
from thresher.core.resources import NodeInfo, Resources
from thresher.core.stage import overrides
from thresher.errors import PlanError, RunFailedError
from thresher.runtime.orders import WorkerSetup
from thresher.runtime.processes.preload import has_kernels
from thresher.runtime.processes.setup_pickle import dump_setup, load_setup
from thresher.runtime.worker.worker import set_up_node

GB = 10**9
LEAST_CPUS = 0.01
"""Least cores of a worker when all ops run at the same time."""
CHATTY_LOGGERS = ("ray._private.worker", "ray._private.services", "ray.data", "ray.util")


def usable_nodes(session: RaySession, *, ignore_head_node: bool = False) -> list[RayNodeFacts]:
    """Return the nodes that are up; without the head node if requested and if there are others."""
    found = session.nodes()
    others = [node for node in found if not node.is_head]
    return others if ignore_head_node and others else found


def workers_on(node: RayNodeFacts, needs: Resources, cpus: float) -> int:
    """Return how many workers with these needs fit on a node that offers `cpus` of its cores. Cores are soft: one
    worker fits on any node with a core."""
    if not node.cpus:
        return 0
    most = math.inf
    if needs.cpus:
        most = max(1.0, cpus / needs.cpus)
    for amount, there in _hard_needs(needs, node):
        most = min(most, there / amount)
    return math.floor(most + 1e-9) if most != math.inf else max(1, math.floor(cpus))


def _hard_needs(needs: Resources, node: RayNodeFacts) -> list[tuple[float, float]]:
    """Return the required amounts, each with the amount that the node has."""
    pairs = [(needs.gpus, node.gpus), (needs.memory_gb * GB, node.memory_bytes)]
    pairs += [(amount, node.custom.get(name, 0.0)) for name, amount in needs.custom.items()]
    return [(amount, there) for amount, there in pairs if amount]


def remote_options(needs: Resources, most_cpus: float) -> dict[str, Any]:
    """Return the needs of an op as options of a Ray task or actor."""
    options: dict[str, Any] = {"num_cpus": min(needs.cpus, most_cpus)}
    if needs.gpus:
        options["num_gpus"] = needs.gpus
    if needs.memory_gb:
        options["memory"] = int(needs.memory_gb * GB)
    if needs.custom:
        options["resources"] = dict(needs.custom)
    return options


def soft_cpus(ops: Sequence[Op], numbers: Sequence[int | None], there: float) -> list[float]:
    """Return the cores of a worker of each op, when all ops run at the same time.

    Cores are soft: if not every op could get its workers, all shares are scaled down. `numbers`: workers of each op,
    `None`: at least one.
    """
    wanted = [max(op.resources.cpus, LEAST_CPUS) for op in ops]
    needed = sum(cpus * (number or 1) for cpus, number in zip(wanted, numbers, strict=True))
    share = min(1.0, there / needed)
    return [max(LEAST_CPUS, int(cpus * share * 100) / 100) for cpus in wanted]


def refuse_unfit(plan: Plan, ops: Sequence[Op], nodes: Sequence[RayNodeFacts]) -> None:
    """Raise `PlanError` if no node of the cluster can hold a worker of an op."""
    for op in ops:
        if not any(workers_on(node, op.resources, node.cpus) for node in nodes):
            offers = ", ".join(
                f"{node.cpus:g} cpus, {node.gpus:g} gpus, {node.memory_bytes / GB:.1f} GB"
                + "".join(f", {n:g} {name}" for name, n in node.custom.items())
                for node in nodes
            )
            raise PlanError(
                f"no machine of the Ray cluster can ever run {plan.op_name(op)}: a worker needs {op.resources}, "
                f"and there is: {offers}. Ask for less in the stage's resources, or add a machine"
            )


def set_up_nodes(setup: WorkerSetup, nodes: Sequence[RayNodeFacts]) -> bytes:
    """Run the node setup of all stages on each node; return the setup as bytes."""
    data = dump_setup(setup)
    if not has_kernels(setup.plan) and not any(overrides(stage, "setup_on_node") for stage in setup.plan.stages):
        return data
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    run = ray.remote(num_cpus=0, max_retries=1)(_set_up_here)
    calls = [
        run.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False)).remote(
            data, node.node_id
        )
        for node in nodes
    ]
    try:
        ray.get(calls)
    except ray.exceptions.RayError as error:
        raise RunFailedError(f"setting up the machines of the Ray cluster failed: {error}") from error
    return data


def _set_up_here(data: bytes, node_id: str) -> None:
    set_up_node(load_setup(data), NodeInfo(node_id))


@contextlib.contextmanager
def quiet_ray() -> Iterator[None]:
    """Silence Ray's loggers: errors reach the driver as exceptions anyway."""
    loggers = [logging.getLogger(name) for name in CHATTY_LOGGERS]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


class RayEngineExecutor(EngineExecutor):
    """Runs units on an engine on Ray."""

    needs_dashboard = False
    """True if the engine needs Ray's dashboard process to query the state of the cluster."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        """Options of every engine on Ray, besides those of `EngineExecutor`: `address` and `ignore_head_node`."""
        for package in ("ray", "psutil"):
            require_package(package, f"executor {self.name!r}")
        super().__init__(given)
        self.address: str | None = given.get("address")
        self.ignore_head_node = check_flag("ignore_head_node", given.get("ignore_head_node", False))
        self._session: RaySession | None = None

    def warm_up(self) -> None:
        """Connect to the cluster, or start a private one."""
        if self._session is None:
            request = RayRequest(self.address, cpus=self.workers, dashboard=self.needs_dashboard)
            self._session = RaySession(request)

    def nodes(self) -> list[RayNodeFacts]:
        """Return the nodes of the cluster that may be used now."""
        assert self._session is not None, "a run connects first"
        return usable_nodes(self._session, ignore_head_node=self.ignore_head_node)

    def plan(self, pipeline: Pipeline, options: RunOptions | None = None) -> Plan:
        """Return the plan of a run; if connected, check that the cluster can run it."""
        plan = super().plan(pipeline, options)
        if self._session is not None:
            refuse_unfit(plan, op_chain(plan), self.nodes())
        return plan

    def release(self) -> None:
        """Disconnect from the cluster; a private one ends."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
