# SPDX-License-Identifier: Apache-2.0
"""Evaluation of a chain of rules over a batch: each rule judges the records that the rules before it kept.

The drop reason is therefore the first rule that rejects a record, and a rule is computed only for the records that
reach it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from thresher.core.documents.batch import MOST_REMEMBERED, DocumentBatch, DroppedRows
from thresher.core.scores import memo_key, score_list
from thresher.stages.text.columns.not_text import set_aside_without_text
from thresher.stages.text.columns.text_column import COLUMN, RecordTexts, Rows, TextColumn, plain_texts, text_column
from thresher.stages.text.judging.link import Link
from thresher.stages.text.judging.rule import CountRule

if TYPE_CHECKING:
    from thresher.kernels.counts.text_counts import Count

Scores = npt.NDArray[Any] | list[Any]
"""Scores of some records: an array of numbers if computed by kernels, else a list of the values that a rule
returned."""
Beside = Callable[[], Sequence[Link]]
"""Returns the rules of other stages, if they are needed."""


@dataclass(frozen=True)
class Judgement:
    """The result of one rule of a chain."""

    without_text: Rows
    """Records without a text for the rule."""
    records: Rows
    """Records that it judged."""
    scores: Scores
    """Their scores."""
    failed: npt.NDArray[np.bool_] | None
    """Mask of those that it drops; `None`: none."""

    @property
    def left(self) -> Rows:
        """Return the records that the next rule judges."""
        return self.records if self.failed is None else self.records[~self.failed]


def evaluate_rules(batch: DocumentBatch, links: Sequence[Link], beside: Beside = tuple) -> list[Judgement]:
    """Evaluate the rules on the records of a batch; `beside`: rules that will read the same texts later."""
    parts = [_judge_piece(piece, links, beside) for piece in _pieces(batch)]
    if len(parts) == 1:
        return parts[0]
    sizes = [len(piece) for piece in _pieces(batch)]
    starts = np.cumsum([0, *sizes[:-1]])
    return [_joined([part[n] for part in parts], starts) for n in range(len(links))]


def score_all(batch: DocumentBatch, links: Sequence[Link]) -> None:
    """Cache the score of every record by every rule in the batch, whatever other rules decide.

    A rule that fails here is called again for the record if the record reaches it, and fails there as usual.
    """
    parts = [_all_scores(piece, links) for piece in _pieces(batch)]
    for n, link in enumerate(links):
        found = [part[n] for part in parts]
        scores = found[0] if len(found) == 1 else [score for part in found for score in score_list(part)]
        batch._memo[memo_key(link.column, link.text_field)] = scores


def apply_judgements(batch: DocumentBatch, links: Sequence[Link], judgements: Sequence[Judgement]) -> DocumentBatch:
    """Apply the judgements to the batch, in the order of the rules."""
    if any(link.score_field is not None for link in links) or any(len(j.without_text) for j in judgements):
        return _apply_one_by_one(batch, links, judgements)
    dropping = [(link, j) for link, j in zip(links, judgements, strict=True) if j.failed is not None]
    if not dropping:
        return batch
    rest = batch.take(judgements[-1].left)
    for link, judgement in dropping:
        rows, scores = _dropped_by(judgement)
        rest._dropped.append(DroppedRows(batch.pick(rows), link.rule, scores, link.threshold))
    return rest


def _apply_one_by_one(batch: DocumentBatch, links: Sequence[Link], judgements: Sequence[Judgement]) -> DocumentBatch:
    """Apply rule by rule: a written score is also part of the records that a later rule drops."""
    index_of = np.arange(batch.num_items, dtype=np.int64)
    for link, judgement in zip(links, judgements, strict=True):
        if len(judgement.without_text):
            batch = set_aside_without_text(batch, index_of[judgement.without_text].tolist(), link.text_field)
            index_of[judgement.records] = np.arange(len(judgement.records))
        if link.score_field is not None:
            batch = batch.replace(link.score_field, score_list(judgement.scores))
        if judgement.failed is not None:
            rows, scores = _dropped_by(judgement)
            batch = batch.drop(index_of[rows], link.rule, scores, link.threshold)
            index_of[judgement.left] = np.arange(len(judgement.left))
    return batch


def _dropped_by(judgement: Judgement) -> tuple[Rows, list[Any]]:
    assert judgement.failed is not None
    rows = judgement.records[judgement.failed]
    if isinstance(judgement.scores, list):
        return rows, [judgement.scores[index] for index in np.flatnonzero(judgement.failed).tolist()]
    return rows, judgement.scores[judgement.failed].tolist()


# -- a large batch by pieces ------------------------------------------------------------------------------------------


def _pieces(batch: DocumentBatch) -> Iterator[DocumentBatch]:
    """Yield a batch that is too large to be cached in pieces, so that their texts are not in memory at the same
    time."""
    count = batch.num_items
    pieces = min(count, -(-batch.nbytes // MOST_REMEMBERED)) if count else 0
    if pieces <= 1:
        yield batch
        return
    for rows in np.array_split(np.arange(count, dtype=np.int64), pieces):
        yield batch.pick(rows)


def _joined(parts: Sequence[Judgement], starts: npt.NDArray[Any]) -> Judgement:
    """Join the judgements of one rule about the pieces of a batch."""
    moved = [
        replace(part, without_text=part.without_text + start, records=part.records + start)
        for part, start in zip(parts, starts, strict=True)
    ]
    failed = None
    if any(part.failed is not None for part in moved):
        failed = np.concatenate([_mask(part) for part in moved])
    return Judgement(
        np.concatenate([part.without_text for part in moved]),
        np.concatenate([part.records for part in moved]),
        [score for part in moved for score in score_list(part.scores)],
        failed,
    )


def _mask(judgement: Judgement) -> npt.NDArray[np.bool_]:
    return np.zeros(len(judgement.records), dtype=np.bool_) if judgement.failed is None else judgement.failed


# -- one rule after the other -----------------------------------------------------------------------------------------


def _judge_piece(batch: DocumentBatch, links: Sequence[Link], beside: Beside) -> list[Judgement]:
    known = [link.scores_in(batch) for link in links]
    texts = _texts(batch, links, known, beside)
    left: Rows = np.arange(batch.num_items, dtype=np.int64)
    judgements = []
    for link, scores in zip(links, known, strict=True):
        judgement = _judge_by(link, scores, left, texts.get(link.text_field))
        left = judgement.left
        judgements.append(judgement)
    return judgements


def _judge_by(link: Link, known: Any, records: Rows, texts: RecordTexts | None) -> Judgement:
    none = records[:0]
    if not len(records):
        return Judgement(none, none, [], None)
    if known is None:
        assert texts is not None, "made for a link whose scores are unknown"
        has = texts.has_text(records)
        without = none
        if not has.all():
            without, records = records[~has], records[has]
        scores = _scores(link, records, texts)
        return Judgement(without, records, scores, _failed(link, scores))
    if not isinstance(known, list):
        return Judgement(none, records, known[records], _failed(link, known[records]))
    found = [known[record] for record in records.tolist()]
    missing = np.array([index for index, score in enumerate(found) if score is None], dtype=np.int64)
    without = none
    if len(missing):
        assert texts is not None, "made for a link that lacks a score"
        has = texts.has_text(records[missing])
        filled = score_list(_scores(link, records[missing[has]], texts))
        for index, score in zip(missing[has].tolist(), filled, strict=True):
            found[index] = score
        if not has.all():
            without = records[missing[~has]]
            gone = set(missing[~has].tolist())
            found = [score for index, score in enumerate(found) if index not in gone]
            records = np.delete(records, missing[~has])
    return Judgement(without, records, found, _failed(link, found))


def _scores(link: Link, records: Rows, texts: RecordTexts) -> Scores:
    if link.counted is not None and isinstance(texts, TextColumn):
        return _counted(link.counted, link.needs, texts, records)
    score = link.score
    return [score(text) for text in texts.strings(records)]


def _counted(rule: CountRule, needs: Sequence[Count], texts: TextColumn, records: Rows) -> npt.NDArray[Any]:
    """Return the scores of records by the formula of a rule."""
    if not len(records):
        return np.zeros(0, dtype=np.int64)
    rows, counts = texts.rows[records], texts.counts
    counts.fill(needs, rows)
    return rule.score_counts({count: counts[count][rows] for count in needs})


def _failed(link: Link, scores: Scores) -> npt.NDArray[np.bool_] | None:
    """Return a mask of the rejected scores; `None` if none is rejected."""
    if link.keep is None or not len(scores):
        return None
    if link.bounded is not None:
        values = np.asarray(scores) if isinstance(scores, list) and _are_numbers(scores) else scores
        if not isinstance(values, list):
            low, high = link.bounded.allowed()
            failed: npt.NDArray[np.bool_] = (values >= low) & (values <= high)
            failed = failed if link.invert else ~failed
            return failed if failed.any() else None
    keep, invert = link.keep, link.invert
    failed = np.array([bool(keep(score)) is invert for score in score_list(scores)], dtype=np.bool_)
    return failed if failed.any() else None


def _are_numbers(scores: list[Any]) -> bool:
    """Return True if an array can hold exactly these values."""
    kinds = set(map(type, scores))
    return kinds <= {float} or (kinds <= {int} and all(-(2**53) < score < 2**53 for score in scores))


def _all_scores(batch: DocumentBatch, links: Sequence[Link]) -> list[Scores]:
    """Return the scores of all records of a batch by each link; `None` for a record without one."""
    known = [link.scores_in(batch) for link in links]
    texts = _texts(batch, links, known, tuple)
    everything: Rows = np.arange(batch.num_items, dtype=np.int64)
    found: list[Scores] = []
    for link, scores in zip(links, known, strict=True):
        column = texts.get(link.text_field)
        if scores is not None and not isinstance(scores, list):
            found.append(scores)
            continue
        records = everything
        if scores is not None:
            records = np.array([record for record, score in enumerate(scores) if score is None], dtype=np.int64)
        filled = list(scores) if scores is not None else [None] * len(everything)
        if column is not None and len(records):
            records = records[column.has_text(records)]
            if link.counted is not None and isinstance(column, TextColumn):
                values = _counted(link.counted, link.needs, column, records)
                if len(records) == len(everything):
                    found.append(values)
                    continue
                for record, value in zip(records.tolist(), values.tolist(), strict=True):
                    filled[record] = value
            else:
                _fill_by_python(link, column, records, filled)
        found.append(filled)
    return found


def _fill_by_python(link: Link, texts: RecordTexts, records: Rows, filled: list[Any]) -> None:
    for record, text in zip(records.tolist(), texts.strings(records), strict=True):
        with contextlib.suppress(Exception):  # the code of a rule may raise anything
            filled[record] = link.score(text)


# -- texts for missing scores -----------------------------------------------------------------------------------------


def _texts(batch: DocumentBatch, links: Sequence[Link], known: Sequence[Any], beside: Beside) -> dict[str, RecordTexts]:
    """Return the texts of each column for which a score is missing; only those records are decoded."""
    found: dict[str, RecordTexts] = {}
    for field in dict.fromkeys(link.text_field for link in links):
        column: TextColumn | None = batch._memo.get((COLUMN, field))
        if column is not None:
            found[field] = column
            continue
        columns = [scores for link, scores in zip(links, known, strict=True) if link.text_field == field]
        wanted = [link for link in (*links, *beside()) if link.text_field == field and link.counted is not None]
        records = _open_records(batch, columns)
        if len(records):
            found[field] = text_column(batch, field, records) if wanted else plain_texts(batch, field, records)
        made = found.get(field)
        if isinstance(made, TextColumn):
            made.counts.expect(need for link in wanted for need in link.needs)
    return found


def _open_records(batch: DocumentBatch, columns: Sequence[Any]) -> Rows:
    """Return the records that lack a score in one of the columns."""
    if any(scores is None for scores in columns):
        return np.arange(batch.num_items, dtype=np.int64)
    lists = [scores for scores in columns if isinstance(scores, list)]
    return np.array(sorted({row for scores in lists for row, score in enumerate(scores) if score is None}), np.int64)
