# SPDX-License-Identifier: Apache-2.0
"""A helper thread that does a worker's chores while its stage computes.

An accelerator idles while its worker opens the next payload, encodes the last result and writes to a socket. In such a
worker a helper thread does this during the calls of the stage.

Invariant: one lock, the *desk*, protects all state of the worker. The worker's own thread holds it at all times except
while the stage's own code runs, and the helper does chores only while it holds it. So the two threads never touch that
state at the same time, and every chore falls into a call.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Iterator
from typing import Any


class HelperThread:
    """Does chores while the stage computes: when a call begins, and whenever a message comes."""

    def __init__(self, chores: Callable[[], None], messages: int) -> None:
        """`chores` is called with the desk held; `messages`: the descriptor where messages come."""
        self._chores = chores
        self._messages = messages
        self._desk = threading.Lock()
        self._worker_has_desk = True
        self._bell = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._serve, name="helper", daemon=True)
        self._error: BaseException | None = None
        self._is_over = False

    def start(self) -> None:
        """Start the thread; the worker holds the desk."""
        self._desk.acquire()
        self._thread.start()

    def stop(self) -> None:
        """End the thread; the worker makes no further calls."""
        self._is_over = True
        os.eventfd_write(self._bell, 1)
        if self._worker_has_desk:
            self._desk.release()
        self._thread.join()
        os.close(self._bell)

    def call(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """Call a stage's own code, and let the helper have the desk meanwhile."""
        os.eventfd_write(self._bell, 1)
        if not self._worker_has_desk:
            return function(argument)
        with self.has_desk():
            return function(argument)

    @contextlib.contextmanager
    def has_desk(self) -> Iterator[None]:
        """Give the desk to the helper within this block, in which the worker only calls stages' own code. An error of a
        chore is raised at its end."""
        self._worker_has_desk = False
        self._desk.release()
        try:
            yield
        finally:
            self._desk.acquire()
            self._worker_has_desk = True
            if self._error is not None:
                raise self._error

    def _serve(self) -> None:
        # A thread of this kind that is woken does not take the core of the one that woke it.
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        poll.register(self._messages, select.POLLIN)
        while True:
            came = dict(poll.poll())
            with self._desk:  # if the worker holds it, until its next call
                if self._bell in came:
                    os.eventfd_read(self._bell)
                if self._is_over:
                    return
                try:
                    self._chores()
                except BaseException as error:  # raised in the worker when it has the desk again
                    self._error = error
                    return


helper: HelperThread | None = None
"""The helper thread of this process, if it has one."""


@contextlib.contextmanager
def helped_by(thread: HelperThread) -> Iterator[None]:
    """Let a helper thread do chores during the calls of stages within this block."""
    global helper  # one per process: a worker has one thread that calls stages
    thread.start()
    helper = thread
    try:
        yield
    finally:
        helper = None
        thread.stop()
