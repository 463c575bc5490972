# SPDX-License-Identifier: Apache-2.0
"""Lists units while work already runs: a short while in the driver's own time, and if that is not enough, in a
thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator

from thresher.core.unit import Unit

FIRST_SLICE_S = 0.05
BATCH_UNITS = 1000


class Lister:
    """Hands out batches of units as they are found."""

    def __init__(self, units: Iterator[Unit]) -> None:
        self._units = units
        self._found: queue.SimpleQueue[list[Unit] | BaseException | None] = queue.SimpleQueue()
        self._started = False
        self.complete = False

    def take(self) -> list[Unit]:
        """Units found since the last call; sets `complete` at the end and raises what the listing raised."""
        if self.complete:
            return []
        if not self._started:
            return self._first_slice()
        taken: list[Unit] = []
        while not self._found.empty():
            found = self._found.get()
            if isinstance(found, BaseException):
                raise found
            if found is None:
                self.complete = True
                break
            taken.extend(found)
        return taken

    def _first_slice(self) -> list[Unit]:
        """A small input is listed here and now, so that its first task need not wait for a thread."""
        self._started = True
        taken = []
        until = time.monotonic() + FIRST_SLICE_S
        for unit in self._units:
            taken.append(unit)
            if time.monotonic() > until:
                threading.Thread(target=self._rest, name="thresher-lister", daemon=True).start()
                return taken
        self.complete = True
        return taken

    def _rest(self) -> None:
        batch: list[Unit] = []
        try:
            for unit in self._units:
                batch.append(unit)
                if len(batch) >= BATCH_UNITS or self._found.empty():
                    self._found.put(batch)
                    batch = []
        except BaseException as error:  # handed over to the driver, which raises it
            self._found.put(error)
            return
        self._found.put(batch)
        self._found.put(None)
