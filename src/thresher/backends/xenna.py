# SPDX-License-Identifier: Apache-2.0
"""The cosmos-xenna backend: one Xenna stage per fused op. Only Xenna's public v1 interface is used.

A Xenna pipeline returns its results at the end, if at all. The call of the last op therefore puts each unit into a
mailbox actor, which the driver polls: commits are reported as they happen, and none is lost if the pipeline fails.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from thresher.backends.engines.ray_engine import RayEngineExecutor, quiet_ray, set_up_nodes, soft_cpus
from thresher.backends.engines.unit_call import UnitWork, UnitWorker, dump_work, load_work, metadata_here, op_chain
from thresher.backends.ray_nodes.session import RayNodeFacts
from thresher.core.arguments.options import EXECUTION_MODES, check_choice, check_count, check_positive, merge_options
from thresher.core.planning.plan import Op, Plan
from thresher.core.registry import require_package
from thresher.runtime.executor import Limits, WorkerPolicy
from thresher.runtime.orders import WorkerSetup

ATTEMPTS = 3
"""Number of attempts to run the pipeline when its workers crash."""
SLOTS = 2
"""Calls that Xenna sends to a worker at a time."""
POLL_S = 0.1
"""Interval between two polls of the mailbox."""
ENVIRONMENT = {
    "PYTHON_LOG": "off",
    "RUST_LOG": "off",
    "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
    "RAY_MAX_LIMIT_FROM_API_SERVER": "40000",
    "RAY_MAX_LIMIT_FROM_DATA_SOURCE": "40000",
}
"""Environment variables that Xenna needs before Ray starts, or that silence its logs; values the caller has set are
kept."""


def set_environment() -> None:
    """Set the environment for a private cluster. A running cluster must have been started with the Ray settings among
    these."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


class Mailbox:
    """Actor that holds finished units until the driver takes them."""

    def __init__(self) -> None:
        self._kept: list[bytes] = []

    def put(self, work: bytes) -> None:
        """Add a unit that has passed its last op."""
        self._kept.append(work)

    def take(self) -> list[bytes]:
        """Return and remove all units that were added since the last call."""
        kept, self._kept = self._kept, []
        return kept


class XennaEngine:
    """Runs units through a Xenna pipeline."""

    name = "Xenna"

    def __init__(self, nodes: Callable[[], list[RayNodeFacts]], settings: Mapping[str, Any]) -> None:
        """`settings`: fields of Xenna's `PipelineConfig`, and `autoscale_interval_s`."""
        self._nodes = nodes
        self._settings = dict(settings)
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Request an early end of `run`."""
        self._stopping.set()

    def run(self, setup: WorkerSetup, works: list[UnitWork], answer: Callable[[UnitWork], None]) -> None:
        """Run all units through one pipeline.

        Xenna aborts the pipeline when a worker crashes, so it is restarted. The units that were in progress then go
        last, because one of them may crash every worker.
        """
        data = set_up_nodes(setup, self._nodes())
        left = {work.unit.id: work for work in works}

        def answered(work: UnitWork) -> None:
            left.pop(work.unit.id, None)
            answer(work)

        for attempt in range(1, ATTEMPTS + 1):
            in_hand = int(SLOTS * sum(node.cpus for node in self._nodes()))
            order = list(left.values())
            try:
                self._attempt(setup, data, order if attempt == 1 else order[in_hand:] + order[:in_hand], answered)
                return
            except Exception:  # Xenna passes on whatever its workers raise
                if attempt == ATTEMPTS or self._stopping.is_set():
                    raise

    def _attempt(
        self, setup: WorkerSetup, data: bytes, works: Sequence[UnitWork], answer: Callable[[UnitWork], None]
    ) -> None:
        import ray

        mailbox: Any = ray.remote(num_cpus=0, max_restarts=0)(Mailbox).remote()
        try:
            with quiet_ray(), ray_address(ray.get_runtime_context().gcs_address):
                self._run(self._spec(setup.plan, works, (data, mailbox)), mailbox, answer)
        finally:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(mailbox)  # workers that still run fail on their next put

    def _run(self, spec: Any, mailbox: Any, answer: Callable[[UnitWork], None]) -> None:
        """Run Xenna's pipeline in a thread of its own, because it cannot be cancelled."""
        errors: list[BaseException] = []
        thread = threading.Thread(target=_run_pipeline, args=(spec, errors), name="thresher-xenna", daemon=True)
        thread.start()
        while thread.is_alive() and not self._stopping.is_set():
            self._empty(mailbox, answer)
            time.sleep(POLL_S)
        self._empty(mailbox, answer)
        if errors:
            raise errors[0]

    def _empty(self, mailbox: Any, answer: Callable[[UnitWork], None]) -> None:
        import ray

        for work in ray.get(mailbox.take.remote()):
            answer(load_work(work))

    def _spec(self, plan: Plan, works: Sequence[UnitWork], setup: tuple[bytes, Any]) -> Any:
        """Return the plan as a Xenna pipeline spec."""
        from cosmos_xenna.pipelines import v1

        ops = op_chain(plan)
        cpus = [node.cpus for node in self._nodes()]
        share = self._settings["cpu_allocation_percentage"]
        if self._settings["workers"]:
            share = min(1.0, self._settings["workers"] / sum(cpus))
        there = sum(int(some * share) for some in cpus)  # Xenna allocates whole cores
        if not there:
            there, share = sum(map(int, cpus)), 1.0
        numbers = [self._number_of_workers(op, there) for op in ops]
        stages = [
            v1.StageSpec(_stage(op, some, setup), num_workers=number, **self._lifetimes())
            for op, some, number in zip(ops, soft_cpus(ops, numbers, there), numbers, strict=True)
        ]
        return v1.PipelineSpec([dump_work(work) for work in works], stages, self._config(share))

    def _number_of_workers(self, op: Op, cpus: int) -> int | None:
        """Return the number of workers the stage asks for; with an upper bound it must be set, since Xenna knows no
        maximum."""
        most = self._settings["max_workers_per_stage"]
        return op.workers if not most else min(most, op.workers or max(1, cpus))

    def _lifetimes(self) -> dict[str, int]:
        names = ("worker_max_lifetime_m", "worker_restart_interval_m")
        return {name: self._settings[name] for name in names if self._settings.get(name)}

    def _config(self, share: float) -> Any:
        from cosmos_xenna.pipelines import v1

        quiet = v1.VerbosityLevel.NONE
        streaming = v1.StreamingSpecificSpec(
            autoscale_interval_s=self._settings["autoscale_interval_s"],
            autoscaler_verbosity_level=quiet,
            executor_verbosity_level=quiet,
        )
        batch = self._settings["execution_mode"] == "batch"
        return v1.PipelineConfig(
            execution_mode=v1.ExecutionMode.BATCH if batch else v1.ExecutionMode.STREAMING,
            mode_specific=None if batch else streaming,
            ignore_failures=True,
            logging_interval_s=self._settings["logging_interval"],
            cpu_allocation_percentage=share,
            return_last_stage_outputs=False,
            actor_pool_verbosity_level=quiet,
            monitoring_verbosity_level=quiet,
        )


@contextlib.contextmanager
def ray_address(address: str) -> Iterator[None]:
    """Point Ray's state API at this cluster: Xenna calls it without an address and might find another one."""
    before = os.environ.get("RAY_ADDRESS")
    os.environ["RAY_ADDRESS"] = address
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("RAY_ADDRESS", None)
        else:
            os.environ["RAY_ADDRESS"] = before


def _stage(op: Op, cpus: float, setup: tuple[bytes, Any]) -> Any:
    """Wrap an op as a Xenna stage. The class is defined here because its base class needs Xenna to be installed."""
    from cosmos_xenna.pipelines import v1

    class OpStage(v1.Stage):  # type: ignore[misc]  # Xenna is not there where types are checked
        """Runs one op on units."""

        def __init__(self, needs: Any, number: int, is_last: bool, data: bytes, mailbox: Any) -> None:
            self._needs = needs
            self._number = number
            self._is_last = is_last
            self._data = data
            self._mailbox = mailbox
            self._worker: UnitWorker | None = None

        @property
        def required_resources(self) -> Any:
            """Resources of one worker."""
            return self._needs

        def setup(self, worker_metadata: Any) -> None:
            """Prepare the op; called once per worker."""
            import ray

            self._worker = UnitWorker(self._data, metadata_here(str(ray.get_runtime_context().get_node_id())))
            self._worker.prepare(self._number)

        def process_data(self, in_data: list[bytes]) -> list[bytes]:
            """Run the op and return the units for the next one, or put them into the mailbox after the last."""
            import ray

            assert self._worker is not None, "Xenna calls setup() first"
            made = [dump_work(work) for work in self._worker.run(self._number, [load_work(data) for data in in_data])]
            if not self._is_last:
                return made
            for work in made:
                ray.get(self._mailbox.put.remote(work))
            return []

    return OpStage(v1.Resources(cpus=cpus, gpus=op.resources.gpus), op.index, op.next is None, *setup)


def _run_pipeline(spec: Any, errors: list[BaseException]) -> None:
    from cosmos_xenna.pipelines import v1

    try:
        v1.run_pipeline(spec)
    except BaseException as error:  # raised again in the waiting thread
        errors.append(error)


class XennaExecutor(RayEngineExecutor):
    """Runs a pipeline with cosmos-xenna."""

    name = "xenna"
    needs_dashboard = True
    options = (
        "address",
        "autoscale_interval_s",
        "cpu_allocation_percentage",
        "execution_mode",
        "fusion",
        "ignore_failures",
        "logging_interval",
        "max_workers_per_stage",
        "worker_max_lifetime_m",
        "worker_restart_interval_m",
        "workers",
    )
    cannot: ClassVar[Mapping[str, str]] = {
        **RayEngineExecutor.cannot,
        "ignore_head_node": "Xenna places its work itself; start the head node with --num-cpus=0",
        "reserved_cpus": "Xenna leaves out a share of all cores: cpu_allocation_percentage",
        "resources.memory_gb": "Xenna schedules by cores and accelerators only",
        "resources.custom": "Xenna schedules by cores and accelerators only",
    }

    def __init__(self, config: dict[str, Any] | None = None, **options: Any) -> None:
        """Options, as keyword arguments or in `config={…}`.

        `address`: a Ray cluster that runs, such as `auto` (default: a private one, ended with the run).
        `workers`: CPUs to use (default: those of the cluster times `cpu_allocation_percentage`, 0.95).
        `execution_mode`: `streaming`, or `batch` to finish each stage before the next one starts.
        `autoscale_interval_s`: seconds between two decisions about the numbers of workers (180).
        `max_workers_per_stage`: a stage gets no more than this.
        `worker_max_lifetime_m`, `worker_restart_interval_m`: whole minutes after which a worker is replaced, and
        between two that are. `ignore_failures`: no number of failed records ends the run.
        `fusion`, `logging_interval`: as everywhere.
        """
        given = merge_options("XennaExecutor", options, config, self.options, self.cannot)
        require_package("cosmos_xenna", f"executor {self.name!r}")
        super().__init__(given)
        most = given.get("max_workers_per_stage")
        self._settings: dict[str, Any] = {
            "workers": self.workers,
            "max_workers_per_stage": 0 if most is None else check_count("max_workers_per_stage", most),
            "execution_mode": check_choice("execution_mode", given.get("execution_mode", "streaming"), EXECUTION_MODES),
            "autoscale_interval_s": check_positive(
                "autoscale_interval_s", given.get("autoscale_interval_s", 180.0), "seconds"
            ),
            "logging_interval": self.logging_interval_s,
            "cpu_allocation_percentage": self.cpu_share,
        }
        for name in ("worker_max_lifetime_m", "worker_restart_interval_m"):
            if given.get(name) is not None:
                self._settings[name] = check_count(name, given[name])

    def warm_up(self) -> None:
        """Connect, with the environment set first: Xenna and Ray read it when they start."""
        set_environment()
        super().warm_up()

    def limits(self) -> Limits:
        """Return the limits of every engine, with the maximum of workers per stage."""
        most = self._settings["max_workers_per_stage"]
        return replace(super().limits(), worker_policy=WorkerPolicy(max_workers_per_stage=most))

    def make_engine(self) -> XennaEngine:
        """Return an engine that runs a Xenna pipeline on the cluster."""
        return XennaEngine(self.nodes, self._settings)
