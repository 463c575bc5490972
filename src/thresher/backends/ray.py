# SPDX-License-Identifier: Apache-2.0
"""Workers on all nodes of a Ray cluster, driven by the same scheduler as on one machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from thresher.backends.allowances import checked_memory, checked_share, checked_tending
from thresher.backends.ray_session import RayRequest, RaySession
from thresher.core.options import (
    EXECUTION_MODES,
    RunOptions,
    check_choice,
    check_count,
    check_flag,
    check_positive,
    merge_options,
)
from thresher.core.packages import require_package
from thresher.core.pipeline import Pipeline
from thresher.core.plan import Plan
from thresher.core.result import RunResult
from thresher.runtime.cluster import Cluster
from thresher.runtime.executor import Executor, Limits
from thresher.runtime.memory import default_memory
from thresher.runtime.specs import run_spec
from thresher.scheduler.model import NodeSpec, RunSpec

if TYPE_CHECKING:
    from thresher.backends.ray_fleet import Fleet

STORE_SHARE = 0.3
"""Part of a private cluster's memory that is its object store, as Ray does it."""
IN_FLIGHT_SHARE = 0.5
"""Part of the smallest object store that payloads in flight may take: copies of some are on other nodes."""


@dataclass(frozen=True)
class Means:
    """What a cluster has for a run."""

    workers: int
    """Shared workers of all nodes."""
    memory_bytes: int
    """Ceiling of each node."""
    store_bytes: int
    """The smallest object store."""
    nodes: tuple[NodeSpec, ...]
    """The nodes."""


class RayExecutor(Executor):
    """Runs a pipeline on a Ray cluster: one that runs, or a private one on this machine."""

    name = "ray"
    options = (
        "address",
        "autoscale_interval_s",
        "cpu_allocation_percentage",
        "dashboard",
        "execution_mode",
        "fusion",
        "ignore_head_node",
        "logging_interval",
        "max_workers_per_stage",
        "memory",
        "runtime_env",
        "worker_max_lifetime_m",
        "worker_max_tasks",
        "worker_restart_interval_m",
        "workers",
    )
    cannot: ClassVar[Mapping[str, str]] = {
        "gpus": "accelerators are those that the cluster declares (`ray start --num-gpus`)",
        "custom_resources": "named resources are those that the cluster declares (`ray start --resources`)",
    }

    def __init__(self, config: dict[str, Any] | None = None, **options: Any) -> None:
        """Options, as keyword arguments or in `config={…}`.

        `address`: of a cluster that runs: `auto`, `host:port` (default: `RAY_ADDRESS`, else a private cluster on this
        machine that ends with the run; a program that has called `ray.init` keeps its own).
        `ignore_head_node`: leave the head node to Ray. `dashboard`: show Ray's dashboard of a private cluster.
        `runtime_env`: of all workers, as Ray takes it; a stage may have its own.
        `workers`: shared CPU workers of the whole cluster (default: its CPUs times `cpu_allocation_percentage`, 0.95).
        `memory`: ceiling for what runs on each node, such as `16GB` (default: 60 % of the smallest).
        The others are as for `LocalExecutor`.
        """
        given = merge_options("RayExecutor", options, config, self.options, self.cannot)
        require_package("ray", "executor 'ray'")
        workers = given.get("workers")
        self._workers = None if workers is None else check_count("workers", workers)
        self._share = checked_share(given.get("cpu_allocation_percentage", 0.95))
        self._memory = None if given.get("memory") is None else checked_memory(given["memory"])
        self._mode = check_choice("execution_mode", given.get("execution_mode", "streaming"), EXECUTION_MODES)
        self._fusion = check_flag("fusion", given.get("fusion", True))
        self._ignore_head = check_flag("ignore_head_node", given.get("ignore_head_node", False))
        self.logging_interval_s = check_positive("logging_interval", given.get("logging_interval", 10.0), "seconds")
        self._tending = checked_tending(given)
        self._request = RayRequest(
            address=given.get("address"),
            cpus=self._workers,
            store_bytes=int((self._memory or default_memory()) * STORE_SHARE),
            dashboard=check_flag("dashboard", given.get("dashboard", False)),
            runtime_env=given.get("runtime_env"),
        )
        self._session: RaySession | None = None
        self._fleet: Fleet | None = None
        self._means: Means | None = None

    def warm_up(self) -> None:
        """Connect, and start an agent on each node."""
        if self._fleet is None:
            from thresher.backends.ray_fleet import Fleet, Wish

            self._session = RaySession(self._request)
            self._fleet = Fleet(self._session, Wish(self._workers, self._share, self._ignore_head), self._memory)
            try:
                if self._session.dashboard_url:
                    sys.stderr.write(f"thresher: Ray dashboard at http://{self._session.dashboard_url}\n")
                self._fleet.open()
            except BaseException:
                self._leave()
                raise

    def _found(self) -> Means:
        """What there is now; after the cluster was left, what there was."""
        if self._fleet is None and self._means is None:
            self.warm_up()
        fleet = self._fleet
        if fleet is not None:
            self._means = Means(fleet.workers, fleet.memory(), fleet.store_bytes(), fleet.specs())
        assert self._means is not None
        return self._means

    def limits(self) -> Limits:
        """Workers of the nodes that are up, and memory of each."""
        means = self._found()
        return Limits(
            means.workers,
            means.memory_bytes,
            barrier=self._mode == "batch",
            fusion=self._fusion,
            tending=self._tending,
            nodes=len(means.nodes),
        )

    def run_spec(self, plan: Plan) -> RunSpec:
        """The plan and the nodes, as the scheduler sees them."""
        spec = run_spec(plan, self.limits())
        means = self._found()
        in_flight = min(spec.budget_bytes, int(means.store_bytes * IN_FLIGHT_SHARE))
        return replace(spec, nodes=means.nodes, budget_bytes=in_flight)

    def make_cluster(self, limits: Limits) -> Cluster:
        """Actors on the nodes."""
        from thresher.backends.ray_cluster import RayCluster

        assert self._fleet is not None
        return RayCluster(limits, self._fleet)

    def plan(self, pipeline: Pipeline, options: RunOptions | None = None) -> Plan:
        """What a run would do; a cluster that was opened just for that is left again."""
        opened = self._fleet is not None
        try:
            return super().plan(pipeline, options)
        finally:
            if not opened:
                self._leave()

    def execute(self, pipeline: Pipeline, options: RunOptions) -> RunResult:
        """Run to the end, and leave the cluster."""
        try:
            return super().execute(pipeline, options)
        finally:
            self._leave()

    def _leave(self) -> None:
        fleet, self._fleet = self._fleet, None
        session, self._session = self._session, None
        if fleet is not None:
            fleet.close()
        if session is not None:
            session.close()
