# SPDX-License-Identifier: Apache-2.0
"""The Ray cluster that a script starts and stops itself, and the executors that it asks for.

An executor opens the cluster that it needs, so `start` only keeps the settings until an executor that runs on Ray is
made: a script that runs on the processes of this machine never starts Ray.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from thresher.core.registry import load_executor

EXECUTOR = "THRESHER_COMPAT_EXECUTOR"
"""Environment variable: name of the executor that all scripts get, whichever they ask for."""

_started: list[RayClient] = []


@dataclass
class RayClient:
    """Settings of a private Ray cluster on this machine; with `RAY_ADDRESS` that cluster is used as it is."""

    ray_port: int = 6379
    ray_dashboard_port: int = 8265
    ray_client_server_port: int = 10001
    ray_temp_dir: str | None = None
    include_dashboard: bool = False
    ray_metrics_port: int = 8080
    ray_dashboard_host: str = "127.0.0.1"
    num_gpus: int | None = None
    num_cpus: int | None = None
    object_store_memory: int | None = None
    enable_object_spilling: bool = False
    ray_stdouterr_capture_file: str | None = None
    metrics_dir: str | None = None

    def start(self) -> None:
        """Keep the settings for the first executor that runs on Ray. Ports are chosen by Ray."""
        if self not in _started:
            _started.append(self)

    def stop(self) -> None:
        """End the cluster, if one was started for it."""
        if self in _started:
            _started.remove(self)
        session = self.__dict__.pop("_session", None)
        if session is not None:
            session.close()

    def open(self) -> None:
        """Start the cluster with its declared accelerators, unless `RAY_ADDRESS` names a running one."""
        if "_session" in self.__dict__ or os.environ.get("RAY_ADDRESS"):
            return
        from thresher.backends.ray_nodes.session import RayRequest, RaySession
        from thresher.backends.xenna import set_environment

        set_environment()  # read when Ray starts, and whether Xenna will run on it is not known yet
        self.__dict__["_session"] = RaySession(
            RayRequest(cpus=self.num_cpus, gpus=self.num_gpus, store_bytes=self.object_store_memory, dashboard=True)
        )

    def __enter__(self) -> RayClient:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


@dataclass
class SlurmRayClient(RayClient):
    """The same on a Slurm allocation, whose cluster the job's script starts (docs/cluster.md has it)."""

    worker_connect_timeout_s: int = 300
    cleanup_on_start: bool = True

    def start(self) -> None:
        """Let all processes but that of the first node of the allocation end: its executor finds the other nodes.

        Without `RAY_ADDRESS` the run takes this node alone, and says so.
        """
        if int(os.environ.get("SLURM_NODEID", "0")) > 0:
            sys.exit(0)
        if not os.environ.get("RAY_ADDRESS") and int(os.environ.get("SLURM_JOB_NUM_NODES", "1")) > 1:
            sys.stderr.write(
                "thresher: RAY_ADDRESS is not set, so the run takes one node of the allocation; start Ray on all nodes "
                "in the job's script, as docs/cluster.md shows\n"
            )
        super().start()


def executor_instead(made: type[Any], options: dict[str, Any]) -> Any:
    """Return the executor that a script asks for, or that of `THRESHER_COMPAT_EXECUTOR` with the options that it
    has."""
    name = os.environ.get(EXECUTOR, "")
    if name:
        made = load_executor(name)
        given = {**options.pop("config", {}), **options}
        options = {key: value for key, value in given.items() if key in made.options and key not in made.cannot}
    if _started and "address" in made.options:
        client = _started[-1]
        if client.num_gpus:
            client.open()
        elif client.num_cpus and not os.environ.get("RAY_ADDRESS"):
            options.setdefault("workers", client.num_cpus)
    return made(**options)


def chosen_executor() -> Any:
    """Return the executor of `THRESHER_COMPAT_EXECUTOR`; `None` if it is not set."""
    name = os.environ.get(EXECUTOR, "")
    return executor_instead(load_executor(name), {}) if name else None
