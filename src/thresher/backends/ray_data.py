# SPDX-License-Identifier: Apache-2.0
"""The Ray Data backend: a dataset with one row per unit, and one `map_batches` per fused op.

An op whose stages define `setup`, or that has dedicated workers, runs in a pool of actors; any other runs in tasks. A
row is a whole unit, so Ray Data may split and bundle its blocks freely.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from thresher.backends.engines.ray_engine import (
    RayEngineExecutor,
    quiet_ray,
    remote_options,
    set_up_nodes,
    soft_cpus,
    workers_on,
)
from thresher.backends.engines.unit_call import (
    UnitWork,
    UnitWorker,
    dump_work,
    load_work,
    metadata_here,
    op_chain,
    units_per_call,
    worker_for,
)
from thresher.backends.ray_nodes.session import RayNodeFacts
from thresher.core.arguments.options import merge_options
from thresher.core.planning.plan import Op, Plan
from thresher.core.stage import overrides
from thresher.runtime.orders import WorkerSetup

WORK = "work"
"""Name of the dataset's only column."""
ATTEMPTS = 2
"""Number of attempts that Ray makes for a call whose process crashed before it skips the unit."""


def run_in_task(table: Any, setup: bytes, key: str, op: int) -> Any:
    """Run an op on units, in a process that may have run any other op before."""
    return _run(worker_for(key, setup, _node()), op, table)


class RunInActor:
    """Runs an op on units, in a process that does nothing else."""

    def __init__(self, setup: bytes, op: int) -> None:
        import ray

        devices = [int(device) for device in ray.get_gpu_ids() if str(device).isdigit()]
        self._op = op
        self._worker = UnitWorker(setup, metadata_here(_node(), devices))
        self._worker.prepare(op)

    def __call__(self, table: Any) -> Any:
        """Run one batch of units."""
        return _run(self._worker, self._op, table)

    def __del__(self) -> None:
        if hasattr(self, "_worker"):  # not where the constructor failed
            self._worker.end()


def _run(worker: UnitWorker, op: int, table: Any) -> Any:
    works = [load_work(value.as_buffer()) for value in table.column(WORK)]
    return works_table(worker.run(op, works))


def works_table(works: Sequence[UnitWork]) -> Any:
    """Return units as rows of a table."""
    import pyarrow as pa

    return pa.table({WORK: pa.array([dump_work(work) for work in works], pa.large_binary())})


def _node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


class RayDataEngine:
    """Runs units as the rows of a dataset."""

    name = "Ray Data"

    def __init__(self, nodes: Callable[[], list[RayNodeFacts]], cpus: float | None) -> None:
        """`nodes`: returns the nodes of the cluster; `cpus`: limit of cores, `None`: no limit."""
        self._nodes = nodes
        self._cpus = cpus
        self._stopping = False

    def stop(self) -> None:
        """Request the end of `run` after the next result."""
        self._stopping = True

    def run(self, setup: WorkerSetup, works: list[UnitWork], answer: Callable[[UnitWork], None]) -> None:
        """Run all units as one streaming dataset."""
        importlib.import_module("ray.data")  # it configures its loggers on import, so before they are silenced
        with quiet_ray(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Ray Data announces changes that users cannot act on
            self._run(setup, works, answer)

    def _run(self, setup: WorkerSetup, works: list[UnitWork], answer: Callable[[UnitWork], None]) -> None:
        import ray

        nodes = self._nodes()
        data = set_up_nodes(setup, nodes)
        key = uuid.uuid4().hex
        with settings_of_ray_data(self._cpus):
            dataset = ray.data.from_blocks([works_table([work]) for work in works])
        ops = op_chain(setup.plan)
        there = self._cpus or sum(node.cpus for node in nodes)
        for op, cpus in zip(ops, soft_cpus(ops, [op.workers for op in ops], there), strict=True):
            soft = msgspec.structs.replace(op, resources=replace(op.resources, cpus=cpus))
            dataset = self._add_op(dataset, setup.plan, soft, nodes, (data, key))
        batches = dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
        for batch in batches:
            for value in batch.column(WORK):
                answer(load_work(value.as_buffer()))
            if self._stopping:
                return

    def _add_op(self, dataset: Any, plan: Plan, op: Op, nodes: Sequence[RayNodeFacts], setup: tuple[bytes, str]) -> Any:
        """Append an op to the dataset."""
        options = remote_options(op.resources, max(node.cpus for node in nodes))
        options["batch_size"] = units_per_call(plan, op)
        options["batch_format"] = "pyarrow"
        if wants_actors(plan, op):
            return dataset.map_batches(
                RunInActor,
                fn_constructor_args=(setup[0], op.index),
                compute=actor_strategy(op, nodes),
                **attempts(dataset, max_restarts=-1, max_task_retries=ATTEMPTS - 1),
                **options,
            )
        return dataset.map_batches(
            run_in_task,
            fn_kwargs={"setup": setup[0], "key": setup[1], "op": op.index},
            **attempts(dataset, max_retries=ATTEMPTS - 1),
            **options,
        )


def attempts(dataset: Any, **limits: int) -> dict[str, Any]:
    """Return the retry limits as arguments of `map_batches`; versions of Ray Data take them in different ways, or not
    at all."""
    known = inspect.signature(dataset.map_batches).parameters
    if "ray_remote_args_fn" in known:
        return {"ray_remote_args_fn": lambda: limits}
    return {name: value for name, value in limits.items() if name in known}


def wants_actors(plan: Plan, op: Op) -> bool:
    """Return True if an op needs processes that run nothing else."""
    stages = [plan.stages[step.stage] for step in op.steps]
    return op.dedicated or any(overrides(stage, name) for stage in stages for name in ("setup", "teardown"))


def actor_strategy(op: Op, nodes: Sequence[RayNodeFacts]) -> Any:
    """Return a pool of the size the stage asks for; else one that Ray Data scales from one actor up to what fits."""
    import ray

    if op.workers is not None:
        return ray.data.ActorPoolStrategy(size=op.workers)
    most = sum(workers_on(node, op.resources, node.cpus) for node in nodes)
    return ray.data.ActorPoolStrategy(min_size=1, max_size=max(1, most))


@contextlib.contextmanager
def settings_of_ray_data(cpus: float | None) -> Iterator[None]:
    """Configure Ray Data to print nothing and to skip what fails, for datasets made in this block."""
    from ray.data import DataContext

    context = DataContext.get_current()
    wanted = {
        "enable_progress_bars": False,
        "enable_operator_progress_bars": False,
        "enable_auto_log_stats": False,
        "print_on_execution_start": False,
        "max_errored_blocks": -1,
    }
    before = {name: getattr(context, name) for name in wanted if hasattr(context, name)}
    limits = context.execution_options.resource_limits
    try:
        for name in before:
            setattr(context, name, wanted[name])
        if cpus is not None:
            context.execution_options.resource_limits = limits.copy(cpu=cpus)
        yield
    finally:
        context.execution_options.resource_limits = limits
        for name, value in before.items():
            setattr(context, name, value)


class RayDataExecutor(RayEngineExecutor):
    """Runs a pipeline as a Ray Data dataset."""

    name = "ray-data"
    options = (
        "address",
        "cpu_allocation_percentage",
        "fusion",
        "ignore_failures",
        "logging_interval",
        "workers",
    )
    cannot: ClassVar[Mapping[str, str]] = {
        **RayEngineExecutor.cannot,
        "execution_mode": "Ray Data always streams",
        "autoscale_interval_s": "Ray Data scales its pools itself",
        "max_workers_per_stage": "Ray Data scales its pools itself; give the stage num_workers",
        "worker_max_lifetime_m": "Ray Data manages its workers itself",
        "worker_restart_interval_m": "Ray Data manages its workers itself",
        "ignore_head_node": "Ray Data places its work itself; start the head node with --num-cpus=0",
        "reserved_cpus": "Ray Data uses what Ray offers; give it fewer with workers",
    }

    def __init__(self, config: dict[str, Any] | None = None, **options: Any) -> None:
        """Options, as keyword arguments or in `config={…}`.

        `address`: a running Ray cluster, such as `auto` (default: a private one that ends with the run).
        `workers`: CPUs to use (default: those of the cluster times `cpu_allocation_percentage`, 0.95).
        `ignore_failures`: never stop because of failed records. `fusion`, `logging_interval`: as for `LocalExecutor`.
        """
        super().__init__(merge_options("RayDataExecutor", options, config, self.options, self.cannot))

    def make_engine(self) -> RayDataEngine:
        """Return an engine that runs a dataset on the cluster."""
        return RayDataEngine(self.nodes, self._limit())

    def _limit(self) -> float | None:
        there = sum(node.cpus for node in self.nodes())
        wanted = float(max(1, int(there * self.cpu_share + 0.5)) if self.workers is None else self.workers)
        return wanted if wanted < there else None
