# SPDX-License-Identifier: Apache-2.0
"""A worker in its own process: receives tasks from the driver, runs them, and sends back their outputs.

Calls wait in a local queue, so that a worker always has its next one at hand. A generator whose credit is used up is
parked, and the next call starts. Messages are handled between two outputs of a call; commits come before new calls.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from thresher.core.planning.plan import Plan
from thresher.credentials import message_of, redacted, traceback_of
from thresher.errors import ThresherError
from thresher.runtime.crashes.evidence import KNOWN
from thresher.runtime.memory.large_table import take_turn
from thresher.runtime.memory.usage import MemoryKeeper, WorkerFull, private_bytes
from thresher.runtime.orders import Produced, TaskOrder, TaskReport
from thresher.runtime.payloads.payload import (
    INLINE_BYTES,
    CopyNeeded,
    EncodeError,
    Payload,
    PayloadMissing,
    PayloadStore,
    encode,
    views_lent,
)
from thresher.runtime.processes import messages as msg
from thresher.runtime.processes.wire import Link, PeerGone
from thresher.runtime.worker.call import StageCall
from thresher.runtime.worker.call_queue import Call, CallQueue, run_flow
from thresher.runtime.worker.stage_call import ABORTED, TaskAborted
from thresher.runtime.worker.worker import SetupFailed, Worker
from thresher.scheduler.model import NO_LIMIT
from thresher.stage_errors import ControlSignal, is_out_of_memory

FLUSH_EVERY_S = 0.005
"""Maximum delay of the results of tiny tasks, which are sent together."""
LOOK_EVERY_S = 0.001
"""Minimum interval between two checks for messages while a call runs."""
PAYLOAD_LOST = "payload-lost"
"""Error of a call whose input can no longer be read."""
KINDS = {TaskAborted: ABORTED, PayloadMissing: PAYLOAD_LOST, EncodeError: "unsendable-result"}
GETS_COPIES = "a stage writes to its task in place; the unit starts again, and its tasks get copies"
REPORT_EVERY_S = 0.5
"""Interval at which a long task reports its counts."""


class ProcessCall(Call, eq=False, kw_only=True):
    """A call whose tasks come as messages."""

    done: frozenset[str] = frozenset()
    """Committed units of a stream."""
    opened: int = 0
    """Number of its payloads that were opened; the leases of those end by themselves."""
    ready: StageCall | None = None
    """The call of its stage, if that can be made apart from all the rest."""
    told_at: float = 0.0
    """Time of its last report."""
    emitted: bool = False
    """True if anything was reported of it."""

    def told(self, reports: list[TaskReport]) -> list[msg.TaskUpdate]:
        """Return what was emitted and counted since the last call, for each task."""
        return [
            msg.TaskUpdate(task.task, outputs, report.tally, report.busy_s, report.quarantined)
            for task, outputs, report in zip(self.tasks, self.take_outputs(), reports, strict=True)
        ]

    def payloads(self) -> list[Payload]:
        """Return the payloads that were emitted and not reported yet."""
        return [output.payload for outputs in self.outputs for output in outputs if output.payload is not None]

    def forget(self) -> None:
        """Release everything that it holds, so that leases end."""
        self.ready = None
        super().forget()


def calls_of(message: msg.Run, plan: Plan) -> Iterator[ProcessCall]:
    """Yield the calls of an order."""
    size = plan.tasks_per_call(plan.ops[message.op])
    done = frozenset(message.done)
    for start in range(0, len(message.tasks), size):
        tasks = message.tasks[start : start + size]
        # A call for several tasks cannot pause halfway, so it never parks.
        credit = tasks[0].credit if size == 1 else NO_LIMIT
        yield ProcessCall(message.op, tasks, credit, unit=message.units[tasks[0].unit], done=done)


class WorkerProcess:
    """The main loop of a worker process."""

    finishes_later = False
    """True if the last output of a call is emitted when the call is finished, and not before."""

    def __init__(
        self,
        channel: Link,
        worker: Worker,
        arena: PayloadStore,
        keeper: MemoryKeeper | None = None,
    ) -> None:
        self._channel, self._worker, self._arena = channel, worker, arena
        self._reader = arena.reader()
        self._memory = keeper or MemoryKeeper()
        self._calls: CallQueue[ProcessCall] = CallQueue()
        self._bit_by_bit = [worker.plan.emits_gradually(op) for op in worker.plan.ops]
        self._running: ProcessCall | None = None
        self._lends_views = True
        """False once a stage has tried to change a buffer of its task in place: then each task gets copies."""
        self._finished: list[msg.TaskUpdate] = []
        self._has_finished_any = self._stopping = False
        self._looked_at = self._flushed_at = 0.0
        self._handlers: dict[type, Any] = {
            msg.Run: self._take_run,
            msg.Credit: self._take_credit,
            msg.GoOn: self._take_go_on,
            msg.GiveBack: self._take_back,
            msg.Publish: self._publish,
            msg.Free: self._free,
            msg.OpenArena: lambda m: self._reader.add(m.arena, self._channel.take_fd()),
            msg.DropArena: lambda m: self._reader.drop(m.arena),
            msg.Stop: lambda _: setattr(self, "_stopping", True),
        }

    def serve(self) -> None:
        """Run calls until the driver sends `Stop` or exits."""
        while not self._stopping:
            call = self._calls.next()
            if call is None:
                self._memory.tidy()
                self._flush()
                self._look(wait=True)
                continue
            self._running = call
            self._guard(self._advance, call)
            self._running = None
            now = time.perf_counter()
            self._memory.after_call(now, self._reader.held_bytes)
            if now - self._looked_at > LOOK_EVERY_S:
                self._breathe(now)

    def _tell_growth(self, now: float) -> None:
        kept = self._memory.between_chunks(now)
        if kept:
            self._queue(msg.Grown(kept))
            self._flush()
            if self._runs_whole_unit():
                take_turn()

    def _runs_whole_unit(self) -> bool:
        """Return True if the running call takes a unit from input to output without other workers."""
        op = None if self._running is None else self._worker.plan.ops[self._running.op]
        return op is not None and op.reads and op.writes

    def end(self) -> None:
        """Drop unfinished calls and tear down the stages."""
        for call in self._calls.parked.values():
            self._drop(call)
        self._worker.teardown()
        self._flush()

    # -- messages -----------------------------------------------------------------------------------------------------

    def _look(self, *, wait: bool) -> None:
        for message in self._channel.receive(wait=wait):
            self._handlers[type(message)](message)
        self._looked_at = time.perf_counter()

    def _breathe(self, now: float) -> None:
        self._tell_growth(now)
        self._look(wait=False)
        if self._channel.closed:
            raise PeerGone("the driver is gone")
        if now - self._flushed_at > FLUSH_EVERY_S:
            self._flush()

    def _queue(self, message: Any) -> None:
        self._queue_done()
        self._channel.queue(message)

    def _queue_done(self) -> None:
        if self._finished:
            self._channel.queue(msg.Done(self._finished))
            self._finished = []

    def _flush(self) -> None:
        self._queue_done()
        if ended := self._reader.ended():
            self._channel.queue(msg.Returned(ended))
        if news := KNOWN.take_news():
            self._channel.queue(msg.Cleared(news))
        if self._channel.has_unsent:
            self._channel.flush()
        self._flushed_at = time.perf_counter()

    def _take_run(self, message: msg.Run) -> None:
        KNOWN.learn_all(message.suspects)
        self._calls.waiting.extend(calls_of(message, self._worker.plan))

    def _take_credit(self, message: msg.Credit) -> None:
        self._calls.earn(message.task, message.credit, self._running)

    def _take_go_on(self, message: msg.GoOn) -> None:
        self._calls.resume(message.task, message.credit)

    def _take_back(self, message: msg.GiveBack) -> None:
        dropped, lost = self._calls.take_back(message.tasks)
        for call in dropped:
            self._drop(call)
        self._give_up(lost)
        if message.unit:
            self._worker.discard(message.unit, message.epoch)

    def _free(self, message: msg.Free) -> None:
        for offset in message.offsets:
            self._arena.free(offset)

    def _publish(self, message: msg.Publish) -> None:
        unit, epoch = message.unit, message.epoch
        try:
            self._queue(msg.Published(unit.id, epoch, self._worker.commit(unit, epoch, message.tally)))
        except ControlSignal:
            raise
        except BaseException as error:
            text = message_of(error) if isinstance(error, OSError | ThresherError) else traceback_of(error)
            self._queue(msg.NotPublished(unit.id, epoch, text, not isinstance(error, ThresherError)))
        self._flush()

    # -- running ------------------------------------------------------------------------------------------------------

    def _advance(self, call: ProcessCall) -> None:
        if kept := self._too_full_for(call):
            self._refuse(call, kept)
            return
        call.is_begun = True
        with views_lent(self._lends_views):
            ended = self._run_flow(call, call.flow or self._start(call))
        (self._end_call if ended else self._park)(call)

    def _too_full_for(self, call: ProcessCall) -> int:
        """Return the bytes that the worker has kept from earlier calls, if too many to run this one; else 0."""
        kept = self._memory.before_call(time.perf_counter())
        return kept if self._has_finished_any and not call.is_begun else 0

    def _refuse(self, call: ProcessCall, kept: int) -> None:
        text = f"its worker had kept {kept // 10**6} MB from earlier calls; a new one runs this call"
        self._fail(call, "worker-full", text, fatal=False, blamed=False)

    def _guard(self, step: Callable[[ProcessCall], object], call: ProcessCall) -> None:
        """Run one step of a call and report its failure."""
        try:
            step(call)
        except (MemoryError, WorkerFull) as error:
            self._fail(call, "out-of-memory", str(error) or "memory ran out", fatal=False)
            gc.collect()
            self._memory.give_back()
        except CopyNeeded:
            self._restart_with_copies(call)
        except (PeerGone, ControlSignal):
            raise
        except (TaskAborted, PayloadMissing, EncodeError) as error:
            self._fail(call, KINDS[type(error)], str(error), fatal=False)
        except ThresherError as error:
            self._fail(call, "", str(error), fatal=not is_out_of_memory(error))
        except (SetupFailed, OSError) as error:
            self._fail(call, type(error).__name__, message_of(error), fatal=not is_out_of_memory(error))
        except BaseException as error:  # a bug in Thresher or in a reader: retried, on another worker if necessary
            self._fail(call, type(error).__name__, traceback_of(error), fatal=False)

    def _restart_with_copies(self, call: ProcessCall) -> None:
        """Start a call again in which a stage writes in place. From now on, tasks here get buffers of their own."""
        self._lends_views = False
        if call.emitted or self._worker.plan.ops[call.op].writes or not self._reader.can_reopen:
            self._fail(call, ABORTED, GETS_COPIES, fatal=False)
            return
        call.earn(sum(payload.nbytes for payload in call.payloads()))
        self._drop(call)
        call.opened = 0
        self._guard(self._advance, call)  # at once: its leases are still open, since nothing was flushed

    def _run_flow(self, call: ProcessCall, flow: Iterator[Produced]) -> bool:
        """Emit the outputs of a flow until it ends (True) or its credit is used up (False)."""
        at_once = not self._bit_by_bit[call.op]
        return run_flow(
            call, flow, self._emit, at_once=at_once, keeps_last=self.finishes_later, between=self._between_outputs
        )

    def _between_outputs(self, call: ProcessCall) -> None:
        now = time.perf_counter()
        if now - self._looked_at > LOOK_EVERY_S:
            self._report_progress(call, now)
            self._breathe(now)

    def _start(self, call: ProcessCall) -> Iterator[Produced]:
        """Open the input of a call and create its flow, which runs when it is advanced."""
        tasks = []
        for task in call.tasks:
            call.opened += 1
            if task.payload is not None:
                tasks.append(self._reader.open(task.payload, own=task.epoch > 0 or not self._lends_views))
        call.order = TaskOrder(call.op, call.unit, call.tasks[0].epoch, tasks, call.done)
        call.outputs = [[] for _ in call.tasks]
        call.told_at = time.perf_counter()
        if not self._worker.is_ready(call.op):
            before = private_bytes()
            self._worker.prepare(self._worker.plan.ops[call.op])
            self._memory.was_set_up(before)
        call.flow = self._worker.start(call.order)
        return call.flow

    def _emit(self, call: ProcessCall, produced: Produced, is_last: bool) -> None:
        payload, items = None, 0
        if produced.task is not None:
            payload = self._store(produced.task)
            items = produced.task.num_items if self._worker.plan.ops[call.op].next is None else 0
        call.outputs[produced.parent].append(msg.Output(payload, produced.unit, produced.closes, items))
        if payload is None:
            return
        call.spend(payload.nbytes)
        if call.credit and not payload.data and not is_last:
            self._report_progress(call, self._flushed_at, at_once=True)

    def _store(self, task: Any) -> Payload:
        encoded = encode(task)
        return encoded.inline() if encoded.nbytes < INLINE_BYTES else self._arena.put(encoded)

    def _report_progress(self, call: ProcessCall, now: float, *, at_once: bool = False) -> None:
        """Report the outputs of a running task: a large batch at once, small ones and counts at intervals."""
        if len(call.tasks) > 1:
            return
        if not call.outputs[0] and not (call.emitted or self._worker.plan.ops[call.op].writes):
            return  # if lost, it is retried alone, and reported counts would count twice
        if not at_once and now - call.told_at < (FLUSH_EVERY_S if call.outputs[0] else REPORT_EVERY_S):
            return
        call.emitted = True
        self._queue(msg.TaskProgress(call.told(self._report(call))[0]))
        call.told_at = time.perf_counter()
        self._flush()

    def _report(self, call: ProcessCall) -> list[TaskReport]:
        assert call.order is not None
        return self._worker.report(call.order)

    def _park(self, call: ProcessCall) -> None:
        self._calls.park(call)
        self._queue(msg.Parked(call.told(self._report(call))[0]))
        self._flush()

    def _end_call(self, call: ProcessCall) -> None:
        """Handle the end of a call."""
        self._finish(call)

    def _finish(self, call: ProcessCall) -> None:
        assert call.order is not None
        if call.held is not None:
            self._emit(call, call.held, True)
        self._finished.extend(call.told(self._worker.finish(call.order)))
        self._has_finished_any = True
        large = call.unit.nbytes if not call.order.tasks else 0
        call.forget()
        if large >= INLINE_BYTES:
            self._flush()

    def _fail(self, call: ProcessCall, error: str, text: str, *, fatal: bool, blamed: bool = True) -> None:
        self._drop(call)
        self._queue(msg.Failed([task.task for task in call.tasks], error, redacted(text), fatal, blamed))
        self._flush()

    def _drop(self, call: ProcessCall) -> None:
        """Drop a call in any state."""
        if call.order is None:
            self._give_up(call.tasks[call.opened :])
            return
        if call.is_begun:
            self._calls.suspended.discard(call.op)
        self._worker.forget(call.order)
        for payload in call.payloads():
            if payload.arena == self._arena.number:
                self._arena.free(payload.offset)
        call.forget()

    def _give_up(self, tasks: Sequence[msg.TaskIn]) -> None:
        for task in tasks:
            if task.payload is not None:
                self._reader.give_up(task.payload)
