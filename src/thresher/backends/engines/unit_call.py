# SPDX-License-Identifier: Apache-2.0
"""One call of an engine with its own scheduler: one op on a unit, run by the same `Worker` as in every other backend.

A unit passes from call to call as `UnitWork`. The worker retries, bisects, quarantines and counts; the op that writes
also commits. Any other error is stored in the unit and never raised: our own scheduler runs such a unit again, as it
does a unit whose call was lost.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from thresher.core.planning.plan import Op, Plan
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.tally import Tally
from thresher.core.task import Task
from thresher.core.unit import Unit
from thresher.credentials import error_line
from thresher.ledger.records import CommitRecord
from thresher.runtime.memory.usage import choose_memory_pool
from thresher.runtime.orders import TaskOrder, WorkerSetup
from thresher.runtime.payloads.payload import Payload, decode_result, encode
from thresher.runtime.processes.setup_pickle import load_setup
from thresher.runtime.worker.worker import SetupFailed, Worker
from thresher.stage_errors import ControlSignal, signals_raise

EPOCH = 0
"""An engine runs a unit only in its first epoch."""


class Result(msgspec.Struct, frozen=True):
    """An output of the last stage in a pipeline without a writer."""

    payload: Payload
    """The encoded task."""
    items: int
    """Number of records."""


class UnitWork(msgspec.Struct):
    """A unit between two ops."""

    unit: Unit
    """The unit to read."""
    tasks: list[Payload] = []
    """Outputs of the previous op, in order; at first the initial task, if there is no reader."""
    tally: Tally = msgspec.field(default_factory=lambda: Tally(stages={}))
    """Counts so far."""
    quarantined: list[bytes] = []
    """Quarantine lines of a pipeline without a writer."""
    results: list[Result] = []
    """Outputs of the last stage of a pipeline without a writer."""
    record: CommitRecord | None = None
    """The commit, set by the op that writes."""
    failure: str = ""
    """Why the unit failed; later ops pass it on unchanged."""

    def without_tasks(self) -> UnitWork:
        """Return a copy without the payloads between two ops."""
        return msgspec.structs.replace(self, tasks=[])


def dump_work(work: UnitWork) -> bytes:
    """Serialize a unit for an engine that transports bytes."""
    return pickle.dumps(work, 5)


def load_work(data: bytes | memoryview) -> UnitWork:
    """Load what `dump_work` returned."""
    work: UnitWork = pickle.loads(data)
    return work


def op_chain(plan: Plan) -> list[Op]:
    """Return the ops that a unit passes, in order; streams and joined files take other routes."""
    number: int | None = plan.entries["unit"] if "unit" in plan.entries else plan.entries["task"]
    chain = []
    while number is not None:
        chain.append(plan.ops[number])
        number = chain[-1].next
    return chain


class UnitWorker:
    """Runs ops on units in one process of an engine."""

    def __init__(self, setup: bytes, metadata: WorkerMetadata) -> None:
        choose_memory_pool()
        loaded: WorkerSetup = replace(load_setup(setup), metadata=metadata)
        self._plan = loaded.plan
        self._ops = loaded.plan.ops
        self._worker = Worker(loaded)
        self._broken: dict[int, str] = {}
        """Ops whose stages could not be set up, with the reason."""

    def prepare(self, op: int) -> None:
        """Set up the stages of an op. If that fails, every unit is passed on with the reason."""
        if op not in self._broken:
            try:
                self._worker.prepare(self._ops[op])
            except SetupFailed as failed:
                self._broken[op] = str(failed)

    def run(self, op: int, works: Sequence[UnitWork]) -> list[UnitWork]:
        """Run an op on units. An op that takes several tasks per call may get tasks of several units in one call."""
        self.prepare(op)
        does = self._ops[op]
        for work in works:
            work.failure = work.failure or self._broken.get(op, "")
        good = [work for work in works if not work.failure]
        together = self._plan.tasks_per_call(does) > 1 and not self._plan.by_unit(does)
        groups = [good] if together and good else [[work] for work in good]
        done = {work.unit.id: work for group in groups for work in self._run_or_fail(does, group)}
        return [done.get(work.unit.id, work) for work in works]

    def _run_or_fail(self, op: Op, works: list[UnitWork]) -> list[UnitWork]:
        try:
            with signals_raise(signal.SIGINT):  # an engine may cancel a call that way
                return self._run(op, works)
        except ControlSignal:
            raise
        except BaseException as error:  # our own scheduler runs the unit again and reports the error
            for work in works:
                self._worker.discard(work.unit.id, EPOCH + 1)
            return [UnitWork(work.unit, failure=error_line(error)) for work in works]

    def _run(self, op: Op, works: list[UnitWork]) -> list[UnitWork]:
        made = [UnitWork(work.unit, [], work.tally, list(work.quarantined)) for work in works]
        for order, owners in _orders(op, works, self._plan.tasks_per_call(op)):
            try:
                for produced in self._worker.start(order):
                    if produced.task is not None:
                        _add_output(op, made[owners[produced.parent]], produced.task)
                for owner, report in zip(owners, self._worker.finish(order), strict=True):
                    made[owner].tally.add(report.tally)
                    made[owner].quarantined.extend(report.quarantined)
            finally:
                self._worker.forget(order)
        if op.writes:
            for work in made:
                work.record = self._worker.commit(work.unit, EPOCH, work.tally)
        return made

    def end(self) -> None:
        """Tear the stages down."""
        self._worker.teardown()


def _orders(op: Op, works: list[UnitWork], size: int) -> Iterator[tuple[TaskOrder, list[int]]]:
    """Yield the orders for the worker, each with the indexes of the units that its tasks belong to; `size`: tasks per
    call."""
    if op.reads:
        for place, work in enumerate(works):
            yield TaskOrder(op.index, work.unit, EPOCH, []), [place]
        return
    tasks = [(place, payload) for place, work in enumerate(works) for payload in work.tasks]
    for start in range(0, len(tasks), size):
        some = tasks[start : start + size]
        unit = works[some[0][0]].unit
        decoded = [decode_result(payload) for _, payload in some]
        yield TaskOrder(op.index, unit, EPOCH, decoded), [place for place, _ in some]


def _add_output(op: Op, work: UnitWork, task: Task) -> None:
    payload = encode(task).inline()
    if op.next is None:
        work.results.append(Result(payload, task.num_items))
        work.tally.written += task.num_items
    else:
        work.tasks.append(payload)


_workers: dict[str, UnitWorker] = {}


def worker_for(key: str, setup: bytes, node: str = "") -> UnitWorker:
    """Return the worker of this process for a run, for engines that run calls of any run in any process.

    `key` identifies the run; workers of other runs are torn down.
    """
    if key not in _workers:
        for other in list(_workers):
            _workers.pop(other).end()
        _workers[key] = UnitWorker(setup, metadata_here(node))
    return _workers[key]


def metadata_here(node: str = "", devices: Sequence[int] = (), rank: int = 0, num_workers: int = 1) -> WorkerMetadata:
    """Return the metadata of this process for its stages."""
    node = node or os.uname().nodename
    return WorkerMetadata(f"{node}-{os.getpid()}", NodeInfo(node), tuple(devices), rank, num_workers)


def units_per_call(plan: Plan, op: Op) -> int:
    """Return how many units an engine should pass to one call: more than one only if a unit is a single task."""
    return plan.tasks_per_call(op) if plan.source is None and not op.writes else 1
