# SPDX-License-Identifier: Apache-2.0
"""A worker in a process of its own: takes orders from the driver, runs them, and carries away what they make.

Orders wait in a local queue, so that a worker always has its next one at hand. A generator whose credit is used up is
parked and the next order is taken. Messages are looked for between two things that an order emits; commits come before
new orders.
"""

from __future__ import annotations

import gc
import os
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from thresher.core.out_of_memory import is_out_of_memory
from thresher.core.plan import gives_bit_by_bit
from thresher.errors import ThresherError
from thresher.runtime import messages as msg
from thresher.runtime.large_table import take_turn
from thresher.runtime.memory import MemoryKeeper, WorkerFull, private_bytes
from thresher.runtime.orders import Produced, TaskOrder, TaskReport
from thresher.runtime.payload import INLINE_BYTES, EncodeError, Payload, encode, spill
from thresher.runtime.payload_store import Link, PayloadMissing, PayloadStore
from thresher.runtime.stage_call import TaskAborted
from thresher.runtime.suspicions import suspicions
from thresher.runtime.wire import PeerGone
from thresher.runtime.worker import SetupFailed, Worker
from thresher.runtime.worker_call import NO_LIMIT, Call, calls_of

FLUSH_EVERY_S = 0.005
"""Results of tiny tasks wait at most so long for company."""
LOOK_EVERY_S = 0.001
"""Messages are looked for at most so often while an order runs."""
PAYLOAD_LOST = "payload-lost"
"""Kind of the error where the input of a call can no longer be read."""
TELL_EVERY_S = 0.5
"""How often a long task tells its counts."""


class WorkerProcess:
    """The loop of a worker."""

    finishes_later = False
    """Whether the last output of a call is emitted when the call is finished, and not before."""

    def __init__(
        self,
        channel: Link,
        worker: Worker,
        arena: PayloadStore,
        spill_to: str = "",
        keeper: MemoryKeeper | None = None,
    ) -> None:
        self._channel, self._worker, self._arena = channel, worker, arena
        self._spill_to, self._spilled = spill_to, 0
        self._reader = arena.reader()
        self._memory = keeper or MemoryKeeper()
        self._waiting: deque[Call] = deque()
        self._parked: dict[int, Call] = {}
        self._suspended: set[int] = set()
        """Ops with a generator that was begun and does not run: parked, or waiting for its turn to go on."""
        self._bit_by_bit = [
            op.reads or any(gives_bit_by_bit(worker.plan.stages[step.stage]) for step in op.steps)
            for op in worker.plan.ops
        ]
        """By op: whether it may take its time between two outputs of one task."""
        self._running: Call | None = None
        self._told: list[msg.Told] = []
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
        """Until the driver says so, or is gone."""
        while not self._stopping:
            call = self._next_call()
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
            self._say(msg.Grown(kept))
            self._flush()
            if self._runs_whole_unit():
                take_turn()

    def _runs_whole_unit(self) -> bool:
        """Whether nobody else is needed to come to the end of what runs."""
        op = None if self._running is None else self._worker.plan.ops[self._running.op]
        return op is not None and op.reads and op.writes

    def end(self) -> None:
        """Close what is unfinished and tear the stages down."""
        for call in self._parked.values():
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

    def _say(self, message: Any) -> None:
        self._say_done()
        self._channel.queue(message)

    def _say_done(self) -> None:
        if self._told:
            self._channel.queue(msg.Done(self._told))
            self._told = []

    def _flush(self) -> None:
        self._say_done()
        if ended := self._reader.ended():
            self._channel.queue(msg.Returned(ended))
        if news := suspicions().take_news():
            self._channel.queue(msg.Cleared(news))
        if self._channel.has_unsent:
            self._channel.flush()
        self._flushed_at = time.perf_counter()

    def _take_run(self, message: msg.Run) -> None:
        suspicions().learn_all(message.suspects)
        self._waiting.extend(calls_of(message, self._worker.plan.ops[message.op]))

    def _take_credit(self, message: msg.Credit) -> None:
        call = self._parked.pop(message.task, None)
        if call is not None:
            call.credit = max(0, call.credit) + message.credit
            self._waiting.append(call)
            return
        for call in (*self._waiting, *([self._running] if self._running else [])):
            if call.tasks[0].task == message.task and call.credit != NO_LIMIT:
                call.credit += message.credit

    def _take_go_on(self, message: msg.GoOn) -> None:
        call = self._parked.pop(message.task)
        call.credit = message.credit
        self._waiting.append(call)

    def _take_back(self, message: msg.GiveBack) -> None:
        gone = set(message.tasks)
        for task in message.tasks:
            call = self._parked.pop(task, None)
            if call is not None:
                self._drop(call)
        kept: deque[Call] = deque()
        for call in self._waiting:
            staying = [task for task in call.tasks if task.task not in gone]
            if not staying:
                self._drop(call)
                continue
            if len(staying) < len(call.tasks) and call.flow is None:
                self._give_up([task for task in call.tasks if task.task in gone])
                call.tasks = staying
            kept.append(call)  # what it has opened already is done in vain
        self._waiting = kept
        if message.unit:
            self._worker.discard(message.unit, message.epoch)

    def _free(self, message: msg.Free) -> None:
        for offset in message.offsets:
            self._arena.free(offset)

    def _publish(self, message: msg.Publish) -> None:
        try:
            record = self._worker.commit(message.unit, message.epoch, message.tally)
        except Exception as error:
            text = str(error) if isinstance(error, OSError | ThresherError) else traceback.format_exc()
            self._say(msg.NotPublished(message.unit.id, message.epoch, text, not isinstance(error, ThresherError)))
        else:
            self._say(msg.Published(message.unit.id, message.epoch, record))
        self._flush()

    # -- running ------------------------------------------------------------------------------------------------------

    def _next_call(self) -> Call | None:
        """The first in the queue that does not enter a stage for the second time."""
        if not self._suspended:
            return self._waiting.popleft() if self._waiting else None
        for place, call in enumerate(self._waiting):
            if call.is_begun:
                self._suspended.discard(call.op)
            elif call.op in self._suspended:
                continue
            del self._waiting[place]
            return call
        return None

    def _advance(self, call: Call) -> None:
        if kept := self._too_full_for(call):
            self._refuse(call, kept)
            return
        call.is_begun = True
        ended = self._run_flow(call, call.flow or self._start(call))
        (self._end_call if ended else self._park)(call)

    def _too_full_for(self, call: Call) -> int:
        """What the worker has kept from earlier calls, if that is too much to make this one."""
        kept = self._memory.before_call(time.perf_counter())
        return kept if self._has_finished_any and not call.is_begun else 0

    def _refuse(self, call: Call, kept: int) -> None:
        text = f"its worker had kept {kept // 10**6} MB from earlier calls; a fresh one makes this call"
        self._fail(call, "worker-full", text, fatal=False, blamed=False)

    def _guard(self, step: Callable[[Call], object], call: Call) -> None:
        """Take a step with a call; what goes wrong is told."""
        try:
            step(call)
        except PeerGone:
            raise
        except (MemoryError, WorkerFull) as error:
            self._fail(call, "out-of-memory", str(error) or "memory ran out", fatal=False)
            gc.collect()
            self._memory.give_back()
        except TaskAborted as error:
            self._fail(call, "aborted", str(error), fatal=False)
        except PayloadMissing as error:
            self._fail(call, PAYLOAD_LOST, str(error), fatal=False)
        except EncodeError as error:
            self._fail(call, "unsendable-result", str(error), fatal=False)
        except (SetupFailed, OSError, ThresherError) as error:
            self._fail(call, type(error).__name__, str(error), fatal=not is_out_of_memory(error))
        except Exception as error:  # a bug of ours or of a reader: tried again, elsewhere if need be
            self._fail(call, type(error).__name__, traceback.format_exc(), fatal=False)

    def _run_flow(self, call: Call, flow: Iterator[Produced]) -> bool:
        """Emit what a flow gives until it ends (true) or its credit is used up (false).

        Where nothing yields bit by bit, what comes next is known at once: then the only output of a task goes away with
        the news of its end, and no credit makes it wait behind its last output.
        """
        at_once = not self._bit_by_bit[call.op]
        produced = call.held or next(flow, None)
        call.held = None
        while produced is not None:
            following = next(flow, None) if at_once else None
            is_last = at_once and following is None
            if is_last and self.finishes_later:
                call.held = produced  # emitted when it is finished
                return True
            if produced.task is not None or produced.closes:
                self._emit(call, produced, is_last=is_last)
                if call.credit == 0 and not is_last:
                    call.held = following
                    return False
            now = time.perf_counter()
            if not is_last and now - self._looked_at > LOOK_EVERY_S:
                self._tell(call, now)
                self._breathe(now)
            produced = following if at_once else next(flow, None)
        return True

    def _start(self, call: Call) -> Iterator[Produced]:
        """Open what a call works on and make its flow, which runs when it is advanced."""
        tasks = []
        for task in call.tasks:
            call.opened += 1
            if task.payload is not None:
                tasks.append(self._reader.open(task.payload))
        call.order = TaskOrder(call.op, call.unit, call.tasks[0].epoch, tasks, call.done)
        call.outputs = [[] for _ in call.tasks]
        call.told_at = time.perf_counter()
        if not self._worker.is_ready(call.op):
            before = private_bytes()
            self._worker.prepare(self._worker.plan.ops[call.op])
            self._memory.was_set_up(before)
        call.flow = self._worker.start(call.order)
        return call.flow

    def _emit(self, call: Call, produced: Produced, *, is_last: bool) -> None:
        payload, items = None, 0
        if produced.task is not None:
            payload = self._store(produced.task)
            items = produced.task.num_items if self._worker.plan.ops[call.op].next is None else 0
        call.outputs[produced.parent].append(msg.Output(payload, produced.unit, produced.closes, items))
        if payload is None:
            return
        if call.credit != NO_LIMIT:
            # The next batch will be about as large: with less than half of that left it would be mostly debt.
            left = call.credit - payload.nbytes
            call.credit = left if left > payload.nbytes // 2 else 0
        if call.credit and not payload.data and not is_last:
            self._tell(call, self._flushed_at, at_once=True)

    def _store(self, task: Any) -> Payload:
        encoded = encode(task)
        if encoded.nbytes < INLINE_BYTES:
            return encoded.inline()
        if self._spill_to:
            self._spilled += 1
            return spill(encoded, os.path.join(self._spill_to, f"payload-{self._arena.number}-{self._spilled}"))
        return self._arena.put(encoded)

    def _tell(self, call: Call, now: float, *, at_once: bool = False) -> None:
        """While a task runs, say what it has emitted: a large batch at once, small ones and counts now and then."""
        if len(call.tasks) > 1:
            return
        if not call.outputs[0] and not (call.emitted or self._worker.plan.ops[call.op].writes):
            return  # should it be lost, it is tried again by itself, and counts that were told would count twice
        if not at_once and now - call.told_at < (FLUSH_EVERY_S if call.outputs[0] else TELL_EVERY_S):
            return
        call.emitted = True
        self._say(msg.Progress(self._told_of(call, self._report(call))[0]))
        call.told_at = time.perf_counter()
        self._flush()

    def _report(self, call: Call) -> list[TaskReport]:
        assert call.order is not None
        return self._worker.report(call.order)

    def _told_of(self, call: Call, reports: list[TaskReport]) -> list[msg.Told]:
        told = [
            msg.Told(task.task, outputs, report.tally, report.busy_s, report.quarantined)
            for task, outputs, report in zip(call.tasks, call.outputs, reports, strict=True)
        ]
        call.outputs = [[] for _ in call.tasks]
        return told

    def _park(self, call: Call) -> None:
        self._parked[call.tasks[0].task] = call
        self._suspended.add(call.op)
        self._say(msg.Parked(self._told_of(call, self._report(call))[0]))
        self._flush()

    def _end_call(self, call: Call) -> None:
        """A call came to its end."""
        self._finish(call)

    def _finish(self, call: Call) -> None:
        assert call.order is not None
        if call.held is not None:
            self._emit(call, call.held, is_last=True)
        self._told.extend(self._told_of(call, self._worker.finish(call.order)))
        self._has_finished_any = True
        large = call.unit.nbytes if not call.order.tasks else 0
        call.forget()
        if large >= INLINE_BYTES:
            self._flush()

    def _fail(self, call: Call, error: str, text: str, *, fatal: bool, blamed: bool = True) -> None:
        self._drop(call)
        self._say(msg.Failed([task.task for task in call.tasks], error, text, fatal, blamed))
        self._flush()

    def _drop(self, call: Call) -> None:
        """Give up a call, whatever state it is in."""
        if call.order is None:
            self._give_up(call.tasks[call.opened :])
            return
        if call.is_begun:
            self._suspended.discard(call.op)
        self._worker.forget(call.order)
        for outputs in call.outputs:
            for output in outputs:
                if output.payload is not None and output.payload.arena == self._arena.number:
                    self._arena.free(output.payload.offset)
        call.forget()

    def _give_up(self, tasks: list[msg.TaskIn]) -> None:
        for task in tasks:
            if task.payload is not None:
                self._reader.give_up(task.payload)
