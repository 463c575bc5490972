# SPDX-License-Identifier: Apache-2.0
"""Parts of the texts of a batch: the bytes to look for parts in, and their removal."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thresher.core.documents.batch import DocumentBatch
from thresher.kernels.counts.text_counts import Texts
from thresher.kernels.edits.rewrite import Edits
from thresher.stages.text.columns.late_texts import with_edits
from thresher.stages.text.columns.text_column import text_column

TEXT, START, END = 0, 1, 2
"""The columns of cuts: the number of the text, and start and end of what is cut, in the buffer of the texts."""
Cuts = npt.NDArray[np.int64]
"""Pieces that are cut from texts, in order."""


def texts_of(batch: DocumentBatch, field: str) -> Texts:
    """Return the texts of documents that all have one."""
    column = text_column(batch, field)
    return Texts(column.texts.data, column.texts.starts[column.rows], column.texts.ends[column.rows])


def without_cuts(
    batch: DocumentBatch, field: str, texts: Texts, cuts: Cuts, shortest: tuple[str, int]
) -> DocumentBatch:
    """Return a batch without what is cut from its texts. `shortest`: the rule by which documents that have become
    shorter than so many characters are dropped; what is dropped has its whole text."""
    rule, least = shortest
    rows = np.unique(cuts[:, TEXT])
    left = _characters_left(texts, cuts, rows)
    short = left < least
    if short.any():
        gone = rows[short]
        kept = np.setdiff1d(np.arange(len(batch)), gone)
        batch = batch.drop(gone, rule, left[short].tolist(), {"min_document_length": least})
        cuts = cuts[np.isin(cuts[:, TEXT], kept)]
        cuts[:, TEXT] = np.searchsorted(kept, cuts[:, TEXT])
        texts = Texts(texts.data, texts.starts[kept], texts.ends[kept])
    if not len(cuts):
        return batch
    found = np.column_stack((cuts, np.zeros(len(cuts), dtype=np.int64)))
    return with_edits(batch, field, texts, Edits(found, (b"",), np.zeros(len(texts.starts), dtype=np.uint8)))


def _characters_left(texts: Texts, cuts: Cuts, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the characters that some texts have left, without white space around them."""
    left = np.zeros(len(rows), dtype=np.int64)
    bounds = np.searchsorted(cuts[:, TEXT], np.append(rows, len(texts.starts)))
    for index, row in enumerate(rows.tolist()):
        at, pieces = int(texts.starts[row]), []
        for start, end in cuts[bounds[index] : bounds[index + 1], START:].tolist():
            pieces.append(texts.data[at:start].tobytes())
            at = end
        pieces.append(texts.data[at : texts.ends[row]].tobytes())
        left[index] = len(b"".join(pieces).decode("utf-8").strip())
    return left
