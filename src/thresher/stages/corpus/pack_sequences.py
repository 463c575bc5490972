# SPDX-License-Identifier: Apache-2.0
"""Pack documents into sequences of a given length, as training wants them: texts, or token ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from thresher.core.arguments.options import check_choice, check_count, field_name
from thresher.core.documents.batch import DocumentBatch, concat_batches
from thresher.core.records.record_task import Gathered
from thresher.core.stage import OrderedStage
from thresher.errors import UsageError
from thresher.stages.corpus.pack_tokens import (
    INFO_COLUMNS,
    STRATEGIES,
    OpenTokens,
    TokenPacking,
    end_tokens,
    take_tokens,
)
from thresher.stages.text.columns.not_text import with_texts
from thresher.stages.text.segments.document_joiner import own_copy


@dataclass
class OpenSequence:
    """The sequence of a unit that is not full yet."""

    parts: list[DocumentBatch] = field(default_factory=list)
    """Its documents."""
    length: int = 0
    """Their length, with separators."""


_SEPARATOR = "\n\n"


class PackSequences(OrderedStage[DocumentBatch, DocumentBatch]):
    """Join documents to sequences of a given length, of text or of tokens; they end where a unit of the input ends.

    Texts: neighbours are joined up to the length, and a longer document is a sequence of its own. A sequence has the id
    and the other fields of its first document. Tokens: sequences of `tokens_field` are cut from documents as `strategy`
    says, with columns for training in place of the other fields.
    """

    def __init__(  # noqa: PLR0913 - parameters for texts, and those for tokens
        self,
        max_length: int,
        length_field: str | None = None,
        separator: str = _SEPARATOR,
        text_field: str = "text",
        count_field: str = "documents",
        tokens_field: str | None = None,
        strategy: str = "concat",
        pad_id: int | None = None,
        drop_last: bool = False,
        window: int = 1024,
    ) -> None:
        """`max_length`: the most that a sequence has, in characters, in the unit of `length_field`, or in tokens.
        `length_field`: a column with the length of each document, such as the tokens of a `TokenCounter`; it gets that
        of the sequence. A separator counts as 1 there.
        `separator`: what stands between two documents.
        `text_field`: the column of the text.
        `count_field`: the column that gets the number of documents in a sequence.
        `tokens_field`: a column of token ids, such as that of a `TokenEncoder`: sequences of tokens are made, and
        `attention_mask`, `position_ids` and `segment_ids` beside them.
        `strategy`: `concat` cuts the documents, one after the other, into full sequences; `best-fit` cuts only
        documents that are longer than a sequence, and puts together what fills sequences best.
        `pad_id`: the id that fills sequences which are not full; without it they are shorter.
        `drop_last`: drop sequences that are not full.
        `window`: the number of full sequences whose tokens `best-fit` looks at together.
        """
        self.max_length, self.separator = check_count("PackSequences.max_length", max_length), separator
        self.length_field = None if length_field is None else field_name("PackSequences", "length_field", length_field)
        self.text_field = field_name("PackSequences", "text_field", text_field)
        self.count_field = field_name("PackSequences", "count_field", count_field)
        self.tokens: TokenPacking | None = None
        if tokens_field is not None:
            self.tokens = self._token_packing(tokens_field, strategy, pad_id, drop_last, window)
        elif (strategy, pad_id, drop_last) != ("concat", None, False):
            raise UsageError("PackSequences: strategy, pad_id and drop_last are about tokens; give tokens_field too")

    def _token_packing(
        self, tokens_field: str, strategy: str, pad_id: int | None, drop_last: bool, window: int
    ) -> TokenPacking:
        field_name("PackSequences", "tokens_field", tokens_field)
        check_choice("PackSequences.strategy", strategy, STRATEGIES)
        if self.length_field is not None or self.separator != _SEPARATOR:
            raise UsageError(
                "PackSequences: length_field and separator are about texts; leave them out with tokens_field. "
                "TokenEncoder(append_eod=True) puts a token between documents"
            )
        if pad_id is not None:
            check_count("PackSequences.pad_id", pad_id, least=0)
        columns = [tokens_field, self.count_field, *INFO_COLUMNS]
        if len(set(columns)) < len(columns):
            raise UsageError(f"PackSequences: two of the columns {', '.join(columns)} have one name; choose others")
        check_count("PackSequences.window", window)
        return TokenPacking(self.max_length, tokens_field, self.count_field, strategy, pad_id, drop_last, window)

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the columns of text and length, or that of tokens."""
        if self.tokens is not None:
            return ["data"], [self.tokens.tokens_field]
        return ["data"], [self.text_field, *([] if self.length_field is None else [self.length_field])]

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that are written."""
        info = [] if self.tokens is None else INFO_COLUMNS
        return ["data"], [*self.inputs()[1], *info, self.count_field]

    def begin_unit(self) -> OpenSequence | OpenTokens:
        """Return an empty sequence."""
        return OpenSequence() if self.tokens is None else OpenTokens()

    def take(self, kept: Any, task: DocumentBatch) -> Gathered:
        """Return the sequences that are full; the last one stays open."""
        return self._take_texts(kept, task) if self.tokens is None else take_tokens(self, self.tokens, kept, task)

    def end_unit(self, kept: Any) -> Gathered:
        """Return what is still open."""
        return self._end_texts(kept) if self.tokens is None else end_tokens(self, self.tokens, kept)

    def _take_texts(self, kept: OpenSequence, task: DocumentBatch) -> Gathered:
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

    def _end_texts(self, kept: OpenSequence) -> Gathered:
        if not kept.parts:
            return Gathered(DocumentBatch([]))
        (whole,), kept.parts = kept.parts, []
        return self._joined(whole, [0])

    @property
    def _separator_length(self) -> int:
        return len(self.separator) if self.length_field is None else int(bool(self.separator))

    def _fit(self, batch: DocumentBatch) -> DocumentBatch:
        """Return the batch without documents that have no text or no length."""
        batch, _ = with_texts(batch, self.text_field)
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
