# SPDX-License-Identifier: Apache-2.0
"""New texts of a batch, as bytes: rules and modifiers go on with them, the writer writes them, and Arrow is made of
them only where somebody asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from thresher.core.batch import MOST_REMEMBERED, DocumentBatch
from thresher.core.json_records import encode_value, patch_line
from thresher.kernels.counts import Texts
from thresher.kernels.edits import ROW, Edits, any_half_pair, rewritten
from thresher.stages.text.text_column import COLUMN, Rows, TextColumn, bytes_of, column_of_texts

if TYPE_CHECKING:
    import pyarrow as pa

    from thresher.core.records import RawLines


class LateTexts:
    """The texts of a column that has one for every record."""

    __slots__ = ("column",)

    def __init__(self, column: TextColumn) -> None:
        """`column`: the texts, all of them valid UTF-8."""
        self.column = column

    def take(self, index: Rows) -> LateTexts:
        """The texts of some of the records."""
        return LateTexts(self.column.take(index))

    def to_arrow(self) -> pa.Array:
        """The texts as Arrow's large strings."""
        return arrow_texts(rewritten(self._picked(self.column.rows), NO_EDITS))

    def patch_lines(self, raw: RawLines, name: str, changed: npt.NDArray[Any] | None) -> list[bytes | memoryview]:
        """The lines of the records, with the texts that are changed."""
        from thresher.kernels.json_patch import patched

        lines: list[bytes | memoryview] = list(raw.lines())
        rows = np.arange(len(lines), dtype=np.int64) if changed is None else np.flatnonzero(changed)
        texts = self._picked(self.column.rows[rows])
        new = patched(bytes_of(raw.buffer), raw.starts[rows], raw.ends[rows], name, texts)
        view = new.data.data
        spans = zip(rows.tolist(), new.starts.tolist(), new.ends.tolist(), strict=True)
        for place, (row, start, end) in enumerate(spans):
            if start < end:
                lines[row] = view[start:end]
            else:  # not plain enough for the kernel
                text = str(texts.data[texts.starts[place] : texts.ends[place]].data, "utf-8")
                lines[row] = patch_line(lines[row], {name: encode_value(text)}, frozenset())
        return lines

    def _picked(self, rows: Rows) -> Texts:
        texts = self.column.texts
        return Texts(texts.data, texts.starts[rows], texts.ends[rows])


NO_EDITS = Edits(np.zeros((0, 4), dtype=np.int64), (), np.zeros(0, dtype=np.uint8))
"""Nothing is replaced."""


def arrow_texts(texts: Texts) -> pa.Array:
    """Texts that lie one behind the other as Arrow's large strings, in the same buffer."""
    import pyarrow as pa

    offsets = np.append(texts.starts, texts.ends[-1:])
    data = pa.py_buffer(texts.data)
    return pa.LargeStringArray.from_buffers(len(texts.starts), pa.py_buffer(offsets), data)


def with_edits(batch: DocumentBatch, field: str, texts: Texts, edits: Edits) -> DocumentBatch:
    """A batch whose `texts`, which are those of `field`, are edited; half a surrogate pair anywhere is an error."""
    changed = np.zeros(len(batch), dtype=np.bool_)
    changed[edits.found[:, ROW]] = True
    return with_texts(batch, field, rewritten(texts, edits), changed)


def with_texts(batch: DocumentBatch, field: str, new: Texts, changed: npt.NDArray[np.bool_]) -> DocumentBatch:
    """A batch with new texts, which lie one behind the other; `changed`: which of them differ from the old ones. Half a
    surrogate pair anywhere is an error."""
    if batch.nbytes > MOST_REMEMBERED or any_half_pair(new.data, new.starts, new.ends):
        array = arrow_texts(new)
        array.validate(full=True)  # half a surrogate pair has no UTF-8: such a record stays out, and alone
        return batch.replace(field, array, changed.tolist())
    column = column_of_texts(new)
    made = batch.replace_late(field, LateTexts(column), changed)
    made._memo[COLUMN, field] = column
    return made
