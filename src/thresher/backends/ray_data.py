# SPDX-License-Identifier: Apache-2.0
"""Ray Data runs the plan: a dataset with one row per unit, and one `map_batches` per op, after our own fusion.

An op whose stages have a `setup`, or workers of their own, becomes a pool of actors; any other becomes tasks. A row is
a whole unit, so that Ray Data may cut and bundle its blocks as it likes.
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

from thresher.backends.ray_engine import (
    RayEngineExecutor,
    quiet_ray,
    remote_options,
    set_up_nodes,
    soft_cpus,
    workers_on,
)
from thresher.backends.ray_session import RayNodeFacts
from thresher.backends.unit_call import (
    UnitWork,
    UnitWorker,
    dump_work,
    load_work,
    metadata_here,
    op_chain,
    units_per_call,
    worker_for,
)
from thresher.core.options import merge_options
from thresher.core.plan import Op, Plan
from thresher.core.stage import overrides
from thresher.runtime.orders import WorkerSetup

WORK = "work"
"""The one column of the dataset."""
ATTEMPTS = 2
"""How often Ray runs a call whose process died, before it leaves the unit out."""


def run_in_task(table: Any, setup: bytes, key: str, op: int) -> Any:
    """Units behind an op, in a process that may have run any other op before."""
    return _run(worker_for(key, setup, _node()), op, table)


class RunInActor:
    """Units behind an op, in a process that does nothing else."""

    def __init__(self, setup: bytes, op: int) -> None:
        import ray

        devices = [int(device) for device in ray.get_gpu_ids() if str(device).isdigit()]
        self._op = op
        self._worker = UnitWorker(setup, metadata_here(_node(), devices))
        self._worker.prepare(op)

    def __call__(self, table: Any) -> Any:
        """For each batch."""
        return _run(self._worker, self._op, table)

    def __del__(self) -> None:
        if hasattr(self, "_worker"):  # not where the constructor failed
            self._worker.end()


def _run(worker: UnitWorker, op: int, table: Any) -> Any:
    works = [load_work(value.as_buffer()) for value in table.column(WORK)]
    return works_table(worker.run(op, works))


def works_table(works: Sequence[UnitWork]) -> Any:
    """Units as the rows of a table."""
    import pyarrow as pa

    return pa.table({WORK: pa.array([dump_work(work) for work in works], pa.large_binary())})


def _node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


class RayDataEngine:
    """Runs units as the rows of a dataset."""

    name = "Ray Data"

    def __init__(self, nodes: Callable[[], list[RayNodeFacts]], cpus: float | None) -> None:
        """`nodes`: those of the cluster; `cpus`: use no more than that, `None`: all."""
        self._nodes = nodes
        self._cpus = cpus
        self._stopping = False

    def stop(self) -> None:
        """End with the next answer."""
        self._stopping = True

    def run(self, setup: WorkerSetup, works: list[UnitWork], answer: Callable[[UnitWork], None]) -> None:
        """All units as one dataset, streaming."""
        importlib.import_module(
            "ray.data"
        )  # it sets its logs up when it is imported, so before Ray is told to be quiet
        with quiet_ray(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Ray Data is about to change; people cannot help it
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
            dataset = self._behind(dataset, setup.plan, soft, nodes, (data, key))
        batches = dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
        for batch in batches:
            for value in batch.column(WORK):
                answer(load_work(value.as_buffer()))
            if self._stopping:
                return

    def _behind(self, dataset: Any, plan: Plan, op: Op, nodes: Sequence[RayNodeFacts], setup: tuple[bytes, str]) -> Any:
        """The dataset behind an op."""
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
    """How often Ray tries, as this version of Ray Data wants to be told; a later one may not let itself be told."""
    known = inspect.signature(dataset.map_batches).parameters
    if "ray_remote_args_fn" in known:
        return {"ray_remote_args_fn": lambda: limits}
    return {name: value for name, value in limits.items() if name in known}


def wants_actors(plan: Plan, op: Op) -> bool:
    """Whether an op needs processes that do nothing else."""
    stages = [plan.stages[step.stage] for step in op.steps]
    return op.dedicated or any(overrides(stage, name) for stage in stages for name in ("setup", "teardown"))


def actor_strategy(op: Op, nodes: Sequence[RayNodeFacts]) -> Any:
    """As many actors as the stage wants; else from one up to what the cluster holds, as Ray Data sees fit."""
    import ray

    if op.workers is not None:
        return ray.data.ActorPoolStrategy(size=op.workers)
    most = sum(workers_on(node, op.resources, node.cpus) for node in nodes)
    return ray.data.ActorPoolStrategy(min_size=1, max_size=max(1, most))


@contextlib.contextmanager
def settings_of_ray_data(cpus: float | None) -> Iterator[None]:
    """A dataset that is made in this block prints nothing and leaves out what fails; the caller's settings stay."""
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
    """Runs a pipeline as a dataset of Ray Data."""

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
        "worker_max_lifetime_m": "Ray Data keeps its workers itself",
        "worker_restart_interval_m": "Ray Data keeps its workers itself",
        "ignore_head_node": "Ray Data places its work itself; start the head node with --num-cpus=0",
        "reserved_cpus": "Ray Data uses what Ray offers; give it fewer with workers",
    }

    def __init__(self, config: dict[str, Any] | None = None, **options: Any) -> None:
        """Options, as keyword arguments or in `config={…}`.

        `address`: a Ray cluster that runs, such as `auto` (default: a private one, ended with the run).
        `workers`: CPUs to use (default: those of the cluster times `cpu_allocation_percentage`, 0.95).
        `ignore_failures`: no number of failed records ends the run. `fusion`, `logging_interval`: as everywhere.
        """
        super().__init__(merge_options("RayDataExecutor", options, config, self.options, self.cannot))

    def make_engine(self) -> RayDataEngine:
        """A dataset on the cluster."""
        return RayDataEngine(self.nodes, self._limit())

    def _limit(self) -> float | None:
        there = sum(node.cpus for node in self.nodes())
        wanted = float(max(1, int(there * self.cpu_share + 0.5)) if self.workers is None else self.workers)
        return wanted if wanted < there else None
