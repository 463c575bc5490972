# SPDX-License-Identifier: Apache-2.0
"""A worker process whose device must not wait: whatever can be done while the stage computes is done then."""

from __future__ import annotations

import time
from typing import Any

from thresher.runtime.attendant import Attendant, attended_by
from thresher.runtime.wire import PeerGone
from thresher.runtime.worker_call import Call
from thresher.runtime.worker_process import WorkerProcess


class AttendedWorkerProcess(WorkerProcess):
    """Between two calls it only takes the next one, whose payloads are open. The rest are errands."""

    finishes_later = True

    def __init__(self, *arguments: Any) -> None:
        """As for any worker process."""
        super().__init__(*arguments)
        self._ended: list[Call] = []
        """Calls that came to their end and are not finished."""

    def serve(self) -> None:
        """Until the driver says so, or is gone."""
        with attended_by(Attendant(self._do_errands, self._channel.fileno())):
            while not self._stopping:
                call = self._next_call()
                if call is None:
                    self._do_errands()
                    if not self._waiting and not self._stopping:
                        self._memory.tidy()
                        self._look(wait=True)
                    continue
                self._running = call
                self._guard(self._advance, call)
                self._running = None
            self._do_errands()

    def _end_call(self, call: Call) -> None:
        self._ended.append(call)

    def _finish_ended(self) -> None:
        ended, self._ended = self._ended, []
        for call in ended:
            self._guard(self._finish, call)
        if ended:
            now = time.perf_counter()
            self._memory.after_call(now, self._reader.held_bytes)
            self._tell_growth(now)

    def _park(self, call: Call) -> None:
        self._finish_ended()  # who hears of a parked call takes back what is behind it
        super()._park(call)

    def _do_errands(self) -> None:
        """Finish the calls that ended, look for messages, and start the next call as far as the stage's own code."""
        self._finish_ended()
        self._look(wait=False)
        if self._channel.closed:
            raise PeerGone("the driver is gone")
        self._flush()
        self._start_next()

    def _start_next(self) -> None:
        if self._waiting and self._waiting[0].flow is None:
            call = self._waiting[0]
            self._guard(self._start, call)
            if call.flow is None:  # it failed, and that was told
                self._waiting.remove(call)
