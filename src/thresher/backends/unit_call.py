# SPDX-License-Identifier: Apache-2.0
"""What runs inside one call of an engine that schedules itself: one op on a unit, by the same worker as everywhere.

A unit travels as `UnitWork` from call to call. The worker retries, bisects, quarantines and counts; the call of the op
that writes also commits. Whatever else goes wrong is noted in the unit, never raised: such a unit, like one whose call
never came back, is run again by our own scheduler.
"""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from thresher.core.plan import Op, Plan
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.tally import Tally
from thresher.core.task import Task
from thresher.core.unit import Unit
from thresher.ledger.records import CommitRecord
from thresher.runtime.memory import choose_memory_pool
from thresher.runtime.orders import TaskOrder, WorkerSetup
from thresher.runtime.payload import Payload, decode_inline, encode
from thresher.runtime.setup_pickle import load_setup
from thresher.runtime.worker import SetupFailed, Worker

EPOCH = 0
"""An engine runs a unit under its first epoch only."""


class Result(msgspec.Struct, frozen=True):
    """An output of the last stage, where there is no writer."""

    payload: Payload
    """The encoded task."""
    items: int
    """How many records it holds."""


class UnitWork(msgspec.Struct):
    """A unit on its way from op to op."""

    unit: Unit
    """What to read."""
    tasks: list[Payload] = []
    """What the op before has made of it, in order; at first the initial task, where there is no reader."""
    tally: Tally = msgspec.field(default_factory=lambda: Tally(stages={}))
    """Counts so far."""
    quarantined: list[bytes] = []
    """Quarantine lines that no unit's output takes (a pipeline without a writer)."""
    results: list[Result] = []
    """Outputs of the last stage (a pipeline without a writer)."""
    record: CommitRecord | None = None
    """What was committed, behind the op that writes."""
    failure: str = ""
    """Why it goes no further; later calls pass it on as it is."""

    def without_tasks(self) -> UnitWork:
        """All but the payloads between two ops."""
        return msgspec.structs.replace(self, tasks=[])


def dump_work(work: UnitWork) -> bytes:
    """For an engine that carries bytes."""
    return pickle.dumps(work, 5)


def load_work(data: bytes | memoryview) -> UnitWork:
    """What `dump_work` made."""
    work: UnitWork = pickle.loads(data)
    return work


def op_chain(plan: Plan) -> list[Op]:
    """The ops that a unit passes, in order; a stream and joined files take other routes."""
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
        self._ops = loaded.plan.ops
        self._worker = Worker(loaded)
        self._broken: dict[int, str] = {}
        """Ops whose stages could not be set up, and why."""

    def prepare(self, op: int) -> None:
        """Set up the stages of an op; if that fails, every unit is passed on with the reason."""
        if op not in self._broken:
            try:
                self._worker.prepare(self._ops[op])
            except SetupFailed as failed:
                self._broken[op] = str(failed)

    def run(self, op: int, works: Sequence[UnitWork]) -> list[UnitWork]:
        """Units behind an op. Where it takes several tasks in a call, those may be of several units."""
        self.prepare(op)
        does = self._ops[op]
        for work in works:
            work.failure = work.failure or self._broken.get(op, "")
        good = [work for work in works if not work.failure]
        together = does.batch_size > 1 and not does.reads and not does.writes
        groups = [good] if together and good else [[work] for work in good]
        done = {work.unit.id: work for group in groups for work in self._guarded(does, group)}
        return [done.get(work.unit.id, work) for work in works]

    def _guarded(self, op: Op, works: list[UnitWork]) -> list[UnitWork]:
        try:
            return self._run(op, works)
        except Exception as error:  # the unit is run again by our own scheduler, which tells people what is wrong
            for work in works:
                self._worker.discard(work.unit.id, EPOCH + 1)
            text = "".join(traceback.format_exception_only(error)).strip()
            return [UnitWork(work.unit, failure=text) for work in works]

    def _run(self, op: Op, works: list[UnitWork]) -> list[UnitWork]:
        made = [UnitWork(work.unit, [], work.tally, list(work.quarantined)) for work in works]
        for order, owners in _orders(op, works):
            try:
                for produced in self._worker.start(order):
                    if produced.task is not None:
                        _keep(op, made[owners[produced.parent]], produced.task)
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


def _orders(op: Op, works: list[UnitWork]) -> Iterator[tuple[TaskOrder, list[int]]]:
    """What the worker is asked to run, each with the places of the units that its tasks belong to."""
    if op.reads:
        for place, work in enumerate(works):
            yield TaskOrder(op.index, work.unit, EPOCH, []), [place]
        return
    tasks = [(place, payload) for place, work in enumerate(works) for payload in work.tasks]
    for start in range(0, len(tasks), op.batch_size):
        some = tasks[start : start + op.batch_size]
        unit = works[some[0][0]].unit
        decoded = [decode_inline(payload) for _, payload in some]
        yield TaskOrder(op.index, unit, EPOCH, decoded), [place for place, _ in some]


def _keep(op: Op, work: UnitWork, task: Task) -> None:
    payload = encode(task).inline()
    if op.next is None:
        work.results.append(Result(payload, task.num_items))
        work.tally.written += task.num_items
    else:
        work.tasks.append(payload)


_kept: dict[str, UnitWorker] = {}


def worker_for(key: str, setup: bytes, node: str = "") -> UnitWorker:
    """The worker of this process for a run, where an engine gives a process any work of any run.

    `key` names the run; what was kept for another run is torn down.
    """
    if key not in _kept:
        for other in list(_kept):
            _kept.pop(other).end()
        _kept[key] = UnitWorker(setup, metadata_here(node))
    return _kept[key]


def metadata_here(node: str = "", devices: Sequence[int] = (), rank: int = 0, num_workers: int = 1) -> WorkerMetadata:
    """What the stages of this process are told about it."""
    node = node or os.uname().nodename
    return WorkerMetadata(f"{node}-{os.getpid()}", NodeInfo(node), tuple(devices), rank, num_workers)


def units_per_call(plan: Plan, op: Op) -> int:
    """How many units an engine should give to one call. More than one only where a unit is a single task."""
    return op.batch_size if plan.source is None and not op.writes else 1
