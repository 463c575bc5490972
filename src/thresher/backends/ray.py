# SPDX-License-Identifier: Apache-2.0
"""Executor for a Ray cluster: workers on all nodes, driven by the same scheduler as on one machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from thresher.backends.ray_nodes.session import RayRequest, RaySession
from thresher.backends.resource_options import checked_memory, checked_share, checked_tending
from thresher.core.arguments.options import (
    EXECUTION_MODES,
    RunOptions,
    check_choice,
    check_count,
    check_flag,
    check_positive,
    merge_options,
)
from thresher.core.pipeline import Pipeline
from thresher.core.planning.plan import Plan
from thresher.core.registry import require_package
from thresher.runtime.cluster import Cluster
from thresher.runtime.executor import Executor, Limits, run_spec
from thresher.runtime.memory.usage import default_memory
from thresher.scheduler.model import NodeSpec, RunSpec

if TYPE_CHECKING:
    from thresher.backends.ray_nodes.fleet import RayFleet

STORE_SHARE = 0.3
"""Share of a private cluster's memory used for its object store; Ray's own default."""
IN_FLIGHT_SHARE = 0.5
"""Share of the smallest object store that payloads in flight may use; some are copied to other nodes."""


@dataclass(frozen=True)
class ClusterResources:
    """Resources of a cluster that a run may use."""

    workers: int
    """Shared workers on all nodes."""
    memory_bytes: int
    """Memory limit of each node."""
    store_bytes: int
    """Size of the smallest object store."""
    nodes: tuple[NodeSpec, ...]
    """The nodes that are up."""


class RayExecutor(Executor):
    """Runs a pipeline on a Ray cluster: a running one, or a private one on this machine."""

    name = "ray"
    runs_here = False
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
        "standard_stream": "its workers may be on other machines",
        "gpus": "accelerators are those that the cluster declares (`ray start --num-gpus`)",
        "custom_resources": "named resources are those that the cluster declares (`ray start --resources`)",
    }

    def __init__(self, config: dict[str, Any] | None = None, **options: Any) -> None:
        """Options, as keyword arguments or in `config={…}`.

        `address`: a running cluster: `auto` or `host:port` (default: `RAY_ADDRESS`, else a private cluster on this
        machine that ends with the run; a program that has called `ray.init` keeps its own).
        `ignore_head_node`: run no workers on the head node. `dashboard`: start Ray's dashboard for a private cluster.
        `runtime_env`: runtime environment of all workers, in Ray's format; a stage may have its own.
        `workers`: shared CPU workers of the whole cluster (default: its CPUs times `cpu_allocation_percentage`, 0.95).
        `memory`: memory limit of the run on each node, such as `16GB` (default: 60 % of the smallest node).
        The others are the same as for `LocalExecutor`.
        """
        given = merge_options("RayExecutor", options, config, self.options, self.cannot)
        for package in ("ray", "psutil"):
            require_package(package, "executor 'ray'")
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
        self._fleet: RayFleet | None = None
        self._last_resources: ClusterResources | None = None

    def warm_up(self) -> None:
        """Connect to the cluster and start an agent on each node."""
        if self._fleet is None:
            from thresher.backends.ray_nodes.fleet import Allocation, RayFleet

            self._session = RaySession(self._request)
            self._fleet = RayFleet(
                self._session, Allocation(self._workers, self._share, self._ignore_head), self._memory
            )
            try:
                if self._session.dashboard_url:
                    sys.stderr.write(f"thresher: Ray dashboard at http://{self._session.dashboard_url}\n")
                self._fleet.open()
            except BaseException:
                self.release()
                raise

    def _cluster_resources(self) -> ClusterResources:
        """Return the current resources of the cluster, or the last known ones after disconnecting."""
        if self._fleet is None and self._last_resources is None:
            self.warm_up()
        fleet = self._fleet
        if fleet is not None:
            self._last_resources = ClusterResources(fleet.workers, fleet.memory(), fleet.store_bytes(), fleet.specs())
        assert self._last_resources is not None
        return self._last_resources

    def limits(self) -> Limits:
        """Return the workers of the nodes that are up, and the memory limit of each."""
        resources = self._cluster_resources()
        return Limits(
            resources.workers,
            resources.memory_bytes,
            barrier=self._mode == "batch",
            fusion=self._fusion,
            worker_policy=self._tending,
            nodes=len(resources.nodes),
        )

    def run_spec(self, plan: Plan) -> RunSpec:
        """Return the plan and the nodes as input of the scheduler."""
        spec = run_spec(plan, self.limits())
        resources = self._cluster_resources()
        in_flight = min(spec.budget_bytes, int(resources.store_bytes * IN_FLIGHT_SHARE))
        return replace(spec, nodes=resources.nodes, budget_bytes=in_flight)

    def make_cluster(self, limits: Limits) -> Cluster:
        """Return a cluster of actors on the nodes."""
        from thresher.backends.ray_nodes.cluster import RayCluster

        assert self._fleet is not None
        return RayCluster(limits, self._fleet)

    def plan(self, pipeline: Pipeline, options: RunOptions | None = None) -> Plan:
        """Return the plan of a run; disconnect again if the cluster was opened for that only."""
        opened = self._fleet is not None
        try:
            return super().plan(pipeline, options)
        finally:
            if not opened:
                self.release()

    def release(self) -> None:
        """Disconnect from the cluster."""
        fleet, self._fleet = self._fleet, None
        session, self._session = self._session, None
        if fleet is not None:
            fleet.close()
        if session is not None:
            session.close()
