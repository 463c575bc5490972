# SPDX-License-Identifier: Apache-2.0
"""Pack short documents into sequences of a given length, as training wants them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch, concat_batches
from thresher.core.records.record_task import Gathered
from thresher.core.stage import OrderedStage
from thresher.errors import UsageError
from thresher.stages.text.columns.not_text import set_aside_without_text
from thresher.stages.text.segments.document_joiner import own_copy


@dataclass
class OpenSequence:
    """The sequence of a unit that is not full yet."""

    parts: list[DocumentBatch] = field(default_factory=list)
    """Its documents."""
    length: int = 0
    """Their length, with separators."""


class PackSequences(OrderedStage[DocumentBatch, DocumentBatch]):
    """Join neighbouring documents to sequences of at most a given length; a longer document is a sequence of its own.

    A sequence has the id and the other fields of its first document. Sequences end where a unit of the input ends.
    """

    def __init__(
        self,
        max_length: int,
        length_field: str | None = None,
        separator: str = "\n\n",
        text_field: str = "text",
        count_field: str = "documents",
    ) -> None:
        """`max_length`: the most that a sequence has, in characters, or in the unit of `length_field`.
        `length_field`: a column with the length of each document, such as the tokens of a `TokenCounter`; it gets that
        of the sequence. A separator counts as 1 there.
        `separator`: what stands between two documents.
        `text_field`: the column of the text.
        `count_field`: the column that gets the number of documents in a sequence.
        """
        if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 1:
            raise UsageError(f"PackSequences.max_length: {max_length!r} is not a whole number of 1 or more")
        self.max_length, self.separator = max_length, separator
        self.length_field = None if length_field is None else field_name("PackSequences", "length_field", length_field)
        self.text_field = field_name("PackSequences", "text_field", text_field)
        self.count_field = field_name("PackSequences", "count_field", count_field)

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the columns of text and length."""
        return ["data"], [self.text_field, *([] if self.length_field is None else [self.length_field])]

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that are written."""
        return ["data"], [*self.inputs()[1], self.count_field]

    def begin_unit(self) -> OpenSequence:
        """Return an empty sequence."""
        return OpenSequence()

    def take(self, kept: OpenSequence, task: DocumentBatch) -> Gathered:
        """Return the sequences that are full; the last one stays open."""
        batch = self._fit(task)
        failed, batch._failed = batch._failed, []
        before = sum(map(len, kept.parts))
        starts = [0] if before else []
        for row, length in enumerate(self._lengths(batch), start=before):
            longer = kept.length + self._separator_length + length
            if starts and longer <= self.max_length:
                kept.length = longer
            else:
                starts.append(row)
                kept.length = length
        whole = concat_batches([*kept.parts, batch]) if before else batch
        last = starts[-1] if starts else 0
        made = self._joined(whole.take(range(last)), starts[:-1]) if last else Gathered(whole.take([]))
        kept.parts = [own_copy(whole.take(range(last, len(whole))))] if len(whole) > last else []
        made.batch._failed = [*failed, *made.batch._failed]
        return made

    def end_unit(self, kept: OpenSequence) -> Gathered:
        """Return the sequence that is still open."""
        if not kept.parts:
            return Gathered(DocumentBatch([]))
        (whole,), kept.parts = kept.parts, []
        return self._joined(whole, [0])

    @property
    def _separator_length(self) -> int:
        return len(self.separator) if self.length_field is None else int(bool(self.separator))

    def _fit(self, batch: DocumentBatch) -> DocumentBatch:
        """Return the batch without documents that have no text or no length."""
        unfit = [row for row, text in enumerate(batch.values(self.text_field)) if not isinstance(text, str)]
        if unfit:
            batch = set_aside_without_text(batch, unfit, self.text_field)
        if self.length_field is None:
            return batch
        values = batch.values(self.length_field)
        wrong = [row for row, value in enumerate(values) if isinstance(value, bool) or not isinstance(value, int)]
        if not wrong:
            return batch
        messages = [f"field {self.length_field!r} holds {values[row]!r:.60}, a whole number is needed" for row in wrong]
        return batch.set_aside(wrong, "no-length", messages)

    def _lengths(self, batch: DocumentBatch) -> list[int]:
        if self.length_field is None:
            return [len(text) for text in batch.values(self.text_field)]
        return list(batch.values(self.length_field))

    def _joined(self, batch: DocumentBatch, starts: list[int]) -> Gathered:
        """Return the sequences that begin at `starts` and fill the batch."""
        texts, lengths = batch.values(self.text_field), self._lengths(batch)
        ranges = list(zip(starts, [*starts[1:], len(batch)], strict=True))
        joined: list[Any] = [self.separator.join(texts[start:end]) for start, end in ranges]
        made = batch.take(starts).replace(self.text_field, joined, [end - start > 1 for start, end in ranges])
        if self.length_field is not None:
            sums = [sum(lengths[start:end]) + (end - start - 1) * self._separator_length for start, end in ranges]
            made = made.replace(self.length_field, sums)
        between = [(end - start - 1) * self._separator_length for start, end in ranges]
        for (start, end), more in zip(ranges, between, strict=True):
            full = (sum(lengths[start:end]) + more) * 10 // self.max_length
            self.chart("sequences by percent full, from", min(full, 10) * 10)
        made = made.replace(self.count_field, [end - start for start, end in ranges])
        return Gathered(made, len(batch) - len(starts))
