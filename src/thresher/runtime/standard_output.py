# SPDX-License-Identifier: Apache-2.0
"""Output to standard output: files are committed to a temporary folder, and each one is copied to standard output and
removed once all units before it are committed."""

from __future__ import annotations

import contextlib
import copy
import heapq
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from thresher.core.arguments.options import RunOptions
from thresher.core.planning.plan import Plan
from thresher.core.unit import Unit
from thresher.errors import UsageError, cannot_write_results

NOTE = (
    "this run reads standard input or writes to standard output: it keeps no run folder, cannot be resumed, and counts "
    "quarantined records without keeping them"
)
_COPY_BYTES = 2**20
_Position = tuple[int, float]


def without_ledger(options: RunOptions) -> RunOptions:
    """Return the options of a run over standard streams, which keeps no run folder and cannot be resumed."""
    if options.run_dir is not None or options.keep_scores:
        asked = "run_dir" if options.run_dir is not None else "keep_scores"
        raise UsageError(
            f"{asked}: a run over standard input or output keeps no run folder; leave it out, or use files"
        )
    return replace(options, ledger=False)


class StandardOutput:
    """Copies finished files to standard output, in input order."""

    def __init__(self, folder: str, descriptor: int) -> None:
        self.folder = folder
        self._descriptor = descriptor
        self._open: list[tuple[_Position, str]] = []
        self._committed: set[str] = set()
        self._waiting: list[tuple[_Position, list[str]]] = []

    def plan(self, plan: Plan) -> Plan:
        """Return the plan with a writer to the folder."""
        sink: Any = copy.copy(plan.sink)
        sink.path = self.folder
        return replace(plan, stages=(*plan.stages[:-1], sink))

    def opened(self, unit: Unit) -> None:
        """Register a unit that is not committed yet. Units not yet cut from a stream sort after those already cut."""
        heapq.heappush(self._open, ((unit.order[0], math.inf if unit.stream else unit.order[1]), unit.id))

    def committed(self, unit: Unit, record: Any) -> None:
        """Mark a unit as committed, and copy the files that no open unit precedes."""
        self._committed.add(unit.id)
        if record.outputs and not record.handed_on:
            heapq.heappush(self._waiting, (unit.order, [file.path for file in record.outputs]))
        while self._open and self._open[0][1] in self._committed:
            self._committed.discard(heapq.heappop(self._open)[1])
        while self._waiting and (not self._open or self._waiting[0][0] < self._open[0][0]):
            for name in heapq.heappop(self._waiting)[1]:
                self._copy(os.path.join(self.folder, name))

    def _copy(self, path: str) -> None:
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(_COPY_BYTES):
                left = memoryview(piece)
                while left:
                    left = left[self._write(left) :]
        os.remove(path)

    def _write(self, piece: memoryview) -> int:
        try:
            return os.write(self._descriptor, piece)
        except BrokenPipeError:  # the consumer closed the pipe
            raise
        except OSError as error:
            raise cannot_write_results(error) from None


@contextlib.contextmanager
def standard_output() -> Iterator[StandardOutput]:
    """Reserve standard output for results; everything else that this process prints goes to standard error."""
    folder = tempfile.mkdtemp(prefix="thresher-stdout-")
    sys.stdout.flush()
    results = os.dup(1)
    os.dup2(2, 1)
    try:
        yield StandardOutput(folder, results)
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os.dup2(results, 1)
        os.close(results)
        shutil.rmtree(folder, ignore_errors=True)
