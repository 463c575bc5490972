# SPDX-License-Identifier: Apache-2.0
"""The file of one unit of documents whose parts have keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from thresher.core.documents.batch import DocumentBatch
from thresher.stages.dedup.files.frames import FrameWriter
from thresher.stages.dedup.files.keys import Keys, grouped
from thresher.stages.dedup.files.unit_file import EDGES, UnitWriter, add_keys

if TYPE_CHECKING:
    from thresher.core.source import FileFacts

_KEY_BYTES = 24


class PartsFile(UnitWriter):
    """Writes the documents of one unit, and the keys of all parts of them; numbers are those of parts."""

    def __init__(self, path: str, keys_of: Callable[[DocumentBatch], Any], buffer_bytes: int) -> None:
        """`keys_of` returns two hashes for each part. `buffer_bytes`: the bytes of keys that are held at most."""
        super().__init__(path, keys_of, buffer_bytes, with_documents=True)
        self._wide = True
        self._records = 0

    def write(self, batch: DocumentBatch) -> None:
        """Add documents."""
        hashes: Any = self._keyed(batch)
        numbers = np.arange(self._documents, self._documents + len(hashes), dtype=np.uint64)
        self._keys.append(Keys(hashes[:, 0], hashes[:, 1], numbers))
        self._documents += len(hashes)
        self._records += len(batch)
        self._held += _KEY_BYTES * len(hashes)
        self._write_documents(batch)
        if self._held >= self._buffer_bytes:
            self._flush()

    def close(self) -> FileFacts:
        """Write the rest and the table of contents."""
        self._flush()
        return self._file.close(self._records, [self._documents, self._total_keys, self._wide])


class KeysFile:
    """Writes keys that have numbers already; a `RecordWriter`. Of equal keys held at the same time it writes the
    first, and edges from the others to it."""

    def __init__(self, path: str, keys_of: Callable[[DocumentBatch], tuple[int, Keys]], buffer_bytes: int) -> None:
        """`keys_of` returns the number of the unit of documents and some of its keys."""
        self._file = FrameWriter(path)
        self._keys_of = keys_of
        self._buffer_bytes = buffer_bytes
        self._held: list[Keys] = []
        self._held_bytes = self._total = self._unit = 0

    def write(self, batch: DocumentBatch) -> None:
        """Add keys."""
        self._unit, keys = self._keys_of(batch)
        self._held.append(keys)
        self._held_bytes += _KEY_BYTES * len(keys.hashes)
        self._total += len(keys.hashes)
        if self._held_bytes >= self._buffer_bytes:
            self._flush()

    def _flush(self) -> None:
        keys, edges = grouped(Keys.concat(self._held, wide=True))
        add_keys(self._file, keys)
        if len(edges):
            self._file.add(EDGES, edges.astype(np.uint32).tobytes())
        self._held, self._held_bytes = [], 0

    def close(self) -> FileFacts:
        """Write the rest and the table of contents, in which the number of the unit is that of its documents."""
        self._flush()
        return self._file.close(self._total, [self._unit, self._total, True])

    def abort(self) -> None:
        """Remove the file."""
        self._file.abort()
