# SPDX-License-Identifier: Apache-2.0
"""Documents as bytes in a file that this or a later process reads: no pickle, so a file cannot bring code along."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np

from thresher.core.documents.batch import DocumentBatch
from thresher.core.documents.records import RawLines
from thresher.core.records.record_ids import RecordIds
from thresher.core.records.record_task import RecordTask
from thresher.errors import RunFailedError, with_article


class _Head(msgspec.Struct, array_like=True):
    """The parts of a block that are no arrays."""

    count: int
    """Number of documents."""
    is_table: bool
    """True if the documents are an Arrow table, otherwise JSON lines."""
    sources: tuple[tuple[str, str], ...]
    """Sources of the ids."""
    has_which: bool
    """True if the ids have several sources."""
    suffixes: tuple[str, ...] | None
    """Suffixes of the ids."""
    lengths: tuple[int, ...]
    """Lengths of the parts behind the head."""


_HEAD = msgspec.msgpack.Decoder(_Head)


def with_settled_lines(batch: DocumentBatch) -> DocumentBatch:
    """Return the batch with all changes in its lines, where it has lines.

    The size of a document must not depend on when its line was changed: a stage that a worker crashed in may get its
    records one by one.
    """
    if batch.raw_lines is None or batch.untouched:
        return batch
    assert batch.ids is not None, "documents of a run have ids"
    return DocumentBatch.from_lines(RawLines.join(batch.json_lines()), batch.ids)


def encode_block(batch: RecordTask) -> bytes:
    """Return documents that have ids as bytes; other records have no such form."""
    if not isinstance(batch, DocumentBatch):
        raise RunFailedError(f"{with_article(type(batch))} cannot go to an outlet; only documents can")
    batch = with_settled_lines(batch)
    ids, raw = batch.ids, batch.raw_lines
    assert ids is not None, "documents of a run have ids"
    which = ids.which if len(ids.sources) > 1 else None
    content: list[Any] = [ids.positions, *([] if which is None else [which])]
    if raw is None:
        content.append(_ipc(batch.to_pyarrow()))
    else:
        content += [raw.ends - raw.starts, raw.blob()]
    parts = [part.tobytes() if isinstance(part, np.ndarray) else part for part in content]
    lengths = tuple(memoryview(part).nbytes for part in parts)
    head = msgspec.msgpack.encode(_Head(len(batch), raw is None, ids.sources, which is not None, ids.suffixes, lengths))
    return b"".join([len(head).to_bytes(8, "little"), head, *parts])


def decode_block(content: memoryview) -> DocumentBatch:
    """Return the documents of a block."""
    size = int.from_bytes(content[:8], "little")
    head = _HEAD.decode(content[8 : 8 + size])
    ends = np.cumsum((8 + size, *head.lengths)).tolist()
    parts = [content[start:end] for start, end in itertools.pairwise(ends)]
    positions = np.frombuffer(parts[0], dtype=np.int64)
    which = np.frombuffer(parts[1], dtype=np.int64) if head.has_which else None
    ids = RecordIds(head.sources, positions, which, head.suffixes)
    if head.is_table:
        return DocumentBatch.from_table(_table(parts[-1]), ids)
    line_ends = np.cumsum(np.frombuffer(parts[-2], dtype=np.int64) + 1) - 1
    starts = np.concatenate((np.zeros(1, dtype=np.int64), line_ends[:-1] + 1))[: head.count]
    return DocumentBatch.from_lines(RawLines(parts[-1], starts, line_ends), ids)


def _ipc(table: Any) -> memoryview:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def _table(part: memoryview) -> Any:
    import pyarrow as pa

    return pa.ipc.open_stream(pa.py_buffer(part)).read_all()
