# SPDX-License-Identifier: Apache-2.0
"""A second thread that serves a worker while its stage computes.

A device idles while its worker opens the next payload, encodes the last result and writes to a socket. In a worker that
keeps a device busy an attendant does all that meanwhile. The two threads never work at the same time on what is the
worker's: there is one desk, and the worker leaves it to the attendant only while the stage's own code runs.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Iterator
from typing import Any


class Attendant:
    """Does errands while the stage computes: when it begins to, and whenever a message comes."""

    def __init__(self, errands: Callable[[], None], messages: int) -> None:
        """`errands` is called at the desk; `messages`: the descriptor where messages come."""
        self._errands = errands
        self._messages = messages
        self._desk = threading.Lock()
        self._worker_is_seated = True
        self._bell = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._serve, name="attendant", daemon=True)
        self._error: BaseException | None = None
        self._is_over = False

    def start(self) -> None:
        """Begin; the worker sits at the desk."""
        self._desk.acquire()
        self._thread.start()

    def stop(self) -> None:
        """End the thread; the worker has no further calls."""
        self._is_over = True
        os.eventfd_write(self._bell, 1)
        if self._worker_is_seated:
            self._desk.release()
        self._thread.join()
        os.close(self._bell)

    def call(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """Call a stage's own code, and leave the desk to the attendant for as long."""
        self.ring()
        with self.has_the_desk():
            return function(argument)

    def ring(self) -> None:
        """A stage's own code is about to run, and there may be errands to do meanwhile."""
        os.eventfd_write(self._bell, 1)

    @contextlib.contextmanager
    def has_the_desk(self) -> Iterator[None]:
        """The worker is not at the desk within this block: it runs stages' own code."""
        self._worker_is_seated = False
        self._desk.release()
        try:
            yield
        finally:
            self._desk.acquire()
            self._worker_is_seated = True
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
            with self._desk:  # if the worker sits there, until its next call
                if self._bell in came:
                    os.eventfd_read(self._bell)
                if self._is_over:
                    return
                try:
                    self._errands()
                except BaseException as error:  # raised in the worker, when it is back
                    self._error = error
                    return


_here: Attendant | None = None


@contextlib.contextmanager
def attended_by(attendant: Attendant) -> Iterator[None]:
    """Within this block calls of stages in this process are attended."""
    global _here  # one per process: a worker has one thread that calls stages
    attendant.start()
    _here = attendant
    try:
        yield
    finally:
        _here = None
        attendant.stop()


def call_stage(function: Callable[[Any], Any], argument: Any) -> Any:
    """Call a stage's own code."""
    return function(argument) if _here is None else _here.call(function, argument)
