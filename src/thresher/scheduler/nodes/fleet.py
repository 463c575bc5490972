# SPDX-License-Identifier: Apache-2.0
"""State of the nodes and of worker turnover: the part of the state that changes rarely."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from thresher.scheduler.model import NodeSpec, RunSpec
from thresher.scheduler.nodes.capacity import Nodes, nodes_of

if TYPE_CHECKING:
    from thresher.scheduler.state import Worker
    from thresher.scheduler.workers.pools import Pool


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
        self.on_node: dict[str, dict[int, Worker]] = {}  # node -> its workers
        self.now_s = 0.0  # time of the last Tick
        self.by_age: deque[Worker] = deque()  # oldest first; may contain workers that are gone
        self.draining: list[Worker] = []  # draining workers that may be empty now
        self.parked_draining: dict[int, Worker] = {}  # draining workers with a parked generator
        self.wanting: dict[Pool, None] = {}  # pools that have fewer workers than they should
        self.critical = False  # memory is so short that idle workers were stopped
        self.recycled: Worker | None = None  # the worker that was last drained because memory is short
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
