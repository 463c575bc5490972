# SPDX-License-Identifier: Apache-2.0
"""Whether all workers of a run have a place together; if they never will, the reason for people."""

from __future__ import annotations

from thresher.scheduler.capacity import PARTS, Need, need_of, nodes_of, size_of
from thresher.scheduler.model import NodeSpec, RunSpec
from thresher.scheduler.nodes import Nodes


def packed(empty: Nodes, wanted: list[tuple[Need, int]]) -> Nodes | None:
    """Empty nodes with all these workers in them, the largest placed first; None if they do not fit together."""
    filled = empty.copy()
    for need, count in sorted(wanted, key=lambda item: size_of(item[0]), reverse=True):
        for _ in range(count):
            if not filled.place(need):
                return None
    return filled


def fits_ever(spec: RunSpec) -> list[str]:
    """Why ops of a run can never be placed on its nodes, one message for each; empty if all is well."""
    nodes = nodes_of(spec)
    empty = Nodes(nodes)
    wanted = []
    messages = []
    for op in spec.ops:
        need = need_of(op)
        if not op.has_own_workers or not need.hard:
            continue
        lacking = lacks(need, nodes)
        if not lacking and empty.find(need) is None:
            lacking = [f"{describe(need)} on one node, and no node has all of it"]
        messages += [f"{op.name} needs {lack}" for lack in lacking]
        wanted.append((op.name, need, op.dedicated_workers or 1))
    if messages:
        return messages
    together: list[tuple[Need, int]] = []
    for name, need, count in sorted(wanted, key=lambda item: size_of(item[1]), reverse=True):
        together.append((need, count))
        if packed(empty, together) is None:
            room = next(n for n in range(count - 1, -1, -1) if packed(empty, [*together[:-1], (need, n)]) is not None)
            messages.append(
                f"{name} needs room for {count} worker{'s' * (count > 1)} with {describe(need)}, "
                f"beside the other stages there is room for {room}"
            )
            together.pop()
    return messages


def lacks(need: Need, nodes: tuple[NodeSpec, ...]) -> list[str]:
    """Each single thing that no node has enough of, with what there is."""
    found = []
    most = max(len(node.gpus) for node in nodes)
    if need.whole > most:
        found.append(f"gpus={need.whole}, the largest node has {most}")
    if need.parts and not most:
        found.append(f"gpus={need.parts / PARTS:g}, the largest node has 0")
    if need.gpu_memory_bytes:
        largest = max((memory for node in nodes for memory in node.gpus), default=0)
        if need.gpu_memory_bytes > largest:
            what = f"the largest device has {gigabytes(largest)}" if most else "no node has a device"
            found.append(f"gpu_memory_gb={need.gpu_memory_bytes / 1e9:g}, {what}")
    largest = max(node.memory_bytes for node in nodes)
    if need.memory_bytes > largest and all(node.memory_bytes for node in nodes):
        found.append(f"memory_gb={need.memory_bytes / 1e9:g}, the largest node has {gigabytes(largest)}")
    for name, amount in need.custom:
        most_custom = max(node.custom.get(name, 0.0) for node in nodes)
        if amount > most_custom:
            found.append(f"{name}={amount:g}, the largest node has {most_custom:g}")
    return found


def describe(need: Need) -> str:
    """A need in words."""
    words = []
    if need.whole or need.parts:
        words.append(f"gpus={need.whole or need.parts / PARTS:g}")
    if need.gpu_memory_bytes:
        words.append(f"gpu_memory_gb={need.gpu_memory_bytes / 1e9:g}")
    if need.memory_bytes:
        words.append(f"memory_gb={need.memory_bytes / 1e9:g}")
    return ", ".join(words + [f"{name}={amount:g}" for name, amount in need.custom])


def gigabytes(nbytes: int) -> str:
    """Bytes as people write them."""
    return f"{nbytes / 1e9:g} GB"
