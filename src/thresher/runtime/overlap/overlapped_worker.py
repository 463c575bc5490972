# SPDX-License-Identifier: Apache-2.0
"""A worker process whose device must not wait: whatever can be done while the stage computes is done then.

Between two calls the worker takes the next one, which is ready, and makes it. It does not come to its desk for that:
what it takes and what it leaves behind goes through two queues, and the attendant does the rest. Only what is out of
the ordinary is done by the worker itself, at its desk: a call that failed, a generator, a record that workers died on.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from thresher.runtime.orders import Produced
from thresher.runtime.overlap.helper_thread import Attendant, attended_by
from thresher.runtime.overlap.overlapped_flow import AttendedFlow
from thresher.runtime.payloads.payload import CopyNeeded, views_lent
from thresher.runtime.processes import messages as msg
from thresher.runtime.processes.wire import PeerGone
from thresher.runtime.processes.worker_process import GETS_COPIES, LOOK_EVERY_S, WorkerProcess
from thresher.runtime.worker.call_record import NO_LIMIT, Call
from thresher.runtime.worker.stage_call import ABORTED


class AttendedWorkerProcess(WorkerProcess):
    """Between two calls it only takes the next one. The rest are errands."""

    finishes_later = True

    def __init__(self, *arguments: Any) -> None:
        """As for any worker process."""
        super().__init__(*arguments)
        self._worker.flow_type = AttendedFlow
        self._attendant = Attendant(self._do_errands, self._channel.fileno())
        self._next: deque[Call] = deque()
        """The call that is ready, if there is one. Who takes it out has it, at the desk or not."""
        self._ended: deque[tuple[Callable[[Call], None], Call]] = deque()
        """Calls that the worker has done its part of, in order, and what is left to do with each."""

    def serve(self) -> None:
        """Until the driver says so, or is gone."""
        with attended_by(self._attendant):
            while not self._stopping:
                if self._next:
                    self._make_ready_calls()
                else:
                    self._serve_at_desk()
            self._do_errands()

    # -- away from the desk -------------------------------------------------------------------------------------------

    def _make_ready_calls(self) -> None:
        """Make one call after the other, as long as the next one is ready."""
        call = step = None
        with self._attendant.has_the_desk():
            while step is None and not self._stopping:
                call = self._take_ready()
                if call is None:
                    break
                step = self._make(call)
        if call is not None and step is not None:
            self._recall()
            self._finish_ended()
            self._guard(step, call)
        self._running = None

    def _take_ready(self) -> Call | None:
        try:
            self._running = self._next[0]  # said before it is taken, so that nobody finds it nowhere
            self._running = call = self._next.popleft()
        except IndexError:
            return None
        return call

    def _make(self, call: Call) -> Callable[[Call], None] | None:
        """Make a call that is ready; what is to be done with it at the desk, `None`: nothing."""
        assert call.ready is not None, "only ready calls come here"
        if kept := self._too_full_for(call):
            return functools.partial(self._refuse, kept=kept)
        if call.ready.still_holds():
            call.is_begun = True
            try:
                with views_lent(self._lends_views):
                    call.ready.make(self._attendant.ring)
            except CopyNeeded:
                return self._restart_with_copies
            if call.ready.is_over(may_wait=call.credit != NO_LIMIT):
                self._ended.append((self._settle, call))
                return None
        return self._advance

    # -- at the desk --------------------------------------------------------------------------------------------------

    def _serve_at_desk(self) -> None:
        """What is due, and then the next call, if it must be made from here."""
        self._finish_ended()
        now = time.perf_counter()
        if now - self._looked_at > LOOK_EVERY_S:
            self._breathe(now)
        self._ready_next()
        if self._next or self._stopping:
            return
        call = self._next_call()
        if call is None:
            self._memory.tidy()
            self._flush()
            self._look(wait=True)
            return
        self._running = call
        self._guard(self._advance, call)
        self._running = None

    def _start(self, call: Call) -> Iterator[Produced]:
        flow = super()._start(call)
        if not self._bit_by_bit[call.op]:
            assert call.order is not None
            attended = self._worker.flow_of(call.order)
            assert isinstance(attended, AttendedFlow)
            call.ready = attended.ready()
            if call.ready is not None:
                flow = call.flow = attended.rest(call.ready)
        return flow

    def _restart_with_copies(self, call: Call) -> None:
        self._recall()
        for other in [other for other in self._waiting if other.order is not None and not other.is_begun]:
            if not self._reader.can_reopen:
                self._waiting.remove(other)
                self._fail(other, ABORTED, GETS_COPIES, fatal=False)
                continue
            for given, task in zip(other.order.tasks if other.order else (), other.tasks, strict=False):
                assert task.payload is not None
                given.__dict__ = self._reader.open(task.payload, own=True).__dict__
        super()._restart_with_copies(call)

    def _end_call(self, call: Call) -> None:
        self._ended.append((self._finish, call))

    def _finish_ended(self) -> None:
        has_ended = bool(self._ended)
        while self._ended:
            step, call = self._ended.popleft()
            self._guard(step, call)
        if has_ended:
            now = time.perf_counter()
            self._memory.after_call(now, self._reader.held_bytes)
            self._tell_growth(now)

    def _settle(self, call: Call) -> None:
        """Finish a call whose stage has come back. Where nothing could be made of what it gave, the worker goes on with
        it in its turn, as if it had only just failed."""
        assert call.ready is not None
        assert call.flow is not None
        if not call.ready.settle():
            self._recall()
            call.is_begun = False
            self._waiting.appendleft(call)
            return
        ended = self._run_flow(call, call.flow)
        assert ended, "a call that may have to wait ends at the desk"
        self._finish(call)

    def _park(self, call: Call) -> None:
        self._finish_ended()  # who hears of a parked call takes back what is behind it
        self._recall()  # something may have become ready while the stage was called from the desk
        super()._park(call)

    # -- errands ------------------------------------------------------------------------------------------------------

    def _do_errands(self) -> None:
        """Finish the calls that ended, look for messages, and get the next call ready."""
        self._finish_ended()
        self._look(wait=False)
        if self._channel.closed:
            raise PeerGone("the driver is gone")
        self._flush()
        self._ready_next()

    def _ready_next(self) -> None:
        if not self._waiting or self._next or self._suspended:
            return
        call = self._waiting[0]
        if call.flow is None and self._worker.is_ready(call.op):
            self._guard(self._start, call)
            if call.flow is None:  # it failed, and that was told
                self._waiting.remove(call)
                return
        if call.ready is not None and not call.ready.is_made:
            self._next.append(self._waiting.popleft())

    def _recall(self) -> None:
        """The call that is ready waits again, first of all."""
        if self._next:
            try:
                self._waiting.appendleft(self._next.popleft())
            except IndexError:  # the worker was faster
                return

    def _take_credit(self, message: msg.Credit) -> None:
        self._recall()
        super()._take_credit(message)

    def _take_back(self, message: msg.GiveBack) -> None:
        self._recall()
        super()._take_back(message)
