# SPDX-License-Identifier: Apache-2.0
"""The stage that makes one document of its segments, also where they lie in different batches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from thresher.core.batch import DocumentBatch, concat_batches
from thresher.core.gathered import Gathered
from thresher.core.stage import OrderedStage, ProcessingStage, SourceStage
from thresher.errors import UsageError
from thresher.stages.text.chain import field_name
from thresher.stages.text.not_text import set_aside_without_text
from thresher.stages.text.segments import Segment, joined_pieces, own_copy, without_column

APART = "segments-apart"
"""The error of segments whose document was closed already."""
REMEMBERED = 100_000
"""So many documents are known to be closed: memory stays the same however long a unit is."""


@dataclass
class Open:
    """What is kept of a unit."""

    document: Any = None
    """The id of the document that is not closed yet; `None` before the first one."""
    parts: list[DocumentBatch] = field(default_factory=list)
    """Its segments so far, in order."""
    closed: dict[Any, None] = field(default_factory=dict)
    """Ids of documents that were closed, the oldest first."""


class DocumentJoiner(OrderedStage[DocumentBatch, DocumentBatch]):
    """Join segments with the same document id into one document, in the order of their numbers.

    The segments of a document must follow each other, as a splitter leaves them; batches may end between them. The
    joined document has the other fields, and the record id, of its first segment.
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
        """`separator` stands between the segments. `document_id_field`, `segment_id_field`: where the ids are.

        `drop_segment_id_field`: take the field out; else it gets the number of the joined document among those of its
        document. `max_length`, `length_field`: begin a new one where the lengths in that field, and those of the
        separators, would come to more; one segment alone may be longer.
        """
        who = "DocumentJoiner"
        if not isinstance(separator, str):
            raise UsageError(f"{who}.separator: {separator!r} is not a text")
        if (max_length is None) != (length_field is None):
            given, missing = ("max_length", "length_field") if length_field is None else ("length_field", "max_length")
            raise UsageError(f"{who}.{given} is given and {missing} is not; give both or neither")
        if max_length is not None and (isinstance(max_length, bool) or max_length < 1):
            raise UsageError(f"{who}.max_length: {max_length!r} is not a whole number of 1 or more")
        self.separator = separator
        self.text_field = field_name(who, "text_field", text_field)
        self.segment_id_field = field_name(who, "segment_id_field", segment_id_field)
        self.document_id_field = field_name(who, "document_id_field", document_id_field)
        self.drop_segment_id_field = drop_segment_id_field
        self.max_length = max_length
        self.length_field = None if length_field is None else field_name(who, "length_field", length_field)

    def inputs(self) -> tuple[list[str], list[str]]:
        """The text, the two ids, and the length where there is a limit."""
        needed = [self.text_field, self.segment_id_field, self.document_id_field]
        return ["data"], [*needed, *([self.length_field] if self.length_field is not None else [])]

    def outputs(self) -> tuple[list[str], list[str]]:
        """What is written."""
        made = [self.text_field, self.document_id_field]
        made += [] if self.drop_segment_id_field else [self.segment_id_field]
        return ["data"], [*made, *([self.length_field] if self.length_field is not None else [])]

    def place_fault(self, before: Sequence[ProcessingStage[Any, Any]]) -> str:
        """Segments must be made in this run, or the reader must not cut files: else two units may share a document."""
        if any(self.segment_id_field in stage.outputs()[1] for stage in before):
            return ""
        reader = before[0] if before else None
        if not isinstance(reader, SourceStage) or getattr(reader, "files_per_partition", 1) is not None:
            return ""
        return (
            f"no stage before it makes the column {self.segment_id_field!r}, so the segments are in the input, and "
            f"{reader.name} cuts large files into units: a document could be cut in two. Let a unit be a whole file: "
            f"{reader.name}(files_per_partition=1)"
        )

    # -- one unit -----------------------------------------------------------------------------------------------------

    def begin_unit(self) -> Open:
        """Nothing is open yet."""
        return Open()

    def take(self, kept: Open, task: DocumentBatch) -> Gathered:
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

    def _close(self, kept: Open, batch: DocumentBatch, runs: list[tuple[Any, int]], goes_on: bool) -> Gathered:
        """Join the open document and all of the batch but its last, which is the open one now."""
        last_key, last_start = runs[-1]
        ended = batch.take(range(last_start))
        whole = _together([*kept.parts, ended])
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

    def end_unit(self, kept: Open) -> Gathered:
        """Join the document that is still open."""
        if not kept.parts:
            return Gathered(DocumentBatch([]))
        whole = _together(kept.parts)
        kept.document, kept.parts = None, []
        return self._joined(whole, [0])

    def _fit(self, batch: DocumentBatch) -> DocumentBatch:
        """The batch without records that lack what is needed."""
        texts = batch.values(self.text_field)
        unfit = [row for row, text in enumerate(texts) if not isinstance(text, str)]
        if unfit:
            batch = set_aside_without_text(batch, unfit, self.text_field)
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

    def _without_apart(self, batch: DocumentBatch, kept: Open) -> DocumentBatch:
        """Without segments whose document is closed: others came between."""
        runs = _runs(batch.values(self.document_id_field))
        ends = [*(start for _, start in runs[1:]), len(batch)]
        here: set[Any] = set()
        current = kept.document if kept.parts else None
        away: list[int] = []
        for (key, start), end in zip(runs, ends, strict=True):
            if key == current:
                continue
            if key in here or key in kept.closed:
                away.extend(range(start, end))
            else:
                here.add(current)
                current = key
        if not away:
            return batch
        message = (
            "the segments of this document do not follow each other: others came between, and it was closed. "
            f"Sort the input by {self.document_id_field!r}"
        )
        return batch.set_aside(away, error=APART, messages=[message] * len(away))

    def _joined(self, batch: DocumentBatch, starts: Sequence[int]) -> Gathered:
        """The documents that begin at `starts` and fill the batch."""
        if not starts:
            return Gathered(batch)
        texts, numbers = batch.values(self.text_field), batch.values(self.segment_id_field)
        lengths = batch.values(self.length_field) if self.length_field is not None else [0] * len(batch)
        firsts: list[int] = []
        joined: list[str] = []
        places: list[int] = []
        new_lengths: list[Any] = []
        for start, end in itertools.pairwise([*starts, len(batch)]):
            segments = [Segment(row, texts[row], lengths[row]) for row in range(start, end)]
            segments.sort(key=lambda segment: numbers[segment.row])
            for place, piece in enumerate(joined_pieces(segments, self.separator, self.max_length)):
                firsts.append(piece.row)
                joined.append(piece.text)
                places.append(place)
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
            made = made.replace(self.segment_id_field, places)
        return Gathered(made, len(batch) - len(firsts))


def _runs(keys: Sequence[Any]) -> list[tuple[Any, int]]:
    """Each document and where it begins, as they follow each other."""
    return [(key, row) for row, key in enumerate(keys) if not row or key != keys[row - 1]]


def _together(parts: Sequence[DocumentBatch]) -> DocumentBatch:
    return concat_batches([part for part in parts if len(part)] or list(parts[:1]))


def _is_name(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
