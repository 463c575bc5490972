# SPDX-License-Identifier: Apache-2.0
"""Fixed pools of Ray actors, one stage after the other.

All units pass one op before the next op begins: a pool as large as the cluster allows is made for it, and each unit
goes to the first worker that is free (as `map_unordered` of Ray's own actor pool does). Then the pool is ended, unless
the next op can do with the same workers. What lies between two ops stays in Ray's object store. A worker that dies
takes the units in its hands with it and is replaced.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from thresher.backends.ray_engine import RayEngineExecutor, quiet_ray, remote_options, set_up_nodes, workers_on
from thresher.backends.ray_session import RayNodeFacts
from thresher.backends.unit_call import UnitWork, UnitWorker, metadata_here, op_chain, units_per_call
from thresher.core.options import check_count, merge_options
from thresher.core.plan import Op
from thresher.errors import RunFailedError
from thresher.runtime.orders import WorkerSetup

WAIT_S = 0.5
"""How long the pool waits at a time before it looks whether it shall stop."""
END_S = 10.0
"""How long the workers of a pool may take to tear their stages down."""
LOSSES_PER_WORKER = 3
"""A pool that lost more than this many times its size gives up."""


class PoolWorker:
    """What an actor of a pool is."""

    def __init__(self, setup: bytes, rank: int, num_workers: int) -> None:
        import ray

        context = ray.get_runtime_context()
        devices = [int(device) for device in ray.get_gpu_ids() if str(device).isdigit()]
        self._worker = UnitWorker(setup, metadata_here(context.get_node_id(), devices, rank, num_workers))

    def run(self, op: int, *works: UnitWork) -> tuple[Any, ...]:
        """What the driver wants to know of the units, then each of them for the next op, where there is one."""
        made = self._worker.run(op, works)
        return [work.without_tasks() for work in made], *made

    def end(self) -> None:
        """Tear the stages down."""
        self._worker.end()


class ActorPoolEngine:
    """Runs units op by op."""

    name = "the actor pool"

    def __init__(self, nodes: Callable[[], list[RayNodeFacts]], cpus: Callable[[RayNodeFacts], float]) -> None:
        """`nodes`: those that may be used now; `cpus`: how many cores of one."""
        self._nodes = nodes
        self._cpus = cpus
        self._stopping = False

    def stop(self) -> None:
        """End soon."""
        self._stopping = True

    def run(self, setup: WorkerSetup, works: list[UnitWork], answer: Callable[[UnitWork], None]) -> None:
        """Op after op, all units in each. A pool goes on with the next op where that needs nothing of its own."""
        with quiet_ray():
            self._run(setup, works, answer)

    def _run(self, setup: WorkerSetup, works: list[UnitWork], answer: Callable[[UnitWork], None]) -> None:
        data = set_up_nodes(setup, self._nodes())
        left: list[Any] = list(works)
        pool: ActorPool | None = None
        try:
            for op in op_chain(setup.plan):
                if self._stopping or not left:
                    return
                if pool is None or not pool.can_run(op):
                    if pool is not None:
                        pool.close()
                    pool = self._pool(data, op, len(left))
                left = self._pass(pool, op, left, (units_per_call(setup.plan, op), answer))
        finally:
            if pool is not None:
                pool.close()

    def _pass(self, pool: ActorPool, op: Op, left: list[Any], how: tuple[int, Callable[[UnitWork], None]]) -> list[Any]:
        """All units through one op, so many in a call; references to what goes on, in the order of the input."""
        size, answer = how
        groups = [range(start, min(start + size, len(left))) for start in range(0, len(left), size)]
        behind: dict[int, Any] = {}
        for group, heads, bodies in pool.map_unordered(op, groups, left, lambda: self._stopping):
            for place, head, body in zip(group, heads, bodies, strict=True):
                left[place] = None  # what lies in the object store is free
                if op.next is None or head.failure:
                    answer(head)
                else:
                    behind[place] = body
        return [behind[place] for place in sorted(behind)]

    def _pool(self, setup: bytes, op: Op, units: int) -> ActorPool:
        places = pool_places(op, self._nodes(), self._cpus, units)
        if not places:
            raise RunFailedError(f"no node of the Ray cluster holds a worker with {op.resources}")
        return ActorPool(setup, op, places)


def pool_places(
    op: Op, nodes: Sequence[RayNodeFacts], cpus: Callable[[RayNodeFacts], float], most: int
) -> list[RayNodeFacts]:
    """A node for each worker of a pool, one on each node in turn; no more than there are units."""
    rooms = [(node, workers_on(node, op.resources, cpus(node))) for node in nodes]
    places: list[RayNodeFacts] = []
    for level in range(max((room for _, room in rooms), default=0)):
        places.extend(node for node, room in rooms if room > level)
    return places[: min(most, op.workers or most)]


class ActorPool:
    """Workers of one op, or of several in turn that need nothing of their own."""

    def __init__(self, setup: bytes, op: Op, places: Sequence[RayNodeFacts]) -> None:
        """`places`: a node for each worker."""
        self._setup = setup
        self._made_for = op
        self._places = places
        self._losses = 0
        self._running: dict[Any, tuple[Sequence[int], int, list[Any]]] = {}
        """Reference to the first answer of a call: places of its units, rank of the worker, the other references."""
        self._hands: dict[int, int] = {}
        """By rank, how many calls a worker was given that have not ended."""
        self._heard: set[int] = set()
        """Ranks of the workers that have answered."""
        self._actors = {rank: self._start(rank) for rank in range(len(places))}

    def can_run(self, op: Op) -> bool:
        """Whether the same workers may run another op."""
        shared = not op.dedicated and not self._made_for.dedicated
        return op is self._made_for or (shared and op.resources == self._made_for.resources)

    def _start(self, rank: int) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = self._places[rank]
        options = remote_options(self._made_for.resources, node.cpus)
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node.node_id, soft=True)
        self._hands[rank] = 0
        worker = ray.remote(max_restarts=0, max_task_retries=0)(PoolWorker).options(**options)
        return worker.remote(self._setup, rank, len(self._places))

    def map_unordered(
        self, op: Op, groups: Sequence[Sequence[int]], inputs: Sequence[Any], stopping: Callable[[], bool]
    ) -> Iterator[tuple[Sequence[int], list[UnitWork], list[Any]]]:
        """Give every group of units to the next worker that is free; each with its answers, in the order of their end.

        Of units whose worker died there is none.
        """
        waiting = list(groups)[::-1]
        while (waiting or self._running) and not stopping():
            self._hand_out(op, inputs, waiting)
            for reference in self._ended():
                group, rank, bodies = self._running.pop(reference)
                self._hands[rank] -= 1
                heads = self._heads(reference, rank)
                if heads is not None:
                    yield group, heads, bodies

    def _hand_out(self, op: Op, inputs: Sequence[Any], waiting: list[Sequence[int]]) -> None:
        """A worker is given its next call early, so that what that needs is there; a unit to be read needs nothing."""
        for level in range(1 if op.reads else 2):
            for rank, held in list(self._hands.items()):
                if held == level and waiting:
                    group = waiting.pop()
                    run = self._actors[rank].run.options(num_returns=1 + len(group))
                    made = run.remote(op.index, *(inputs[place] for place in group))
                    self._running[made[0]] = (group, rank, made[1:])
                    self._hands[rank] += 1

    def _ended(self) -> list[Any]:
        import ray

        ready, _ = ray.wait(list(self._running), num_returns=1, timeout=WAIT_S)
        return list(ready)

    def _heads(self, reference: Any, rank: int) -> list[UnitWork] | None:
        import ray

        try:
            heads: list[UnitWork] = ray.get(reference)
            self._heard.add(rank)
        except ray.exceptions.RayActorError as error:
            self._replace(rank, error)
            return None
        except ray.exceptions.RayError:  # the input was lost with its node, or cannot be read
            return None
        return heads

    def _replace(self, rank: int, error: Exception) -> None:
        """A worker is gone: the next one takes its place."""
        import ray

        if self._hands[rank]:
            return  # the end of its other call is about to be told
        self._losses += 1
        if self._losses > LOSSES_PER_WORKER * len(self._places):
            raise RunFailedError(f"too many workers were lost, the last one because: {error}")
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(self._actors[rank])
        self._heard.discard(rank)
        self._actors[rank] = self._start(rank)

    def close(self) -> None:
        """Tear the stages down and end the workers."""
        import ray

        ends = [self._actors[rank].end.remote() for rank in self._heard]  # others may not even have started
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=END_S if not self._running else WAIT_S)
        for actor in self._actors.values():
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(actor)


class RayActorPoolExecutor(RayEngineExecutor):
    """Runs a pipeline in fixed pools of Ray actors, stage by stage."""

    name = "actor-pool"
    options = (
        "address",
        "cpu_allocation_percentage",
        "fusion",
        "ignore_failures",
        "ignore_head_node",
        "logging_interval",
        "reserved_cpus",
        "workers",
    )
    cannot: ClassVar[Mapping[str, str]] = {
        **RayEngineExecutor.cannot,
        "execution_mode": "a stage always ends before the next one begins",
        "autoscale_interval_s": "pools have a fixed size",
        "max_workers_per_stage": "pools are as large as the cluster allows; give the stage num_workers",
        "worker_max_lifetime_m": "workers live as long as their stage",
        "worker_restart_interval_m": "workers live as long as their stage",
    }

    def __init__(self, config: dict[str, Any] | None = None, **options: Any) -> None:
        """Options, as keyword arguments or in `config={…}`.

        `address`: a Ray cluster that runs, such as `auto` (default: a private one, ended with the run).
        `workers`: CPUs to use (default: those of the cluster times `cpu_allocation_percentage`, 0.95).
        `reserved_cpus`: CPUs of each node that are left to others. `ignore_head_node`: none of the head node is used.
        `ignore_failures`: no number of failed records ends the run. `fusion`, `logging_interval`: as everywhere.
        """
        given = merge_options("RayActorPoolExecutor", options, config, self.options, self.cannot)
        super().__init__(given)
        self._reserved = check_count("reserved_cpus", given["reserved_cpus"]) if given.get("reserved_cpus") else 0

    def make_engine(self) -> ActorPoolEngine:
        """Pools on the nodes of the cluster."""
        return ActorPoolEngine(self.nodes, self._cpus_of)

    def _cpus_of(self, node: RayNodeFacts) -> float:
        cpus = float(int(node.cpus * self.cpu_share + 0.5)) - self._reserved
        if self.workers is not None:
            total = sum(other.cpus for other in self.nodes())
            cpus = min(cpus, self.workers * node.cpus / max(1.0, total))
        return max(1.0, cpus)
