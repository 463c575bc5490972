# SPDX-License-Identifier: Apache-2.0
"""The connection to a Ray cluster: one that runs, or a private one on this machine that ends with the run."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from thresher.errors import MissingPackageError, RunFailedError, UsageError

HEAD = "node:__internal_head__"
"""The resource by which Ray marks the head node."""
CONNECT_S = 5.0
"""How long a cluster may take to accept a connection."""
LEAVE_S = 3.0
"""How long the processes of a private cluster may take to end by themselves."""
LEAST_STORE_BYTES = 96 * 2**20
"""Ray wants 75 MiB for its object store."""


@dataclass(frozen=True)
class RayNodeFacts:
    """One node of a cluster, as Ray tells it."""

    node_id: str
    """Ray's id of it, in hexadecimal."""
    name: str
    """As it stands in events and reports."""
    cpus: float
    """What it has."""
    gpus: float
    """Accelerators."""
    store_bytes: int
    """Size of its object store."""
    custom: dict[str, float] = field(default_factory=dict)
    """Named resources."""
    is_head: bool = False
    """Whether it is the head node."""
    memory_bytes: int = 0
    """Memory that it offers to those who ask for it."""


@dataclass(frozen=True)
class RayRequest:
    """How to get at a cluster."""

    address: str | None = None
    """Of one that runs: `auto`, `host:port` or `ray://…`; `None`: `RAY_ADDRESS`, else a private one."""
    cpus: int | None = None
    """CPUs of a private one."""
    gpus: int = 0
    """Accelerators of a private one that are declared; real ones are found by Ray."""
    store_bytes: int | None = None
    """Object store of a private one."""
    custom: dict[str, float] = field(default_factory=dict)
    """Named resources of a private one."""
    dashboard: bool = False
    """Whether a private one shows Ray's dashboard."""
    runtime_env: dict[str, Any] | None = None
    """Of the whole job."""


class RaySession:
    """A cluster for as long as it is needed. What was there before stays there."""

    def __init__(self, request: RayRequest) -> None:
        import ray

        self._opened = not ray.is_initialized()
        self.dashboard_url = ""
        """Address of Ray's dashboard, where there is one."""
        if self._opened:
            self._open(request)

    def _open(self, request: RayRequest) -> None:
        import ray

        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        common: dict[str, Any] = {
            "log_to_driver": False,
            "logging_level": logging.ERROR,
            "configure_logging": True,
            "runtime_env": request.runtime_env,
        }
        address = request.address or os.environ.get("RAY_ADDRESS") or None
        if address is not None:
            refuse_silent(address)
        try:
            if address is not None and address != "local":
                context = ray.init(address=address, **common)
            else:
                context = ray.init(
                    address="local",
                    num_cpus=request.cpus,
                    num_gpus=request.gpus or None,
                    resources=request.custom or None,
                    object_store_memory=request.store_bytes and max(LEAST_STORE_BYTES, request.store_bytes),
                    include_dashboard=request.dashboard,
                    **common,
                )
        except ConnectionError as error:
            raise _no_answer(address or "local", error) from error
        except Exception as error:  # Ray raises nothing narrower, whatever is missing or too late
            if request.dashboard and "missing packages" in str(error):
                raise MissingPackageError("the dashboard needs more of Ray: pip install 'ray[default]'") from error
            where = "on this machine" if address in (None, "local") else f"at {address!r}"
            raise RunFailedError(f"Ray {where} could not be opened: {type(error).__name__}: {error}") from error
        self.dashboard_url = context.dashboard_url or ""

    def nodes(self) -> list[RayNodeFacts]:
        """The nodes that are up, the head first, then by id."""
        import ray

        found = [_facts(node) for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]  # Ray ships few types
        return sorted(found, key=lambda node: (not node.is_head, node.node_id))

    def free_cpus(self) -> dict[str, float]:
        """CPUs that no job holds, by node id."""
        return {node: float(free.get("CPU", 0.0)) for node, free in _available().items()}

    def close(self) -> None:
        """Leave the cluster; a private one ends. May be called twice."""
        if self._opened:
            self._opened = False
            end_ray()


def refuse_silent(address: str) -> None:
    """Refuse an address where nobody listens. Ray itself would try for minutes, and say so in its own words."""
    place = (_meant_by_auto() if address == "auto" else address).removeprefix("ray://")
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except OSError as error:
        raise _no_answer(address, f"{place}: {error.strerror or error}") from error


def _meant_by_auto() -> str:
    """Where Ray will look: `RAY_ADDRESS`, a cluster that runs on this machine (it finds that one itself: empty), or the
    last one that was started here, which it has noted."""
    import psutil

    said = os.environ.get("RAY_ADDRESS")
    if said:
        return said
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
    """Leave Ray. Of a cluster that this process has started nothing stays, not even actors that hang on."""
    import psutil
    import ray

    started = _started_processes()
    ray.shutdown()
    _, left = psutil.wait_procs(started, timeout=LEAVE_S)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _started_processes() -> list[Any]:
    """The processes of a private cluster and all below them."""
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
    """End an actor, if it still lives. Where Ray has ended, so has the actor, and Ray must not be started for that."""
    import ray

    if ray.is_initialized():
        with contextlib.suppress(Exception):  # it is dead already
            ray.kill(actor)


@contextlib.contextmanager
def open_session(request: RayRequest) -> Iterator[RaySession]:
    """A session for the length of a block."""
    session = RaySession(request)
    try:
        yield session
    finally:
        session.close()


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
