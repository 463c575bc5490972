# SPDX-License-Identifier: Apache-2.0
"""Handle nodes that join and nodes that are lost."""

from __future__ import annotations

from thresher.scheduler.events import NodeJoined, NodeLost
from thresher.scheduler.model import IllegalEvent, NodeSpec, RunSpec
from thresher.scheduler.nodes.fleet import quotas
from thresher.scheduler.state import State
from thresher.scheduler.work.recovery import worker_lost
from thresher.scheduler.workers.pools import refill, refill_wanting


def on_node_joined(state: State, event: NodeJoined) -> None:
    """Add a node; start its shared workers, and those that had no room elsewhere."""
    fleet = state.fleet
    node = event.spec or fleet.known.get(event.node)
    if event.node in fleet.empty.room or (node is None and not state.spec.nodes):
        return  # it was there from the beginning, or the run names no nodes
    if node is None or node.node != event.node:
        raise IllegalEvent(f"node {event.node!r} joined; it is not in RunSpec.nodes, so the event must carry its spec")
    fleet.known = {**fleet.known, node.node: node}
    fleet.is_wide = True
    fleet.nodes.join(node)
    fleet.empty.join(node)
    fleet.quota[node.node] = shared_share(state.spec, node)
    fleet.shared_on[node.node] = 0
    fleet.balanced_for = None
    fleet.next_balance_s = fleet.now_s
    set_shared_target(state)
    refill_wanting(state)
    for pool in state.pools:
        if pool.dedicated is None:
            refill(state, pool)


def shared_share(spec: RunSpec, node: NodeSpec) -> int:
    """Return the shared workers of a node that joins: as many per CPU as at the start of the run."""
    if node in spec.nodes:
        return quotas(spec.shared_workers, spec.nodes)[node.node]
    cpus = sum(other.cpus for other in spec.nodes)
    return int(node.cpus * spec.shared_workers / cpus + 0.5) if cpus > 0 else 0


def on_node_lost(state: State, event: NodeLost) -> None:
    """Remove a node; start its dedicated workers elsewhere if there is room. Shared ones wait for it to come back."""
    fleet = state.fleet
    if event.node in fleet.empty.room and state.spec.nodes:
        fleet.nodes.lose(event.node)
        fleet.empty.lose(event.node)
        del fleet.quota[event.node]
        del fleet.shared_on[event.node]
        fleet.balanced_for = None
        fleet.next_balance_s = fleet.now_s
        set_shared_target(state)
    for worker in list(fleet.on_node.get(event.node, {}).values()):
        worker_lost(state, worker, event.reason or f"node {event.node} was lost", with_node=True)


def set_shared_target(state: State) -> None:
    """Set the number of shared workers to the sum over the nodes that are up, at least one."""
    for pool in state.pools:
        if pool.dedicated is None:
            pool.target = max(1, sum(state.fleet.quota.values()))
