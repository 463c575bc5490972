# SPDX-License-Identifier: Apache-2.0
"""The connection to a Ray cluster: a running one, or a private one on this machine that ends with the run."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import tempfile
from dataclasses import dataclass, field
from typing import Any

from thresher.errors import MissingPackageError, RunFailedError, UsageError

HEAD = "node:__internal_head__"
"""The resource that marks the head node in Ray."""
CONNECT_S = 5.0
"""Time limit for a cluster to accept a connection."""
LEAVE_S = 3.0
"""Time limit for the processes of a private cluster to end by themselves."""
COMPAT = "THRESHER_COMPAT"
"""Start of the environment variables that let workers import modules which were written for another curator."""
LEAST_STORE_BYTES = 96 * 2**20
"""Smallest object store that is requested; Ray needs 75 MiB."""


@dataclass(frozen=True)
class RayNodeFacts:
    """One node of a cluster, as reported by Ray."""

    node_id: str
    """Ray's id in hexadecimal."""
    name: str
    """Name in events and reports."""
    cpus: float
    """Cores."""
    gpus: float
    """Accelerators."""
    store_bytes: int
    """Size of its object store."""
    custom: dict[str, float] = field(default_factory=dict)
    """Named resources."""
    is_head: bool = False
    """True for the head node."""
    memory_bytes: int = 0
    """Memory that Ray offers to tasks and actors."""


@dataclass(frozen=True)
class RayRequest:
    """Parameters of the connection to a cluster."""

    address: str | None = None
    """A running cluster: `auto`, `host:port` or `ray://…`; `None`: `RAY_ADDRESS`, else a private one."""
    cpus: int | None = None
    """CPUs of a private cluster."""
    gpus: int | None = None
    """Accelerators of a private cluster; `None`: those that Ray finds."""
    store_bytes: int | None = None
    """Object store of a private cluster."""
    dashboard: bool = False
    """True if a private cluster starts Ray's dashboard."""
    runtime_env: dict[str, Any] | None = None
    """Runtime environment of the whole job."""


class RaySession:
    """A connection to a cluster. A connection that existed before is kept and left open."""

    def __init__(self, request: RayRequest) -> None:
        import ray

        self._opened = not ray.is_initialized()
        self.dashboard_url = ""
        """Address of Ray's dashboard, or empty."""
        if self._opened:
            self._open(request)

    def _open(self, request: RayRequest) -> None:
        import ray

        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        common: dict[str, Any] = {
            "log_to_driver": False,
            "logging_level": logging.ERROR,
            "configure_logging": True,
            "runtime_env": with_compat_names(request.runtime_env),
        }
        address = request.address or os.environ.get("RAY_ADDRESS") or None
        if address is not None:
            check_reachable(address)
        try:
            if address is not None and address != "local":
                context = ray.init(address=address, **common)
            else:
                context = ray.init(
                    address="local",
                    num_cpus=request.cpus,
                    num_gpus=request.gpus,
                    object_store_memory=request.store_bytes and max(LEAST_STORE_BYTES, request.store_bytes),
                    include_dashboard=request.dashboard,
                    **common,
                )
        except ConnectionError as error:
            raise _no_answer(address or "local", error) from error
        except Exception as error:  # Ray raises nothing narrower
            if request.dashboard and "missing packages" in str(error):
                raise MissingPackageError("the dashboard needs more of Ray: pip install 'ray[default]'") from error
            where = "on this machine" if address in (None, "local") else f"at {address!r}"
            raise RunFailedError(f"Ray {where} could not be opened: {type(error).__name__}: {error}") from error
        self.dashboard_url = context.dashboard_url or ""

    def nodes(self) -> list[RayNodeFacts]:
        """Return the nodes that are up, the head first, then by id."""
        import ray

        found = [_facts(node) for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]  # Ray ships few types
        return sorted(found, key=lambda node: (not node.is_head, node.node_id))

    def free_cpus(self) -> dict[str, float]:
        """Return the CPUs that no job holds, by node id."""
        return {node: float(free.get("CPU", 0.0)) for node, free in _available().items()}

    def close(self) -> None:
        """Disconnect; a private cluster ends. May be called twice."""
        if self._opened:
            self._opened = False
            end_ray()


def with_compat_names(runtime_env: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a runtime environment in which workers find the import names of another curator, if this process does."""
    names = {name: value for name, value in os.environ.items() if name.startswith(COMPAT)}
    if not names:
        return runtime_env
    given = dict(runtime_env or {})
    return {**given, "env_vars": {**names, **given.get("env_vars", {})}}


def check_reachable(address: str) -> None:
    """Raise `UsageError` if nothing listens at an address. Ray itself would retry for minutes."""
    place = (_resolve_auto() if address == "auto" else address).removeprefix("ray://")
    if "@" in place:
        raise UsageError("address: a Ray address holds no user name or password; give host:port, such as 10.0.0.1:6379")
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except OSError as error:
        raise _no_answer(address, f"{place}: {error.strerror or error}") from error


def _resolve_auto() -> str:
    """Return the address that Ray resolves `auto` to: `RAY_ADDRESS`, empty for a cluster running on this machine, or
    the last cluster that was started here."""
    import psutil

    address = os.environ.get("RAY_ADDRESS")
    if address:
        return address
    if any(process.info["name"] == "gcs_server" for process in psutil.process_iter(["name"])):
        return ""
    folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    try:
        with open(os.path.join(folder, "ray", "ray_current_cluster"), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def _no_answer(address: str, reason: object) -> UsageError:
    return UsageError(
        f"address: no Ray cluster answers at {address!r} ({reason}). Start one with `ray start --head`, give "
        "the address that it prints, or leave address out for a private one on this machine"
    )


def end_ray() -> None:
    """Disconnect from Ray. Kill all processes of a cluster that this process has started, including hanging actors."""
    import psutil
    import ray

    started = _started_processes()
    ray.shutdown()
    _, left = psutil.wait_procs(started, timeout=LEAVE_S)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _started_processes() -> list[Any]:
    """Return the processes of a private cluster with all their descendants."""
    import psutil
    from ray._private.worker import global_worker

    node = getattr(global_worker, "node", None)
    if node is None:
        return []
    found: dict[int, psutil.Process] = {}
    for process in [info.process for several in node.all_processes.values() for info in several]:
        with contextlib.suppress(psutil.NoSuchProcess):
            top = psutil.Process(process.pid)
            found.update((one.pid, one) for one in (top, *top.children(recursive=True)))
    return list(found.values())


def kill_actor(actor: Any) -> None:
    """Kill an actor. Do nothing if Ray has ended, since a call would start it again."""
    import ray

    if ray.is_initialized():
        with contextlib.suppress(Exception):  # it has ended already
            ray.kill(actor)


def _available() -> dict[str, dict[str, float]]:
    from ray._private.state import available_resources_per_node

    found: dict[str, dict[str, float]] = available_resources_per_node()  # type: ignore[no-untyped-call]  # no types
    return found


def _facts(node: dict[str, Any]) -> RayNodeFacts:
    resources = dict(node["Resources"])
    node_id = node["NodeID"]
    is_head = HEAD in resources
    known = {"CPU", "GPU", "memory", "object_store_memory"}
    custom = {
        name: amount
        for name, amount in resources.items()
        if name not in known and not name.startswith(("node:", "accelerator_type:"))
    }
    return RayNodeFacts(
        node_id,
        f"{node['NodeManagerAddress']}-{node_id[:8]}",
        resources.get("CPU", 0.0),
        resources.get("GPU", 0.0),
        int(resources.get("object_store_memory", 0)),
        custom,
        is_head,
        int(resources.get("memory", 0)),
    )
