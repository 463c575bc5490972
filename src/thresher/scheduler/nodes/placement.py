# SPDX-License-Identifier: Apache-2.0
"""Check that all workers of a run can be placed together, and explain why not."""

from __future__ import annotations

from thresher.core.arguments.sizes import counted
from thresher.scheduler.model import NodeSpec, RunSpec
from thresher.scheduler.nodes.capacity import PARTS, Need, Nodes, need_of, nodes_of, size_of


def pack(empty: Nodes, wanted: list[tuple[Need, int]]) -> Nodes | None:
    """Place all these workers on empty nodes, largest first; return the nodes, or None if they do not fit together."""
    filled = empty.copy()
    for need, count in sorted(wanted, key=lambda item: size_of(item[0]), reverse=True):
        for _ in range(count):
            if not filled.place(need):
                return None
    return filled


def placement_errors(spec: RunSpec) -> list[str]:
    """Return one message for each op whose workers can never be placed on the nodes of the run."""
    nodes = nodes_of(spec)
    empty = Nodes(nodes)
    wanted = []
    messages = []
    for op in spec.ops:
        need = need_of(op)
        if not op.has_own_workers or not need.hard:
            continue
        lacking = missing_resources(need, nodes)
        if not lacking and empty.find(need) is None:
            lacking = [f"{describe(need)} on one node, and no node has all of it"]
        messages += [f"{op.name} needs {lack}" for lack in lacking]
        wanted.append((op.name, need, op.dedicated_workers or 1))
    if messages:
        return messages
    together: list[tuple[Need, int]] = []
    for name, need, count in sorted(wanted, key=lambda item: size_of(item[1]), reverse=True):
        together.append((need, count))
        if pack(empty, together) is None:
            room = next(n for n in range(count - 1, -1, -1) if pack(empty, [*together[:-1], (need, n)]) is not None)
            messages.append(
                f"{name} needs room for {counted(count, 'worker')} with {describe(need)}, "
                f"beside the other stages there is room for {room}"
            )
            together.pop()
    return messages


def missing_resources(need: Need, nodes: tuple[NodeSpec, ...]) -> list[str]:
    """Return each resource that no node has enough of, with the largest amount available."""
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
    """Return a need as text."""
    words = []
    if need.whole or need.parts:
        words.append(f"gpus={need.whole or need.parts / PARTS:g}")
    if need.gpu_memory_bytes:
        words.append(f"gpu_memory_gb={need.gpu_memory_bytes / 1e9:g}")
    if need.memory_bytes:
        words.append(f"memory_gb={need.memory_bytes / 1e9:g}")
    return ", ".join(words + [f"{name}={amount:g}" for name, amount in need.custom])


def gigabytes(nbytes: int) -> str:
    """Return bytes as text, such as `80 GB`."""
    return f"{nbytes / 1e9:g} GB"
