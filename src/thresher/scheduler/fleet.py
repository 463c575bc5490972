# SPDX-License-Identifier: Apache-2.0
"""The machines and the ages of the workers on them: the part of the state that changes rarely."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from thresher.scheduler.capacity import nodes_of
from thresher.scheduler.model import NodeSpec, RunSpec
from thresher.scheduler.nodes import Nodes

if TYPE_CHECKING:
    from thresher.scheduler.pool import Pool
    from thresher.scheduler.state import Worker


class Fleet:
    """Nodes, what they have left, and which workers come and go."""

    __slots__ = (
        "balanced_for",
        "by_age",
        "critical",
        "empty",
        "guessing",
        "is_wide",
        "known",
        "leaving",
        "next_balance_s",
        "next_restart_s",
        "nodes",
        "now_s",
        "on_node",
        "parked_leaving",
        "quota",
        "recycled",
        "shared_on",
        "wanting",
    )

    def __init__(self, spec: RunSpec) -> None:
        specs = nodes_of(spec)
        self.known: dict[str, NodeSpec] = {node.node: node for node in specs}
        self.is_wide = len(specs) > 1  # payloads may lie elsewhere than their readers
        self.nodes = Nodes(specs)  # what is left
        self.empty = Nodes(specs)  # what there would be without workers
        self.quota = quotas(spec.shared_workers, specs)  # node -> shared workers it should have; only nodes that are up
        self.shared_on: dict[str, int] = dict.fromkeys(self.quota, 0)  # node -> shared workers it has
        self.on_node: dict[str, dict[int, Worker]] = {}  # node -> its workers
        self.now_s = 0.0  # time of the last Tick
        self.by_age: deque[Worker] = deque()  # oldest first; workers that are gone stay until they are met
        self.leaving: list[Worker] = []  # workers that get no new tasks and may hold nothing any more
        self.parked_leaving: dict[int, Worker] = {}  # workers that get no new tasks, with a parked generator
        self.wanting: dict[Pool, None] = {}  # pools that have fewer workers than they should
        self.critical = False  # memory is so short that idle workers were stopped
        self.recycled: Worker | None = None  # the worker that was last told to go because memory is short
        self.next_restart_s = 0.0  # when the next worker may be recycled for its age
        self.next_balance_s = 0.0  # when the numbers of workers are looked at next
        self.guessing = True  # the numbers of workers do not rest on measurements yet
        self.balanced_for: tuple[object, dict[int, int]] | None = None  # work that was last balanced, and the numbers


def quotas(shared_workers: int, nodes: tuple[NodeSpec, ...]) -> dict[str, int]:
    """Shared workers of each node, in proportion to its CPUs; together exactly `shared_workers`."""
    total = sum(node.cpus for node in nodes)
    exact = {node.node: shared_workers * (node.cpus / total if total > 0 else 1 / len(nodes)) for node in nodes}
    found = {name: int(share + 1e-9) for name, share in exact.items()}
    left = shared_workers - sum(found.values())
    for name in sorted(found, key=lambda n: found[n] - exact[n])[:left]:
        found[name] += 1
    return found
