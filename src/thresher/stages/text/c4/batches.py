# SPDX-License-Identifier: Apache-2.0
"""C4 trimming of a batch: done by a kernel, with the plain definition for texts that the kernel cannot decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from thresher.core.documents.batch import DocumentBatch
from thresher.kernels.counts.text_counts import PADDING, Texts
from thresher.kernels.edits.c4_trim import KEPT, UNDECIDED, Trimming, trim
from thresher.stages.text.columns.late_texts import with_texts
from thresher.stages.text.columns.not_text import set_aside_without_text
from thresher.stages.text.columns.text_column import Rows, TextColumn, text_column

if TYPE_CHECKING:
    from thresher.stages.text.c4.quality import C4QualityFilter

_CODES = {"": 0, "lorem_ipsum": 1, "curly_bracket": 2, "too_few_sentences": 3}
"""Kernel outcomes by the drop reasons of the stage."""


def trimmed_batch(stage: C4QualityFilter, batch: DocumentBatch) -> DocumentBatch:
    """Return the remaining documents, with their texts trimmed."""
    column = text_column(batch, stage.text_field)
    everything = np.arange(len(batch), dtype=np.int64)
    has_text = column.has_text(everything)
    if not has_text.all():
        batch = set_aside_without_text(batch, np.flatnonzero(~has_text).tolist(), stage.text_field)
        column = column.take(np.flatnonzero(has_text))
    if not len(batch):
        return batch
    parameters = stage.trimming()
    found = _by_definition(stage, column) if parameters is None else _by_kernel(stage, column, parameters)
    return _applied(stage, batch, found)


class _Found:
    """The trimming results of a batch."""

    def __init__(self, outcome: Rows, sentences: Rows, changed: npt.NDArray[np.bool_], texts: list[Any]) -> None:
        self.outcome, self.sentences, self.changed = outcome, sentences, changed
        self.texts = texts
        """The kept texts: runs of bytes with their lengths, in order."""


def _by_definition(stage: C4QualityFilter, column: TextColumn) -> _Found:
    rows = np.arange(len(column.rows), dtype=np.int64)
    outcome, sentences = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    changed = np.zeros(len(rows), dtype=np.bool_)
    texts = []
    for row, text in enumerate(column.strings(rows)):
        made = stage.trim_document(text)
        outcome[row], sentences[row] = _CODES[made.reason], made.sentences
        if made.text is not None:
            changed[row] = made.text != text
            texts.append(_encoded(made.text))
    return _Found(outcome, sentences, changed, texts)


def _by_kernel(stage: C4QualityFilter, column: TextColumn, parameters: Trimming) -> _Found:
    made = trim(column.counts.work, column.rows, parameters)
    outcome, sentences, changed = made.outcome, made.sentences, made.changed.astype(np.bool_)
    runs: list[Any] = []
    first = 0
    for row in np.flatnonzero(outcome == UNDECIDED).tolist():
        runs.append(_run(made, first, row))
        first = row + 1
        text = column.strings(np.array([row], dtype=np.int64))[0]
        trimmed = stage.trim_document(text)
        outcome[row], sentences[row] = _CODES[trimmed.reason], trimmed.sentences
        if trimmed.text is not None:
            changed[row] = trimmed.text != text
            runs.append(_encoded(trimmed.text))
    runs.append(_run(made, first, len(outcome)))
    return _Found(outcome, sentences, changed, runs)


def _run(made: Any, first: int, last: int) -> tuple[npt.NDArray[np.uint8], Rows]:
    """Return the kept texts of adjacent records: their bytes, which are adjacent in memory, and their lengths."""
    if first == last:
        return made.data[:0], np.zeros(0, dtype=np.int64)
    kept = made.outcome[first:last] == KEPT
    lengths = (made.ends[first:last] - made.starts[first:last])[kept]
    return made.data[made.starts[first] : made.ends[last - 1]], lengths


def _encoded(text: str) -> tuple[npt.NDArray[np.uint8], Rows]:
    data = np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)
    return data, np.array([len(data)], dtype=np.int64)


def _applied(stage: C4QualityFilter, batch: DocumentBatch, found: _Found) -> DocumentBatch:
    """Drop the rejected documents, and insert the new texts."""
    rest = batch
    remaining = np.arange(len(batch), dtype=np.int64)
    for reason, code in _CODES.items():
        if not reason or not (dropped := found.outcome[remaining] == code).any():
            continue
        scores = found.sentences[remaining[dropped]].tolist() if stage.thresholds(reason) else None
        rest = rest.drop(np.flatnonzero(dropped), reason, scores, stage.thresholds(reason) or None)
        remaining = remaining[~dropped]
    changed = found.changed[remaining]
    if not changed.any():
        return rest
    return with_texts(rest, stage.text_field, _joined(found.texts), changed)


def _joined(runs: list[Any]) -> Texts:
    """Concatenate the texts, with padding after the last one, as kernels need it."""
    lengths = np.concatenate([lengths for _, lengths in runs])
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    data = np.concatenate([*(data for data, _ in runs), np.zeros(PADDING, dtype=np.uint8)])
    return Texts(data, offsets[:-1], offsets[1:])
