# SPDX-License-Identifier: Apache-2.0
"""An event loop in a thread of its own: callers wait for it, whether or not their thread runs a loop as well."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")
_GRACE_S = 5.0
"""Time that cancelled work may take to end."""


class Background(Generic[Result]):
    """A coroutine that runs in the thread of a loop."""

    def __init__(self, work: Coroutine[Any, Any, Result], loop: asyncio.AbstractEventLoop) -> None:
        self._ended = threading.Event()
        self._future = asyncio.run_coroutine_threadsafe(self._noted(work), loop)

    def result(self) -> Result:
        """Wait for the result."""
        return self._future.result()

    def when_done(self, call: Callable[[], object]) -> None:
        """Call something once the coroutine has ended, in the thread of the loop."""
        self._future.add_done_callback(lambda _: call())

    def cancel(self) -> None:
        """Cancel the coroutine and wait until it has ended; nothing happens if it has."""
        if self._future.cancel():
            self._ended.wait(_GRACE_S)

    async def _noted(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return await work
        finally:
            self._ended.set()


class LoopThread:
    """Runs coroutines for callers of other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="thresher-endpoint", daemon=True)
        self._thread.start()
        self.is_stopped = False

    def start(self, work: Coroutine[Any, Any, Result]) -> Background[Result]:
        """Start a coroutine."""
        return Background(work, self._loop)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of a coroutine. If the caller is interrupted meanwhile, it is cancelled first."""
        task = self.start(work)
        try:
            return task.result()
        finally:
            task.cancel()

    def stop(self) -> None:
        """End the loop and its thread."""
        self.is_stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
