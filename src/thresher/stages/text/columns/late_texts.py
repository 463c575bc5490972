# SPDX-License-Identifier: Apache-2.0
"""New texts of a batch as bytes. Rules, modifiers and the writer use them; an Arrow array is built on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from thresher.core.documents.batch import MOST_REMEMBERED, DocumentBatch
from thresher.core.documents.json_records import encode_value, patch_line
from thresher.kernels.counts.text_counts import Texts
from thresher.kernels.edits.rewrite import ROW, Edits, any_half_pair, rewritten
from thresher.stages.text.columns.text_column import COLUMN, Rows, TextColumn, bytes_of, column_of_texts

if TYPE_CHECKING:
    import pyarrow as pa

    from thresher.core.documents.records import RawLines


class LateTexts:
    """The texts of a column that has a text for every record."""

    __slots__ = ("column",)

    def __init__(self, column: TextColumn) -> None:
        """`column`: the texts, all of them valid UTF-8."""
        self.column = column

    def take(self, index: Rows) -> LateTexts:
        """Return the texts of some of the records."""
        return LateTexts(self.column.take(index))

    def to_arrow(self) -> pa.Array:
        """Return the texts as Arrow large strings."""
        return arrow_texts(rewritten(self._picked(self.column.rows), NO_EDITS))

    def patch_lines(self, raw: RawLines, name: str, changed: npt.NDArray[Any] | None) -> list[bytes | memoryview]:
        """Return the lines of the records, with the changed texts inserted."""
        from thresher.kernels.json.patch import patched

        lines: list[bytes | memoryview] = list(raw.lines())
        rows = np.arange(len(lines), dtype=np.int64) if changed is None else np.flatnonzero(changed)
        texts = self._picked(self.column.rows[rows])
        new = patched(bytes_of(raw.buffer), raw.starts[rows], raw.ends[rows], name, texts)
        view = new.data.data
        spans = zip(rows.tolist(), new.starts.tolist(), new.ends.tolist(), strict=True)
        for index, (row, start, end) in enumerate(spans):
            if start < end:
                lines[row] = view[start:end]
            else:  # not plain enough for the kernel
                text = str(texts.data[texts.starts[index] : texts.ends[index]].data, "utf-8")
                lines[row] = patch_line(lines[row], {name: encode_value(text)}, frozenset())
        return lines

    def _picked(self, rows: Rows) -> Texts:
        texts = self.column.texts
        return Texts(texts.data, texts.starts[rows], texts.ends[rows])


NO_EDITS = Edits(np.zeros((0, 4), dtype=np.int64), (), np.zeros(0, dtype=np.uint8))
"""An empty set of edits."""


def arrow_texts(texts: Texts) -> pa.Array:
    """Return adjacent texts as Arrow large strings that share the buffer."""
    import pyarrow as pa

    offsets = np.append(texts.starts, texts.ends[-1:])
    data = pa.py_buffer(texts.data)
    return pa.LargeStringArray.from_buffers(len(texts.starts), pa.py_buffer(offsets), data)


def with_edits(batch: DocumentBatch, field: str, texts: Texts, edits: Edits) -> DocumentBatch:
    """Apply edits to `texts`, which are those of `field`; half a surrogate pair anywhere raises an error."""
    changed = np.zeros(len(batch), dtype=np.bool_)
    changed[edits.found[:, ROW]] = True
    return with_texts(batch, field, rewritten(texts, edits), changed)


def with_texts(batch: DocumentBatch, field: str, new: Texts, changed: npt.NDArray[np.bool_]) -> DocumentBatch:
    """Return a batch with new texts, which are adjacent in memory; `changed` marks those that differ from the old ones.
    Half a surrogate pair anywhere raises an error."""
    if batch.nbytes > MOST_REMEMBERED or any_half_pair(new.data, new.starts, new.ends):
        array = arrow_texts(new)
        array.validate(full=True)  # half a surrogate pair is not valid UTF-8: only that record fails
        return batch.replace(field, array, changed.tolist())
    column = column_of_texts(new)
    made = batch.replace_late(field, LateTexts(column), changed)
    made._memo[COLUMN, field] = column
    return made
