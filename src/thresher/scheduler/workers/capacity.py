# SPDX-License-Identifier: Apache-2.0
"""Capacity of nodes: what a worker needs, what each node has free, which node and devices are best for a worker.

Devices are counted in parts, so that three thirds make exactly one whole. A worker that needs a fraction of a device
goes to the fullest device that still has room; one that needs whole devices goes to the node with the fewest free
devices. So fractions do not spread over devices that a whole-device worker could use. CPUs are soft: they spread
workers and never refuse one.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from thresher.scheduler.model import NodeSpec, OpSpec, RunSpec

if TYPE_CHECKING:
    from thresher.scheduler.state import WorkerState
    from thresher.scheduler.workers.pools import Pool

PARTS = 1_000_000  # of one device


class Need(NamedTuple):
    """Resources that one worker takes from its node."""

    cpus: float = 1.0  # soft
    whole: int = 0  # whole devices
    parts: int = 0  # parts of one device
    gpu_memory_bytes: int = 0  # memory of one device; becomes parts where the worker lands
    memory_bytes: int = 0  # host memory
    custom: tuple[tuple[str, float], ...] = ()  # named resources

    @property
    def on_device(self) -> bool:
        """True if it needs an accelerator."""
        return bool(self.whole or self.parts or self.gpu_memory_bytes)

    @property
    def hard(self) -> bool:
        """True if a node may have no room for it."""
        return self.on_device or bool(self.memory_bytes or self.custom)


class Room(NamedTuple):
    """Free resources of a node. Two nodes with equal rooms are interchangeable."""

    cpus: float  # cores of the node
    busy_cpus: float  # cores that its workers request, possibly more than `cpus`
    device_bytes: tuple[int, ...]  # memory of each device
    free_parts: tuple[int, ...]  # free parts of each device
    memory_bytes: int  # free host memory; -1: not counted
    custom: tuple[tuple[str, float], ...]  # free named resources


class Place(NamedTuple):
    """Node and devices of a worker, and the parts that it takes of each device."""

    node: str  # name of the node
    devices: tuple[int, ...] = ()  # indices of devices on that node
    parts: int = 0  # parts of each of them


def need_of(op: OpSpec | None) -> Need:
    """Return the needs of a worker of an op; None: of a shared worker."""
    if op is None:
        return Need()
    whole = int(op.gpus) if op.gpus >= 1 else 0
    parts = max(1, int(op.gpus * PARTS + 1e-3)) if 0 < op.gpus < 1 else 0  # rounded down, and 0.29 is not 0.28999…
    custom = tuple(sorted((name, amount) for name, amount in op.custom.items() if amount))
    return Need(op.cpus, whole, parts, op.gpu_memory_bytes, op.memory_bytes, custom)


def room_of(node: NodeSpec) -> Room:
    """Return the room of an empty node."""
    memory = node.memory_bytes or -1
    custom = tuple(sorted(node.custom.items()))
    return Room(node.cpus, 0.0, node.gpus, (PARTS,) * len(node.gpus), memory, custom)


def nodes_of(spec: RunSpec) -> tuple[NodeSpec, ...]:
    """Return the nodes of a run: one called "local" if the spec has none."""
    return spec.nodes or (NodeSpec(cpus=float(max(1, spec.shared_workers))),)


def parts_on(need: Need, room: Room, device: int) -> int:
    """Return the parts of one device that a worker takes; more than PARTS if it can never fit."""
    if not need.gpu_memory_bytes:
        return PARTS if need.whole else need.parts
    total = room.device_bytes[device]
    return ceil(need.gpu_memory_bytes * PARTS / total) if total > 0 else PARTS + 1


def devices_for(need: Need, room: Room) -> tuple[int, ...] | None:
    """Return the devices of a node that a worker should use: () if it needs none, None if it does not fit."""
    if 0 <= room.memory_bytes < need.memory_bytes:
        return None
    left = dict(room.custom)
    if any(left.get(name, 0.0) + 1e-9 < amount for name, amount in need.custom):
        return None
    if need.whole:
        empty = [index for index, parts in enumerate(room.free_parts) if parts == PARTS]
        return tuple(empty[: need.whole]) if len(empty) >= need.whole else None
    if not need.on_device:
        return ()
    fitting = [
        (parts - parts_on(need, room, index), index)
        for index, parts in enumerate(room.free_parts)
        if parts >= parts_on(need, room, index)
    ]
    return (min(fitting)[1],) if fitting else None


def rank(need: Need, room: Room, devices: tuple[int, ...]) -> tuple[float, float, float]:
    """Return the sort key of a place, smallest best: no empty device used for a fraction, few free ones, low load."""
    load = (room.busy_cpus + need.cpus) / room.cpus if room.cpus > 0 else float("inf")
    if need.whole:
        return (0.0, sum(1 for parts in room.free_parts if parts == PARTS), load)
    if need.on_device:
        index = devices[0]
        free = room.free_parts[index]
        left = free - parts_on(need, room, index)
        return (float(free == PARTS), left, load)
    return (load, 0.0, 0.0)


def with_worker(room: Room, need: Need, place: Place, sign: int = 1) -> Room:
    """Return the room after a worker was placed there; `sign` -1: after it was removed."""
    free = list(room.free_parts)
    for index in place.devices:
        free[index] -= sign * place.parts
    amounts = dict(need.custom)
    return room._replace(
        busy_cpus=round(room.busy_cpus + sign * need.cpus, 6),
        free_parts=tuple(free),
        memory_bytes=room.memory_bytes if room.memory_bytes < 0 else room.memory_bytes - sign * need.memory_bytes,
        custom=tuple((name, round(left - sign * amounts.get(name, 0.0), 6)) for name, left in room.custom),
    )


def size_of(need: Need) -> tuple[float, ...]:
    """Return the sort key of a worker by how hard it is to place: whole devices, then fractions, then memory."""
    custom = sum(amount for _, amount in need.custom)
    return (need.whole, need.gpu_memory_bytes, need.parts, custom, need.memory_bytes)


class Nodes:
    """The nodes that are up, grouped by equal room so that a search visits each kind once."""

    __slots__ = ("_by_room", "room")

    def __init__(self, nodes: tuple[NodeSpec, ...] = ()) -> None:
        self.room: dict[str, Room] = {}
        self._by_room: dict[Room, dict[str, None]] = {}
        for node in nodes:
            self.join(node)

    def copy(self) -> Nodes:
        """Return a copy for trial placements."""
        other = Nodes()
        other.room = dict(self.room)
        other._by_room = {room: dict(nodes) for room, nodes in self._by_room.items()}
        return other

    def join(self, node: NodeSpec) -> None:
        """Add an empty node."""
        self._set(node.node, room_of(node))

    def lose(self, node: str) -> None:
        """Remove a node with everything that was placed on it."""
        self._set(node, None)

    def find(self, need: Need) -> Place | None:
        """Return the best place for a worker; None if there is no room."""
        best: tuple[tuple[float, ...], str, tuple[int, ...]] | None = None
        for room, nodes in self._by_room.items():
            devices = devices_for(need, room)
            if devices is not None:
                found = (rank(need, room, devices), next(iter(nodes)), devices)
                if best is None or found[0] < best[0]:
                    best = found
        if best is None:
            return None
        _, node, devices = best
        return Place(node, devices, parts_on(need, self.room[node], devices[0]) if devices else 0)

    def allocate(self, need: Need, place: Place) -> None:
        """Allocate the needs of a worker at its place."""
        self._set(place.node, with_worker(self.room[place.node], need, place))

    def free_room(self, need: Need, place: Place) -> None:
        """Free the needs of a worker. Do nothing if its node was removed before."""
        if place.node in self.room:
            self._set(place.node, with_worker(self.room[place.node], need, place, -1))

    def place(self, need: Need) -> bool:
        """Find a place and allocate it; return False if there is none."""
        place = self.find(need)
        if place is not None:
            self.allocate(need, place)
        return place is not None

    def _set(self, node: str, room: Room | None) -> None:
        old = self.room.pop(node, None)
        if old is not None:
            same = self._by_room[old]
            del same[node]
            if not same:
                del self._by_room[old]
        if room is not None:
            self.room[node] = room
            self._by_room.setdefault(room, {})[node] = None


class Fleet:
    """Nodes, their free resources, and the workers that start, drain and age on them."""

    __slots__ = (
        "balanced_for",
        "by_age",
        "critical",
        "draining",
        "empty",
        "guessing",
        "is_wide",
        "known",
        "next_balance_s",
        "next_restart_s",
        "nodes",
        "now_s",
        "on_node",
        "parked_draining",
        "quota",
        "recycled",
        "shared_on",
        "wanting",
    )

    def __init__(self, spec: RunSpec) -> None:
        specs = nodes_of(spec)
        self.known: dict[str, NodeSpec] = {node.node: node for node in specs}
        self.is_wide = len(specs) > 1  # payloads may be on another node than their readers
        self.nodes = Nodes(specs)  # nodes with their free resources
        self.empty = Nodes(specs)  # the same nodes without workers
        self.quota = quotas(spec.shared_workers, specs)  # node -> shared workers it should have; only nodes that are up
        self.shared_on: dict[str, int] = dict.fromkeys(self.quota, 0)  # node -> shared workers it has
        self.on_node: dict[str, dict[int, WorkerState]] = {}  # node -> its workers
        self.now_s = 0.0  # time of the last Tick
        self.by_age: deque[WorkerState] = deque()  # oldest first; may contain workers that are gone
        self.draining: list[WorkerState] = []  # draining workers that may be empty now
        self.parked_draining: dict[int, WorkerState] = {}  # draining workers with a parked generator
        self.wanting: dict[Pool, None] = {}  # pools that have fewer workers than they should
        self.critical = False  # memory is so short that idle workers were stopped
        self.recycled: WorkerState | None = None  # the worker that was last drained because memory is short
        self.next_restart_s = 0.0  # when the next worker may be recycled for its age
        self.next_balance_s = 0.0  # time of the next autoscaling decision
        self.guessing = True  # the targets do not rest on measurements yet
        self.balanced_for: tuple[object, dict[int, int]] | None = None  # work that was last balanced, and the targets


def quotas(shared_workers: int, nodes: tuple[NodeSpec, ...]) -> dict[str, int]:
    """Return the shared workers of each node, in proportion to its CPUs; together exactly `shared_workers`."""
    total = sum(node.cpus for node in nodes)
    exact = {node.node: shared_workers * (node.cpus / total if total > 0 else 1 / len(nodes)) for node in nodes}
    found = {name: int(share + 1e-9) for name, share in exact.items()}
    left = shared_workers - sum(found.values())
    for name in sorted(found, key=lambda n: found[n] - exact[n])[:left]:
        found[name] += 1
    return found
