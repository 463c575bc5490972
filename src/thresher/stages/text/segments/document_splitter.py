# SPDX-License-Identifier: Apache-2.0
"""Stage that splits documents into segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError
from thresher.stages.text.columns.not_text import set_aside_without_text

if TYPE_CHECKING:
    from thresher.core.documents.records import RecordIds

_AT_A_TIME = 4 * 2**20
"""Approximate bytes of segments per output batch: each segment repeats the other fields."""
_TEXT, _NUMBER = b"\xff\x00", b"\xff\x01"
"""Placeholders for the text and the number of a segment in a line; no input line contains these bytes."""


class DocumentSplitter(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Split each document's text at a separator; every segment becomes a numbered document of its own.

    A segment has all other fields of its document, and the id of the document with `/0`, `/1` and so on appended.
    """

    looks_at_inputs_only = True

    def __init__(self, separator: str, text_field: str = "text", segment_id_field: str = "segment_id") -> None:
        """`separator`: where to split; it is removed. `segment_id_field`: receives the number of the segment,
        from 0."""
        if not isinstance(separator, str) or not separator:
            raise UsageError(f"DocumentSplitter.separator: {separator!r} is not a text of one character or more")
        self.separator = separator
        self.text_field = field_name("DocumentSplitter", "text_field", text_field)
        self.segment_id_field = field_name("DocumentSplitter", "segment_id_field", segment_id_field)
        if text_field == segment_id_field:
            raise UsageError(f"DocumentSplitter.segment_id_field: {segment_id_field!r} is the text field; name another")

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column that is split."""
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the column that is split, and the one that receives numbers."""
        return ["data"], [self.text_field, self.segment_id_field]

    def process(self, task: DocumentBatch) -> Iterator[DocumentBatch]:
        """Yield the segments of a batch, a few megabytes at a time."""
        # Not a generator itself, so that the batches may stay in this worker.
        return self._segments(task)

    def _segments(self, batch: DocumentBatch) -> Iterator[DocumentBatch]:
        batch.name_records()
        texts = batch.values(self.text_field)
        unfit = [row for row, text in enumerate(texts) if not isinstance(text, str)]
        if unfit:
            rest = set_aside_without_text(batch, unfit, self.text_field)
            yield rest.take([])  # reports the records that were set aside
            batch = rest.take(range(len(rest)))
            batch._failed = []
            texts = [text for text in texts if isinstance(text, str)]
        cut = [text.split(self.separator) for text in texts]
        for rows in _stretches(batch, [len(segments) for segments in cut]):
            yield self._made(batch.take(rows), [cut[row] for row in rows])

    def _made(self, batch: DocumentBatch, cut: Sequence[list[str]]) -> DocumentBatch:
        ids = _children(batch, [len(segments) for segments in cut])
        make = self._of_table if batch.raw_lines is None else self._of_lines
        made = make(batch, cut, ids)
        made._has_own_ids = True
        return made

    def _of_lines(self, batch: DocumentBatch, cut: Sequence[list[str]], ids: RecordIds) -> DocumentBatch:
        """Build the segments from lines; every field except the text keeps its bytes."""
        from thresher.core.documents.json_records import encode_value, patch_line
        from thresher.core.documents.records import RawLines

        lines: list[bytes | memoryview] = []
        marks = {self.text_field: _TEXT, self.segment_id_field: _NUMBER}
        for line, segments in zip(batch.json_lines(), cut, strict=True):
            form = patch_line(line, marks, frozenset())
            text_first = form.index(_TEXT) < form.index(_NUMBER)
            head, _, rest = form.partition(_TEXT if text_first else _NUMBER)
            middle, _, tail = rest.partition(_NUMBER if text_first else _TEXT)
            for number, segment in enumerate(segments):
                text, encoded_number = encode_value(segment), b"%d" % number
                lines.append(
                    b"".join(
                        (
                            head,
                            *((text, middle, encoded_number) if text_first else (encoded_number, middle, text)),
                            tail,
                        )
                    )
                )
        return DocumentBatch.from_lines(RawLines.join(lines), ids, batch.dataset_name)

    def _of_table(self, batch: DocumentBatch, cut: Sequence[list[str]], ids: RecordIds) -> DocumentBatch:
        import numpy as np
        import pyarrow as pa

        from thresher.core.documents.frames import set_column, to_column

        parents = np.repeat(np.arange(len(cut)), [len(segments) for segments in cut])
        table = batch.to_pyarrow().take(pa.array(parents))
        texts = [segment for segments in cut for segment in segments]
        numbers = [number for segments in cut for number in range(len(segments))]
        table = set_column(table, self.text_field, to_column(texts))
        table = set_column(table, self.segment_id_field, to_column(numbers))
        return DocumentBatch.from_table(table, ids, batch.dataset_name)


def _stretches(batch: DocumentBatch, counts: Sequence[int]) -> Iterator[list[int]]:
    """Yield groups of rows whose segments form one batch. Each segment repeats all fields except the text, at most the
    whole record."""
    raw = batch.raw_lines
    mean = batch.nbytes // max(1, len(batch))
    rows: list[int] = []
    held = 0
    for row, count in enumerate(counts):
        size = mean if raw is None else int(raw.ends[row] - raw.starts[row])
        if rows and held + size > _AT_A_TIME:
            yield rows
            rows, held = [], 0
        rows.append(row)
        held += size + 64 * count
    if rows:
        yield rows


def _children(batch: DocumentBatch, counts: Sequence[int]) -> RecordIds:
    """Return the ids of the segments: the id of the record, and the index of the segment."""
    import numpy as np

    from thresher.core.documents.records import RecordIds

    ids = batch.ids
    assert ids is not None, "records were given names"
    parents = np.repeat(np.arange(len(counts)), counts)
    before = ids.suffixes or ("",) * len(ids)
    suffixes = tuple(f"{suffix}/{k}" for suffix, count in zip(before, counts, strict=True) for k in range(count))
    which = ids.which[parents] if len(ids.sources) > 1 else None
    return RecordIds(ids.sources, ids.positions[parents], which, suffixes)
