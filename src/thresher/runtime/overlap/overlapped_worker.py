# SPDX-License-Identifier: Apache-2.0
"""A worker process whose accelerator must not wait: everything but the calls of the stage is done during the calls.

Invariant: a call belongs to exactly one of the two threads, and passes between them through two queues. `_next` holds
the call that the helper has prepared; whoever removes it owns it. `_ended` holds calls whose stage has returned, in
order, for the helper to settle and report. So between two calls the worker's thread only takes the next one, without
the desk (see `helper_thread.py`). Everything out of the ordinary is done by the worker's thread with the desk held: a
call that failed, a generator, a task that workers crashed on.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from thresher.errors import RunFailedError
from thresher.runtime.orders import Produced
from thresher.runtime.overlap.helper_thread import HelperThread, helped_by
from thresher.runtime.overlap.overlapped_flow import OverlappedFlow
from thresher.runtime.payloads.payload import CopyNeeded, views_lent
from thresher.runtime.processes import messages as msg
from thresher.runtime.processes.wire import PeerGone
from thresher.runtime.processes.worker_process import GETS_COPIES, LOOK_EVERY_S, ProcessCall, WorkerProcess
from thresher.runtime.worker.call import call as make
from thresher.runtime.worker.call import end_note, settle
from thresher.runtime.worker.stage_call import ABORTED
from thresher.scheduler.model import NO_LIMIT


class OverlappedWorkerProcess(WorkerProcess):
    """The main loop of a worker process with a helper thread."""

    finishes_later = True

    def __init__(self, *arguments: Any) -> None:
        """Take the arguments of any worker process."""
        super().__init__(*arguments)
        self._worker.flow_type = OverlappedFlow
        self._helper = HelperThread(self._do_chores, self._channel.fileno())
        self._next: deque[ProcessCall] = deque()
        """The call that is ready, if there is one. Whoever removes it owns it, with the desk or without."""
        self._ended: deque[tuple[Callable[[ProcessCall], None], ProcessCall]] = deque()
        """Calls whose stage has returned, in order, and what is left to do with each."""

    def serve(self) -> None:
        """Run calls until the driver sends `Stop` or exits."""
        with helped_by(self._helper):
            while not self._stopping:
                if self._next:
                    self._make_ready_calls()
                else:
                    self._serve_at_desk()
            self._do_chores()

    # -- without the desk ---------------------------------------------------------------------------------------------

    def _make_ready_calls(self) -> None:
        """Make one call after the other, as long as the next one is ready."""
        call = step = None
        with self._helper.has_desk():
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

    def _take_ready(self) -> ProcessCall | None:
        try:
            self._running = self._next[0]  # published before it is removed, so that it is always in at least one place
            self._running = call = self._next.popleft()
        except IndexError:
            return None
        return call

    def _make(self, call: ProcessCall) -> Callable[[ProcessCall], None] | None:
        """Make a call that is ready; return what is left to do with it with the desk held, `None` for nothing."""
        assert call.ready is not None, "only ready calls come here"
        if kept := self._too_full_for(call):
            return functools.partial(self._refuse, kept=kept)
        if call.ready.still_holds():
            call.is_begun = True
            try:
                with views_lent(self._lends_views):
                    make(call.ready)
            except CopyNeeded:
                return self._restart_with_copies
            except RunFailedError as error:
                return functools.partial(self._end_run, error=error)
            finally:
                end_note()
            call.ready.noted = call.ready.context.take_noted()
            if call.ready.is_over(may_wait=call.credit != NO_LIMIT):
                self._ended.append((self._settle, call))
                return None
        return self._advance

    def _end_run(self, call: ProcessCall, error: RunFailedError) -> None:
        raise error

    # -- with the desk ------------------------------------------------------------------------------------------------

    def _serve_at_desk(self) -> None:
        """Do what is due, and then make the next call, if it must be made with the desk held."""
        self._finish_ended()
        now = time.perf_counter()
        if now - self._looked_at > LOOK_EVERY_S:
            self._breathe(now)
        self._ready_next()
        if self._next or self._stopping:
            return
        call = self._calls.next()
        if call is None:
            self._memory.tidy()
            self._flush()
            self._look(wait=True)
            return
        self._running = call
        self._guard(self._advance, call)
        self._running = None

    def _start(self, call: ProcessCall) -> Iterator[Produced]:
        flow = super()._start(call)
        if not self._bit_by_bit[call.op]:
            assert call.order is not None
            overlapped = self._worker.flow_of(call.order)
            assert isinstance(overlapped, OverlappedFlow)
            call.ready = overlapped.ready()
            if call.ready is not None:
                flow = call.flow = overlapped.rest(call.ready)
        return flow

    def _restart_with_copies(self, call: ProcessCall) -> None:
        """Start prepared calls again too: their tasks hold views."""
        self._lends_views = False
        self._recall()
        for other in [other for other in self._calls.waiting if other.order is not None and not other.is_begun]:
            if self._reader.can_reopen:
                self._drop(other)
                other.opened = 0
                self._guard(self._start, other)  # at once: its leases are still open, since nothing was flushed
            else:
                self._fail(other, ABORTED, GETS_COPIES, fatal=False)
            if other.flow is None:  # it failed, and that was reported
                self._calls.waiting.remove(other)
        super()._restart_with_copies(call)

    def _end_call(self, call: ProcessCall) -> None:
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

    def _settle(self, call: ProcessCall) -> None:
        """Finish a call whose stage has returned. If its result makes no sense, the worker goes on with the call in its
        turn, as if the stage had just failed."""
        assert call.ready is not None
        assert call.flow is not None
        if not settle(call.ready):
            self._recall()
            call.is_begun = False
            self._calls.waiting.appendleft(call)
            return
        ended = self._run_flow(call, call.flow)
        assert ended, "a call that may have to wait ends with the desk held"
        self._finish(call)

    def _park(self, call: ProcessCall) -> None:
        self._finish_ended()  # on the news of a parked call the driver takes back the calls behind it
        self._recall()  # a call may have become ready while the stage was called with the desk held
        super()._park(call)

    # -- chores -------------------------------------------------------------------------------------------------------

    def _do_chores(self) -> None:
        """Finish the calls that ended, look for messages, and get the next call ready."""
        self._finish_ended()
        self._look(wait=False)
        if self._channel.closed:
            raise PeerGone("the driver is gone")
        self._flush()
        self._ready_next()

    def _ready_next(self) -> None:
        if not self._calls.waiting or self._next or self._calls.suspended:
            return
        call = self._calls.waiting[0]
        if call.flow is None and self._worker.is_ready(call.op):
            self._guard(self._start, call)
            if call.flow is None:  # it failed, and that was reported
                self._calls.waiting.remove(call)
                return
        if call.ready is not None and not call.ready.is_made:
            self._next.append(self._calls.waiting.popleft())

    def _recall(self) -> None:
        """Put the call that is ready back to the front of the queue."""
        if self._next:
            try:
                self._calls.waiting.appendleft(self._next.popleft())
            except IndexError:  # the worker's thread was faster
                return

    def _take_credit(self, message: msg.Credit) -> None:
        self._recall()
        super()._take_credit(message)

    def _take_back(self, message: msg.GiveBack) -> None:
        self._recall()
        super()._take_back(message)
