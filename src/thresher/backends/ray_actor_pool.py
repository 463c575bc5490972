# SPDX-License-Identifier: Apache-2.0
"""Executor with fixed pools of Ray actors, one op after the other.

All units pass one op before the next op begins. Each op gets a pool as large as the cluster allows, and each unit goes
to the first free worker (like `map_unordered` of Ray's own actor pool). Ray starts a worker when it has the CPUs for
it; if another job holds some of them, the workers that did start process everything. The pool is ended after its op,
unless the next op can use the same workers. Data between two ops stays in Ray's object store. A worker that crashes is
replaced, and the units it was processing are left to the fallback cluster.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from thresher.backends.engines.ray_engine import RayEngineExecutor, quiet_ray, remote_options, set_up_nodes, workers_on
from thresher.backends.engines.unit_call import UnitWork, UnitWorker, metadata_here, op_chain, units_per_call
from thresher.backends.ray_nodes.session import RayNodeFacts
from thresher.core.arguments.options import check_count, merge_options
from thresher.core.planning.plan import Op
from thresher.errors import RunFailedError
from thresher.runtime.orders import WorkerSetup

WAIT_S = 0.5
"""Interval at which the pool checks whether it was stopped."""
END_S = 10.0
"""Time limit for the workers of a pool to tear their stages down."""
UP_S = 300.0
"""Time limit for a pool without any running worker."""
LOSSES_PER_WORKER = 3
"""A pool fails after losing more than this many workers per place."""


class PoolWorker:
    """Actor of a pool."""

    def __init__(self, setup: bytes, rank: int, num_workers: int) -> None:
        import ray

        context = ray.get_runtime_context()
        devices = [int(device) for device in ray.get_gpu_ids() if str(device).isdigit()]
        self._worker = UnitWorker(setup, metadata_here(context.get_node_id(), devices, rank, num_workers))

    def is_up(self) -> bool:
        """Return True as soon as Ray has started this worker."""
        return True

    def run(self, op: int, *works: UnitWork) -> tuple[Any, ...]:
        """Run an op on units. Return their results without payloads for the driver, then each full result for the next
        op."""
        made = self._worker.run(op, works)
        return [work.without_tasks() for work in made], *made

    def end(self) -> None:
        """Tear the stages down."""
        self._worker.end()


class ActorPoolEngine:
    """Runs units op by op."""

    name = "the actor pool"

    def __init__(self, nodes: Callable[[], list[RayNodeFacts]], cpus: Callable[[RayNodeFacts], float]) -> None:
        """`nodes`: returns the nodes that may be used now; `cpus`: returns the cores of a node that may be used."""
        self._nodes = nodes
        self._cpus = cpus
        self._stopping = False

    def stop(self) -> None:
        """Request an early end of `run`."""
        self._stopping = True

    def run(self, setup: WorkerSetup, works: list[UnitWork], answer: Callable[[UnitWork], None]) -> None:
        """Run all units through each op in turn. A pool is kept for the next op if that has no dedicated workers."""
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
        """Run all units through one op. Return references to the results for the next op, in input order."""
        size, answer = how
        groups = [range(start, min(start + size, len(left))) for start in range(0, len(left), size)]
        behind: dict[int, Any] = {}
        for group, heads, bodies in pool.map_unordered(op, groups, left, lambda: self._stopping):
            for place, head, body in zip(group, heads, bodies, strict=True):
                left[place] = None  # release the input in the object store
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
    """Return a node for each worker of a pool, round-robin over the nodes; at most `most`."""
    rooms = [(node, workers_on(node, op.resources, cpus(node))) for node in nodes]
    places: list[RayNodeFacts] = []
    for level in range(max((room for _, room in rooms), default=0)):
        places.extend(node for node, room in rooms if room > level)
    return places[: min(most, op.workers or most)]


class ActorPool:
    """Workers of one op, or of several consecutive ops that share workers."""

    def __init__(self, setup: bytes, op: Op, places: Sequence[RayNodeFacts]) -> None:
        """`places`: the node of each worker."""
        self._setup = setup
        self._made_for = op
        self._places = places
        self._losses = 0
        self._running: dict[Any, tuple[Sequence[int], int, list[Any]]] = {}
        """Calls in progress, by reference to their first result: units, rank of the worker, the other references."""
        self._unfinished: dict[int, int] = {}
        """Number of unfinished calls of each worker, by rank."""
        self._starting: dict[Any, int] = {}
        """Workers that Ray has not started yet: reference to the result of `is_up`, and rank."""
        self._up: set[int] = set()
        """Ranks of the workers that have started; only these get calls."""
        self._empty_since = time.monotonic()
        """Time since which the pool has had no worker."""
        self._with_result: set[int] = set()
        """Ranks of the workers that have returned a result."""
        self._actors = {rank: self._start(rank) for rank in range(len(places))}

    def can_run(self, op: Op) -> bool:
        """Return True if the same workers may run another op."""
        shared = not op.dedicated and not self._made_for.dedicated
        return op is self._made_for or (shared and op.resources == self._made_for.resources)

    def _start(self, rank: int) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = self._places[rank]
        options = remote_options(self._made_for.resources, node.cpus)
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node.node_id, soft=True)
        self._unfinished[rank] = 0
        worker = ray.remote(max_restarts=0, max_task_retries=0)(PoolWorker).options(**options)
        actor: Any = worker.remote(self._setup, rank, len(self._places))
        self._starting[actor.is_up.remote()] = rank
        return actor

    def map_unordered(
        self, op: Op, groups: Sequence[Sequence[int]], inputs: Sequence[Any], stopping: Callable[[], bool]
    ) -> Iterator[tuple[Sequence[int], list[UnitWork], list[Any]]]:
        """Run each group of units on the next free worker; yield each group with its results as it completes.

        Groups whose worker crashed yield nothing.
        """
        waiting = list(groups)[::-1]
        while (waiting or self._running) and not stopping():
            self._submit(op, inputs, waiting)
            for reference in self._wait():
                group, rank, bodies = self._running.pop(reference)
                self._unfinished[rank] -= 1
                heads = self._results_of(reference, rank)
                if heads is not None:
                    yield group, heads, bodies

    def _submit(self, op: Op, inputs: Sequence[Any], waiting: list[Sequence[int]]) -> None:
        """Queue a second call for each worker, so that its input is fetched early; an op that reads has no input to
        fetch."""
        for level in range(1 if op.reads else 2):
            for rank, held in list(self._unfinished.items()):
                if held == level and waiting and rank in self._up:
                    group = waiting.pop()
                    run = self._actors[rank].run.options(num_returns=1 + len(group))
                    made = run.remote(op.index, *(inputs[place] for place in group))
                    self._running[made[0]] = (group, rank, made[1:])
                    self._unfinished[rank] += 1

    def _wait(self) -> list[Any]:
        import ray

        ready, _ = ray.wait([*self._running, *self._starting], num_returns=1, timeout=WAIT_S)
        for reference in ready:
            if reference in self._starting:
                self._register_ready(reference)
        if not self._up and time.monotonic() - self._empty_since > UP_S:
            raise RunFailedError(
                f"Ray started no worker with {self._made_for.resources} within {UP_S:.0f} s; another job may hold what "
                "it needs. See `ray status`"
            )
        return [reference for reference in ready if reference in self._running]

    def _register_ready(self, reference: Any) -> None:
        """Register a worker that has started, or replace one that failed to start."""
        import ray

        rank = self._starting.pop(reference)
        try:
            ray.get(reference)
            self._up.add(rank)
        except ray.exceptions.RayError as error:
            self._replace(rank, error)

    def _results_of(self, reference: Any, rank: int) -> list[UnitWork] | None:
        import ray

        try:
            heads: list[UnitWork] = ray.get(reference)
            self._with_result.add(rank)
        except ray.exceptions.RayActorError as error:
            self._replace(rank, error)
            return None
        except ray.exceptions.RayError:  # the input was lost with its node, or cannot be read
            return None
        return heads

    def _replace(self, rank: int, error: Exception) -> None:
        """Start a new worker in place of one that has crashed."""
        import ray

        if self._unfinished[rank]:
            return  # its other call will fail next and trigger the replacement
        self._losses += 1
        if self._losses > LOSSES_PER_WORKER * len(self._places):
            raise RunFailedError(f"too many workers were lost, the last one with: {error}")
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(self._actors[rank])
        self._with_result.discard(rank)
        if rank in self._up:
            self._up.remove(rank)
            self._empty_since = time.monotonic()
        self._actors[rank] = self._start(rank)

    def close(self) -> None:
        """Tear the stages down and end the workers."""
        import ray

        ends = [self._actors[rank].end.remote() for rank in self._with_result]  # others may not have started
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

        `address`: a running Ray cluster, such as `auto` (default: a private one that ends with the run).
        `workers`: CPUs to use (default: those of the cluster times `cpu_allocation_percentage`, 0.95).
        `reserved_cpus`: CPUs of each node left to other programs. `ignore_head_node`: run no workers on the head node.
        `ignore_failures`: never stop because of failed records. `fusion`, `logging_interval`: as for `LocalExecutor`.
        """
        given = merge_options("RayActorPoolExecutor", options, config, self.options, self.cannot)
        super().__init__(given)
        self._reserved = check_count("reserved_cpus", given["reserved_cpus"]) if given.get("reserved_cpus") else 0

    def make_engine(self) -> ActorPoolEngine:
        """Return an engine with pools on the nodes of the cluster."""
        return ActorPoolEngine(self.nodes, self._cpus_of)

    def _cpus_of(self, node: RayNodeFacts) -> float:
        cpus = float(int(node.cpus * self.cpu_share + 0.5)) - self._reserved
        if self.workers is not None:
            total = sum(other.cpus for other in self.nodes())
            cpus = min(cpus, self.workers * node.cpus / max(1.0, total))
        return max(1.0, cpus)
