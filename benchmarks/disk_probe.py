# SPDX-License-Identifier: Apache-2.0
"""Watch what lies in a folder while a command runs: the largest number of files, and of bytes between phases."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

_INTERVAL_S = 0.2


class DiskProbe:
    """Looks at the run folder of an output folder several times a second, from a thread."""

    def __init__(self, output: Path) -> None:
        self._run_dir = output / "_thresher"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak_files = 0
        """Largest number of files in the run folder at a time."""
        self.peak_phase_bytes = 0
        """Largest sum of the files between phases, and of files that are being written."""

    def __enter__(self) -> DiskProbe:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        phases = os.path.join(self._run_dir, "phases")
        while not self._ended.wait(_INTERVAL_S):
            files = list(_files_below(self._run_dir))
            self.peak_files = max(self.peak_files, len(files))
            between = sum(size for path, size in files if path.startswith(phases) or ".phase" in path)
            self.peak_phase_bytes = max(self.peak_phase_bytes, between)


def _files_below(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the path and the size of each file; some vanish meanwhile."""
    for parent, _, names in os.walk(folder):
        for path in (os.path.join(parent, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                yield path, os.stat(path).st_size


def shuffled_bytes(output: Path) -> int:
    """Return the size of all files that units of a finished run handed on to the phase after theirs, joins left out."""
    from thresher.ledger.folder.find import read_commits
    from thresher.ledger.records import JOIN_PREFIX

    records = read_commits(str(output / "_thresher"), {})
    handed = [r for r in records if r.handed_on and not r.unit.startswith(JOIN_PREFIX)]
    return sum(file.bytes for record in handed for file in record.outputs)
