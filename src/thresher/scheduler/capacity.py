# SPDX-License-Identifier: Apache-2.0
"""Where a worker fits: what it needs, what a node has left, which node and devices are best. Pure functions.

Devices are counted in parts, so that three thirds make exactly one whole. A worker that needs a share of a device goes
to the fullest device that still has room, one that needs whole devices to the node where the fewest stay free: shares
then never spread over devices that a whole-device worker could have had. CPUs only spread workers, they never refuse.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from thresher.scheduler.model import NodeSpec, OpSpec, RunSpec

PARTS = 1_000_000  # of one device


class Need(NamedTuple):
    """What one worker takes from its node."""

    cpus: float = 1.0  # soft
    whole: int = 0  # whole devices
    parts: int = 0  # parts of one device
    gpu_memory_bytes: int = 0  # memory of one device; becomes parts where the worker lands
    memory_bytes: int = 0  # host memory
    custom: tuple[tuple[str, float], ...] = ()  # named resources

    @property
    def on_device(self) -> bool:
        """Whether it needs an accelerator."""
        return bool(self.whole or self.parts or self.gpu_memory_bytes)

    @property
    def hard(self) -> bool:
        """Whether a node may have no room for it."""
        return self.on_device or bool(self.memory_bytes or self.custom)


class Room(NamedTuple):
    """What a node has left. Two nodes with equal rooms are as good as each other."""

    cpus: float  # cores of the node
    busy_cpus: float  # cores that its workers asked for, possibly more than there are
    device_bytes: tuple[int, ...]  # memory of each device
    free_parts: tuple[int, ...]  # free parts of each device
    memory_bytes: int  # host memory left; -1: not counted
    custom: tuple[tuple[str, float], ...]  # named resources left


class Place(NamedTuple):
    """Where a worker is put, and how much of its devices it takes."""

    node: str  # name of the node
    devices: tuple[int, ...] = ()  # indices of devices on that node
    parts: int = 0  # parts of each of them


def need_of(op: OpSpec | None) -> Need:
    """What a worker of an op needs; None: a shared worker."""
    if op is None:
        return Need()
    whole = int(op.gpus) if op.gpus >= 1 else 0
    parts = max(1, int(op.gpus * PARTS + 1e-3)) if 0 < op.gpus < 1 else 0  # rounded down, and 0.29 is not 0.28999…
    custom = tuple(sorted((name, amount) for name, amount in op.custom.items() if amount))
    return Need(op.cpus, whole, parts, op.gpu_memory_bytes, op.memory_bytes, custom)


def room_of(node: NodeSpec) -> Room:
    """What a node has before any worker is placed on it."""
    memory = node.memory_bytes or -1
    custom = tuple(sorted(node.custom.items()))
    return Room(node.cpus, 0.0, node.gpus, (PARTS,) * len(node.gpus), memory, custom)


def nodes_of(spec: RunSpec) -> tuple[NodeSpec, ...]:
    """The machines of a run; one that is called "local" if none is named."""
    return spec.nodes or (NodeSpec(cpus=float(max(1, spec.shared_workers))),)


def parts_on(need: Need, room: Room, device: int) -> int:
    """Parts of one device that a worker takes; more than there are if it can never fit."""
    if not need.gpu_memory_bytes:
        return PARTS if need.whole else need.parts
    total = room.device_bytes[device]
    return ceil(need.gpu_memory_bytes * PARTS / total) if total > 0 else PARTS + 1


def devices_for(need: Need, room: Room) -> tuple[int, ...] | None:
    """The devices of a node that a worker should get: () if it needs none, None if it does not fit."""
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
    """How good a place is, the smallest is best: no device opened for a share, few devices left, CPUs free."""
    load = (room.busy_cpus + need.cpus) / room.cpus if room.cpus > 0 else float("inf")
    if need.whole:
        return (0.0, sum(1 for parts in room.free_parts if parts == PARTS), load)
    if need.on_device:
        index = devices[0]
        free = room.free_parts[index]
        left = free - parts_on(need, room, index)
        return (float(free == PARTS), left, load)
    return (load, 0.0, 0.0)


def taken(room: Room, need: Need, place: Place, sign: int = 1) -> Room:
    """The room after a worker was placed there; `sign` -1: after it has gone."""
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
    """How hard a worker is to place, larger is harder: whole devices, then shares, then memory."""
    custom = sum(amount for _, amount in need.custom)
    return (need.whole, need.gpu_memory_bytes, need.parts, custom, need.memory_bytes)
