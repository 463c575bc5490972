# SPDX-License-Identifier: Apache-2.0
"""An event loop in a thread of its own: callers wait for it, whether or not their thread runs a loop as well."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")
_GRACE_S = 5.0
"""Time that cancelled work may take to end."""


class LoopThread:
    """Runs coroutines for callers of other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="thresher-endpoint", daemon=True)
        self._thread.start()
        self.is_stopped = False

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of a coroutine. If the caller is interrupted meanwhile, it is cancelled first."""
        ended = threading.Event()
        task = asyncio.run_coroutine_threadsafe(_noted(work, ended), self._loop)
        try:
            return task.result()
        except BaseException:
            if task.cancel():  # the caller was interrupted: it is not the error of the coroutine
                ended.wait(_GRACE_S)
            raise

    def stop(self) -> None:
        """End the loop and its thread."""
        self.is_stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _noted(work: Coroutine[Any, Any, Result], ended: threading.Event) -> Result:
    try:
        return await work
    finally:
        ended.set()
