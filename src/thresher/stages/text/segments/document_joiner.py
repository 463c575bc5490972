# SPDX-License-Identifier: Apache-2.0
"""Stage that joins the segments of a document, also across batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch, concat_batches
from thresher.core.records.record_task import Gathered
from thresher.core.stage import OrderedStage, ProcessingStage, SourceStage
from thresher.errors import UsageError
from thresher.stages.text.columns.not_text import with_texts
from thresher.stages.text.columns.without_column import without_column

APART = "segments-apart"
"""The error of segments whose document is already closed."""
REMEMBERED = 100_000
"""Number of closed documents that are remembered: memory is bounded however long a unit is."""


@dataclass
class OpenUnit:
    """The state of a unit."""

    document: Any = None
    """The id of the open document; `None` before the first one."""
    parts: list[DocumentBatch] = field(default_factory=list)
    """Its segments so far, in order."""
    closed: dict[Any, None] = field(default_factory=dict)
    """Ids of closed documents, oldest first."""


class DocumentJoiner(OrderedStage[DocumentBatch, DocumentBatch]):
    """Join segments with the same document id into one document, in the order of their numbers.

    The segments of a document must be consecutive, as a splitter leaves them; batches may end between them. The joined
    document has the other fields, and the record id, of its first segment.
    """

    def __init__(  # noqa: PLR0913 - all by keyword
        self,
        separator: str = "\n\n",
        text_field: str = "text",
        segment_id_field: str = "segment_id",
        document_id_field: str = "id",
        drop_segment_id_field: bool = True,
        max_length: int | None = None,
        length_field: str | None = None,
    ) -> None:
        """`separator` is placed between the segments. `document_id_field`, `segment_id_field`: the columns of the ids.

        `drop_segment_id_field`: remove the field; otherwise it holds the number of the joined document among those of
        its document. `max_length`, `length_field`: start a new document where the lengths in that field, plus those of
        the separators, would exceed the limit; a single segment may be longer.
        """
        stage_name = "DocumentJoiner"
        if not isinstance(separator, str):
            raise UsageError(f"{stage_name}.separator: {separator!r} is not a text")
        if (max_length is None) != (length_field is None):
            given, missing = ("max_length", "length_field") if length_field is None else ("length_field", "max_length")
            raise UsageError(f"{stage_name}.{given} is given and {missing} is not; give both or neither")
        if max_length is not None and (isinstance(max_length, bool) or max_length < 1):
            raise UsageError(f"{stage_name}.max_length: {max_length!r} is not a whole number of 1 or more")
        self.separator = separator
        self.text_field = field_name(stage_name, "text_field", text_field)
        self.segment_id_field = field_name(stage_name, "segment_id_field", segment_id_field)
        self.document_id_field = field_name(stage_name, "document_id_field", document_id_field)
        self.drop_segment_id_field = drop_segment_id_field
        self.max_length = max_length
        self.length_field = None if length_field is None else field_name(stage_name, "length_field", length_field)

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the columns of the text, the two ids, and the length if there is a limit."""
        needed = [self.text_field, self.segment_id_field, self.document_id_field]
        return ["data"], [*needed, *([self.length_field] if self.length_field is not None else [])]

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that are written."""
        made = [self.text_field, self.document_id_field]
        made += [] if self.drop_segment_id_field else [self.segment_id_field]
        return ["data"], [*made, *([self.length_field] if self.length_field is not None else [])]

    def place_fault(self, before: Sequence[ProcessingStage[Any, Any]]) -> str:
        """Return why the stage cannot follow these stages. Segments must be created in this run, or the reader must not
        split files: otherwise two units may share a document."""
        if any(self.segment_id_field in stage.outputs()[1] for stage in before):
            return ""
        reader = before[0] if before else None
        if not isinstance(reader, SourceStage) or getattr(reader, "files_per_partition", 1) is not None:
            return ""
        return (
            f"no stage before it creates the column {self.segment_id_field!r}, so the segments are in the input, and "
            f"{reader.name} splits large files into units, which could split a document. Make each unit a whole file: "
            f"{reader.name}(files_per_partition=1)"
        )

    # -- one unit -----------------------------------------------------------------------------------------------------

    def begin_unit(self) -> OpenUnit:
        """Return an empty state."""
        return OpenUnit()

    def take(self, kept: OpenUnit, task: DocumentBatch) -> Gathered:
        """Join the documents that end in this batch; the last one stays open."""
        batch = self._without_apart(self._fit(task), kept)
        failed, batch._failed = batch._failed, []
        runs = _runs(batch.values(self.document_id_field))
        goes_on = bool(kept.parts and runs) and runs[0][0] == kept.document
        if not runs:
            made = Gathered(batch)
        elif goes_on and len(runs) == 1:
            kept.parts.append(own_copy(batch))
            made = Gathered(batch.take([]))
        else:
            made = self._close(kept, batch, runs, goes_on)
        made.batch._failed = [*failed, *made.batch._failed]
        return made

    def _close(self, kept: OpenUnit, batch: DocumentBatch, runs: list[tuple[Any, int]], goes_on: bool) -> Gathered:
        """Join the open document and all documents of the batch except the last, which becomes the open one."""
        last_key, last_start = runs[-1]
        ended = batch.take(range(last_start))
        whole = _concatenated([*kept.parts, ended])
        starts = [start + len(whole) - len(ended) for _, start in runs[:-1]]
        if goes_on:
            starts[0] = 0
        elif kept.parts:
            starts = [0, *starts]
        made = self._joined(whole, starts)
        left = own_copy(batch.take(range(last_start, len(batch))))
        for key in [*([kept.document] if kept.parts else []), *(key for key, _ in runs[:-1])]:
            kept.closed[key] = None
        for key in list(kept.closed)[: max(0, len(kept.closed) - REMEMBERED)]:
            del kept.closed[key]
        kept.document, kept.parts = last_key, [left]
        return made

    def end_unit(self, kept: OpenUnit) -> Gathered:
        """Join the document that is still open."""
        if not kept.parts:
            return Gathered(DocumentBatch([]))
        whole = _concatenated(kept.parts)
        kept.document, kept.parts = None, []
        return self._joined(whole, [0])

    def _fit(self, batch: DocumentBatch) -> DocumentBatch:
        """Return the batch without records that lack a required value."""
        batch, _ = with_texts(batch, self.text_field)
        batch = self._with(batch, self.document_id_field, _is_name, "a text or a number")
        batch = self._with(batch, self.segment_id_field, _is_number, "a number")
        if self.length_field is not None:
            batch = self._with(batch, self.length_field, _is_number, "a number")
        return batch

    @staticmethod
    def _with(batch: DocumentBatch, name: str, fits: Any, wanted: str) -> DocumentBatch:
        unfit = [(row, value) for row, value in enumerate(batch.values(name)) if not fits(value)]
        if not unfit:
            return batch
        messages = [f"field {name!r} holds {value!r:.60}, {wanted} is needed" for _, value in unfit]
        return batch.set_aside([row for row, _ in unfit], error="no-segment", messages=messages)

    def _without_apart(self, batch: DocumentBatch, kept: OpenUnit) -> DocumentBatch:
        """Return the batch without segments whose document is closed because others came between."""
        runs = _runs(batch.values(self.document_id_field))
        ends = [*(start for _, start in runs[1:]), *([len(batch)] if runs else [])]
        here: set[Any] = set()
        current = kept.document if kept.parts else None
        rejected: list[int] = []
        for (key, start), end in zip(runs, ends, strict=True):
            if key == current:
                continue
            if key in here or key in kept.closed:
                rejected.extend(range(start, end))
            else:
                here.add(current)
                current = key
        if not rejected:
            return batch
        message = (
            "the segments of this document are not consecutive: it was closed when another document began. "
            f"Sort the input by {self.document_id_field!r}"
        )
        return batch.set_aside(rejected, error=APART, messages=[message] * len(rejected))

    def _joined(self, batch: DocumentBatch, starts: Sequence[int]) -> Gathered:
        """Join the documents that start at `starts` and fill the batch."""
        if not starts:
            return Gathered(batch)
        texts, numbers = batch.values(self.text_field), batch.values(self.segment_id_field)
        lengths = batch.values(self.length_field) if self.length_field is not None else [0] * len(batch)
        firsts: list[int] = []
        joined: list[str] = []
        indices: list[int] = []
        new_lengths: list[Any] = []
        for start, end in itertools.pairwise([*starts, len(batch)]):
            segments = [Segment(row, texts[row], lengths[row]) for row in range(start, end)]
            segments.sort(key=lambda segment: numbers[segment.row])
            for index, piece in enumerate(joined_pieces(segments, self.separator, self.max_length)):
                firsts.append(piece.row)
                joined.append(piece.text)
                indices.append(index)
                new_lengths.append(piece.length)
        made = batch.take(firsts)
        made = made.replace(
            self.text_field, joined, [text != texts[row] for text, row in zip(joined, firsts, strict=True)]
        )
        if self.length_field is not None:
            made = made.replace(self.length_field, new_lengths)
        if self.drop_segment_id_field:
            made = without_column(made, self.segment_id_field)
        elif self.max_length is not None:
            made = made.replace(self.segment_id_field, indices)
        return Gathered(made, len(batch) - len(firsts))


def _runs(keys: Sequence[Any]) -> list[tuple[Any, int]]:
    """Return each run of equal document ids and its first row."""
    return [(key, row) for row, key in enumerate(keys) if not row or key != keys[row - 1]]


def _concatenated(parts: Sequence[DocumentBatch]) -> DocumentBatch:
    return concat_batches([part for part in parts if len(part)] or list(parts[:1]))


def _is_name(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


class Segment(NamedTuple):
    """A segment, or several joined ones."""

    row: int
    """Row of the (first) segment in its batch."""
    text: str
    """The text."""
    length: Any
    """The length, in the unit of the user."""


def joined_pieces(segments: Sequence[Segment], separator: str, max_length: int | None) -> Iterator[Segment]:
    """Yield segments joined in order, up to the limit; a separator counts its characters."""
    first = 0
    length = segments[0].length
    for index in range(1, len(segments) + 1):
        if index < len(segments):
            longer = length + segments[index].length + len(separator)
            if max_length is None or longer <= max_length:
                length = longer
                continue
        text = separator.join([segment.text for segment in segments[first:index]])
        yield Segment(segments[first].row, text, length)
        if index < len(segments):
            first, length = index, segments[index].length


def own_copy(batch: DocumentBatch) -> DocumentBatch:
    """Return the same records in memory of their own: the buffer of the batch may be reused."""
    from thresher.core.documents.records import RawLines

    if batch.raw_lines is None:
        return batch.take(range(len(batch)))
    ids = batch.take(range(len(batch))).ids
    assert ids is not None, "records that have lines have ids"
    return DocumentBatch.from_lines(RawLines.join(batch.json_lines()), ids, batch.dataset_name)
