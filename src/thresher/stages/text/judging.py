# SPDX-License-Identifier: Apache-2.0
"""A batch through a chain of rules: each rule in its turn, over the records that the rules before it left.

So the reason of a drop is the first rule that fails a record, and what a rule needs is worked out for no other record.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from thresher.core.batch import MOST_REMEMBERED, DocumentBatch, DroppedRows
from thresher.core.scores import memo_key, score_list
from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.link import Link
from thresher.stages.text.not_text import set_aside_without_text
from thresher.stages.text.text_column import COLUMN, RecordTexts, Rows, TextColumn, plain_texts, text_column

if TYPE_CHECKING:
    from thresher.kernels.counts import Count

Scores = npt.NDArray[Any] | list[Any]
"""Scores of some records: an array of numbers where kernels found them, else a list of whatever a rule returned."""
Beside = Callable[[], Sequence[Link]]
"""Rules of other stages, told where they are of interest."""


@dataclass(frozen=True)
class Judgement:
    """What one rule of a chain said."""

    without_text: Rows
    """Records that have no text for it."""
    records: Rows
    """Records that it judged."""
    scores: Scores
    """What it found, one score for each of these."""
    failed: npt.NDArray[np.bool_] | None
    """Which of them it drops; `None`: none."""

    @property
    def left(self) -> Rows:
        """Records that the next rule judges."""
        return self.records if self.failed is None else self.records[~self.failed]


def judged(batch: DocumentBatch, links: Sequence[Link], beside: Beside = tuple) -> list[Judgement]:
    """What the rules say about the records of a batch; `beside`: rules that will look at the same texts later."""
    parts = [_judged_piece(piece, links, beside) for piece in _pieces(batch)]
    if len(parts) == 1:
        return parts[0]
    sizes = [len(piece) for piece in _pieces(batch)]
    starts = np.cumsum([0, *sizes[:-1]])
    return [_joined([part[n] for part in parts], starts) for n in range(len(links))]


def score_all(batch: DocumentBatch, links: Sequence[Link]) -> None:
    """Let the batch remember the score of every record by every rule, whatever another rule says of it.

    A rule that fails here is asked again where the record reaches it, and fails there as it would have.
    """
    parts = [_all_scores(piece, links) for piece in _pieces(batch)]
    for n, link in enumerate(links):
        found = [part[n] for part in parts]
        scores = found[0] if len(found) == 1 else [score for part in found for score in score_list(part)]
        batch._memo[memo_key(link.column, link.text_field)] = scores


def applied(batch: DocumentBatch, links: Sequence[Link], judgements: Sequence[Judgement]) -> DocumentBatch:
    """What the rules said, done to the batch in their order."""
    if any(link.score_field is not None for link in links) or any(len(j.without_text) for j in judgements):
        return _applied_in_turn(batch, links, judgements)
    told = [(link, j) for link, j in zip(links, judgements, strict=True) if j.failed is not None]
    if not told:
        return batch
    rest = batch.take(judgements[-1].left)
    for link, judgement in told:
        rows, scores = _dropped_by(judgement)
        rest._dropped.append(DroppedRows(batch._picked(rows), link.rule, scores, link.threshold))
    return rest


def _applied_in_turn(batch: DocumentBatch, links: Sequence[Link], judgements: Sequence[Judgement]) -> DocumentBatch:
    """A score that is noted stands in the records that a later rule drops, so every rule makes a batch of its own."""
    place_of = np.arange(batch.num_items, dtype=np.int64)
    for link, judgement in zip(links, judgements, strict=True):
        if len(judgement.without_text):
            batch = set_aside_without_text(batch, place_of[judgement.without_text].tolist(), link.text_field)
            place_of[judgement.records] = np.arange(len(judgement.records))
        if link.score_field is not None:
            batch = batch.replace(link.score_field, score_list(judgement.scores))
        if judgement.failed is not None:
            rows, scores = _dropped_by(judgement)
            batch = batch.drop(place_of[rows], link.rule, scores, link.threshold)
            place_of[judgement.left] = np.arange(len(judgement.left))
    return batch


def _dropped_by(judgement: Judgement) -> tuple[Rows, list[Any]]:
    assert judgement.failed is not None
    rows = judgement.records[judgement.failed]
    if isinstance(judgement.scores, list):
        return rows, [judgement.scores[place] for place in np.flatnonzero(judgement.failed).tolist()]
    return rows, judgement.scores[judgement.failed].tolist()


# -- a large batch by pieces ------------------------------------------------------------------------------------------


def _pieces(batch: DocumentBatch) -> Iterator[DocumentBatch]:
    """A batch that is too large to be remembered, by pieces: their texts are not in memory at the same time."""
    count = batch.num_items
    pieces = min(count, -(-batch.nbytes // MOST_REMEMBERED)) if count else 0
    if pieces <= 1:
        yield batch
        return
    for rows in np.array_split(np.arange(count, dtype=np.int64), pieces):
        yield batch._picked(rows)


def _joined(parts: Sequence[Judgement], starts: npt.NDArray[Any]) -> Judgement:
    """What one rule said about the pieces of a batch."""
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


def _judged_piece(batch: DocumentBatch, links: Sequence[Link], beside: Beside) -> list[Judgement]:
    known = [link.scores_in(batch) for link in links]
    texts = _texts(batch, links, known, beside)
    left: Rows = np.arange(batch.num_items, dtype=np.int64)
    judgements = []
    for link, scores in zip(links, known, strict=True):
        judgement = _judged_by(link, scores, left, texts.get(link.text_field))
        left = judgement.left
        judgements.append(judgement)
    return judgements


def _judged_by(link: Link, known: Any, records: Rows, texts: RecordTexts | None) -> Judgement:
    nobody = records[:0]
    if not len(records):
        return Judgement(nobody, nobody, [], None)
    if known is None:
        assert texts is not None, "made for a link whose scores are unknown"
        has = texts.has_text(records)
        without = nobody
        if not has.all():
            without, records = records[~has], records[has]
        scores = _scores(link, records, texts)
        return Judgement(without, records, scores, _failed(link, scores))
    if not isinstance(known, list):
        return Judgement(nobody, records, known[records], _failed(link, known[records]))
    found = [known[record] for record in records.tolist()]
    open_places = np.array([place for place, score in enumerate(found) if score is None], dtype=np.int64)
    without = nobody
    if len(open_places):
        assert texts is not None, "made for a link that lacks a score"
        has = texts.has_text(records[open_places])
        filled = score_list(_scores(link, records[open_places[has]], texts))
        for place, score in zip(open_places[has].tolist(), filled, strict=True):
            found[place] = score
        if not has.all():
            without = records[open_places[~has]]
            gone = set(open_places[~has].tolist())
            found = [score for place, score in enumerate(found) if place not in gone]
            records = np.delete(records, open_places[~has])
    return Judgement(without, records, found, _failed(link, found))


def _scores(link: Link, records: Rows, texts: RecordTexts) -> Scores:
    if link.counted is not None and isinstance(texts, TextColumn):
        return _counted(link.counted, link.needs, texts, records)
    score = link.score
    return [score(text) for text in texts.strings(records)]


def _counted(rule: CountRule, needs: Sequence[Count], texts: TextColumn, records: Rows) -> npt.NDArray[Any]:
    """The scores of records by the formula of a rule."""
    if not len(records):
        return np.zeros(0, dtype=np.int64)
    rows, counts = texts.rows[records], texts.counts
    counts.fill(needs, rows)
    return rule.score_counts({count: counts[count][rows] for count in needs})


def _failed(link: Link, scores: Scores) -> npt.NDArray[np.bool_] | None:
    """Which scores are not good enough."""
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
    """Whether an array holds the very same values."""
    kinds = set(map(type, scores))
    return kinds <= {float} or (kinds <= {int} and all(-(2**53) < score < 2**53 for score in scores))


def _all_scores(batch: DocumentBatch, links: Sequence[Link]) -> list[Scores]:
    """The scores of all records of a batch by each link; `None` where a record has none."""
    known = [link.scores_in(batch) for link in links]
    texts = _texts(batch, links, known, tuple)
    everybody: Rows = np.arange(batch.num_items, dtype=np.int64)
    found: list[Scores] = []
    for link, scores in zip(links, known, strict=True):
        column = texts.get(link.text_field)
        if scores is not None and not isinstance(scores, list):
            found.append(scores)
            continue
        records = everybody
        if scores is not None:
            records = np.array([record for record, score in enumerate(scores) if score is None], dtype=np.int64)
        filled = list(scores) if scores is not None else [None] * len(everybody)
        if column is not None and len(records):
            records = records[column.has_text(records)]
            if link.counted is not None and isinstance(column, TextColumn):
                values = _counted(link.counted, link.needs, column, records)
                if len(records) == len(everybody):
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
        with contextlib.suppress(Exception):  # a rule's own code may raise anything
            filled[record] = link.score(text)


# -- the texts that are needed ----------------------------------------------------------------------------------------


def _texts(batch: DocumentBatch, links: Sequence[Link], known: Sequence[Any], beside: Beside) -> dict[str, RecordTexts]:
    """The texts of each column in which a score is still to be found; only those records are decoded."""
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
    """Records that lack a score in one of the columns."""
    if any(scores is None for scores in columns):
        return np.arange(batch.num_items, dtype=np.int64)
    lists = [scores for scores in columns if isinstance(scores, list)]
    return np.array(sorted({row for scores in lists for row, score in enumerate(scores) if score is None}), np.int64)
