# SPDX-License-Identifier: Apache-2.0
"""What the workers of a simulated cluster take from its nodes: counted apart from the scheduler's own books."""

from __future__ import annotations

from thresher.scheduler.actions import StartWorker
from thresher.scheduler.model import LOCAL_NODE, RunSpec
from thresher.simulate.behaviour import RuleBroken

ROUNDING = 1e-4
Key = tuple[str, object]  # node, and a device's index, "memory" or the name of a resource


class Places:
    """Shares of devices, host memory and named resources in use. More than there is raises."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.nodes = {node.node: node for node in spec.nodes}
        self.used: dict[Key, float] = {}
        self.down: set[str] = set()  # nodes that are lost

    def enter(self, action: StartWorker) -> None:
        """A worker is started: everything it takes must be there."""
        if action.node not in self.nodes and (self.nodes or action.node != LOCAL_NODE):
            raise RuleBroken(f"worker {action.worker} is started on {action.node!r}, which is no node")
        for key, (amount, total) in self._takes(action.op, action.node, action.devices).items():
            self.used[key] = self.used.get(key, 0.0) + amount
            if self.used[key] > total * (1 + ROUNDING):
                who = f"worker {action.worker} of op {action.op}"
                raise RuleBroken(f"{key} has {total}, {who} would make it {self.used[key]}")

    def leave(self, op: int | None, node: str, devices: tuple[int, ...]) -> None:
        """A worker is gone."""
        for key, (amount, _) in self._takes(op, node, devices).items():
            self.used[key] -= amount

    def _takes(self, op: int | None, node: str, devices: tuple[int, ...]) -> dict[Key, tuple[float, float]]:
        """(node, resource) -> (what a worker takes, what there is)."""
        if op is None:
            if devices:
                raise RuleBroken(f"a shared worker has devices {devices}")
            return {}
        spec = self.spec.ops[op]
        wanted = max(1, int(spec.gpus)) if spec.gpus or spec.gpu_memory_bytes else 0
        if len(set(devices)) != wanted:
            raise RuleBroken(f"a worker of op {op} has devices {devices}; it needs {wanted}")
        takes: dict[Key, tuple[float, float]] = {}
        for device in devices:
            if spec.gpu_memory_bytes:
                share = spec.gpu_memory_bytes / self.nodes[node].gpus[device]
            else:
                share = min(spec.gpus, 1.0)
            takes[node, device] = (share, 1.0)
        if node in self.nodes and self.nodes[node].memory_bytes:
            takes[node, "memory"] = (spec.memory_bytes, self.nodes[node].memory_bytes)
        for name, amount in spec.custom.items():
            takes[node, name] = (amount, self.nodes[node].custom.get(name, 0.0))
        return takes
