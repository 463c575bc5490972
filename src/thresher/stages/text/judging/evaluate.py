# SPDX-License-Identifier: Apache-2.0
"""Evaluation of rules over a batch: each rule judges the records that the rules before it kept.

The drop reason is therefore the first rule that rejects a record, and a rule is computed only for the records that
reach it. Every stage with rules, a single one or several in a fused call, and `thresher why` use this evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.core.documents.batch import MOST_REMEMBERED, DocumentBatch, DroppedRows
from thresher.core.records.record_task import score_list
from thresher.core.scores import RuleDrops, Verdict
from thresher.stages.text.columns.any_values import RecordValues, records_of
from thresher.stages.text.columns.text_column import COLUMN, RecordTexts, Rows, TextColumn, plain_texts, text_column
from thresher.stages.text.judging.rule import ChainedRule, threshold_of

Scores = npt.NDArray[Any] | list[Any]
"""Scores of some records: an array of numbers if computed by kernels, else a list of the values that a rule
returned."""
Beside = Callable[[], Sequence[ChainedRule]]
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
    left: Rows
    """The records that the next rule judges."""


def judged(batch: DocumentBatch, links: Sequence[ChainedRule], beside: Beside = tuple) -> DocumentBatch:
    """Return the records that the rules keep, with the reasons of the others and the scores in their columns."""
    judgements = evaluate_rules(batch, links, beside)
    if any(link.score_field is not None for link in links) or any(len(j.without_text) for j in judgements):
        return _apply_one_by_one(batch, links, judgements)
    dropping = [(link, j) for link, j in zip(links, judgements, strict=True) if j.failed is not None]
    if not dropping:
        return batch
    rest = batch.take(judgements[-1].left)
    for link, judgement in dropping:
        drops = _drops(link, judgement)
        rest._dropped.append(DroppedRows(batch.pick(drops.rows), drops.rule, score_list(drops.scores), drops.threshold))
    return rest


def evaluate_rules(batch: DocumentBatch, links: Sequence[ChainedRule], beside: Beside = tuple) -> list[Judgement]:
    """Evaluate the rules on the records of a batch; `beside`: rules that will read the same texts later."""
    parts = [(start, list(_judge_each(piece, links, beside))) for start, piece in _pieces(batch)]
    if len(parts) == 1:
        return parts[0][1]
    return [_joined([(start, judgements[n]) for start, judgements in parts]) for n in range(len(links))]


def score_all(batch: DocumentBatch, links: Sequence[ChainedRule]) -> None:
    """Cache the score of every record by every rule in the batch, whatever other rules decide.

    A rule that fails here is called again for the record if the record reaches it, and fails there as usual.
    """
    links = [link for link in links if len(link.fields) == 1]
    parts = [_all_scores(piece, links) for _, piece in _pieces(batch)]
    for n, link in enumerate(links):
        found = [part[n] for part in parts]
        batch._memo[link.key] = found[0] if len(found) == 1 else [score for part in found for score in score_list(part)]


# -- several stages at once -------------------------------------------------------------------------------------------


def can_compute_verdicts(batch: DocumentBatch, links: Sequence[ChainedRule]) -> bool:
    """Return True if the rules are formulas with bounds that do not change records, and the batch consists of lines
    without cached scores."""
    if batch.raw_lines is None or batch._before is not None or batch.nbytes > MOST_REMEMBERED:
        return False
    return all(
        link.counted is not None
        and link.bounded is not None
        and link.score_field is None
        and link.key not in batch._memo
        for link in links
    )


def verdicts(batch: DocumentBatch, chains: Sequence[Sequence[ChainedRule]], scores_kept: bool) -> Iterator[Verdict]:
    """Yield a verdict for each chain, computed on demand; none if a record has no text. `scores_kept`: the batch caches
    the scores of all records from the first verdict to the last.

    Called one by one, each stage builds a batch for the next one. That costs more than the rules themselves if these
    are formulas over counts, so here only the indices of the records are passed on.
    """
    links = [link for chain in chains for link in chain]
    everything = np.arange(len(batch), dtype=np.int64)
    for field in dict.fromkeys(link.text_field for link in links):
        if not text_column(batch, field).has_text(everything).all():
            return
    if scores_kept:
        score_all(batch, links)
    judgements = _judge_each(batch, links, tuple)
    left: Rows = everything
    for chain in chains:
        drops = []
        for link in chain:
            judgement = next(judgements)
            left = judgement.left
            if judgement.failed is not None:
                drops.append(_drops(link, judgement))
        yield Verdict(left, drops)
    for link in links:
        batch._memo.pop(link.key, None)


# -- what becomes of the records --------------------------------------------------------------------------------------


def _apply_one_by_one(
    batch: DocumentBatch, links: Sequence[ChainedRule], judgements: Sequence[Judgement]
) -> DocumentBatch:
    """Apply rule by rule: a written score is also part of the records that a later rule drops."""
    index_of = np.arange(batch.num_items, dtype=np.int64)
    for link, judgement in zip(links, judgements, strict=True):
        if len(judgement.without_text):
            from thresher.stages.text.columns.not_text import set_aside_without_text

            needed = "a value" if link.takes_any else "a string"
            rows = index_of[judgement.without_text].tolist()
            batch = set_aside_without_text(batch, rows, link.text_field, needed)
            index_of[judgement.records] = np.arange(len(judgement.records))
        if link.score_field is not None:
            batch = batch.replace(link.score_field, score_list(judgement.scores))
        if judgement.failed is not None:
            drops = _drops(link, judgement)
            batch = batch.drop(index_of[drops.rows], drops.rule, score_list(drops.scores), drops.threshold)
            index_of[judgement.left] = np.arange(len(judgement.left))
    return batch


def _drops(link: ChainedRule, judgement: Judgement) -> RuleDrops:
    failed, scores = judgement.failed, judgement.scores
    assert failed is not None, "called for a rule that drops"
    chosen = (
        [scores[index] for index in np.flatnonzero(failed).tolist()] if isinstance(scores, list) else scores[failed]
    )
    return RuleDrops(link.rule, judgement.records[failed], chosen, threshold_of(link.judge))


def _pieces(batch: DocumentBatch) -> Iterator[tuple[int, DocumentBatch]]:
    """Yield a batch that is too large to be cached in pieces, each with the index of its first record, so that their
    texts are not in memory at the same time."""
    count = batch.num_items
    pieces = min(count, -(-batch.nbytes // MOST_REMEMBERED)) if count else 0
    if pieces <= 1:
        yield 0, batch
        return
    for rows in np.array_split(np.arange(count, dtype=np.int64), pieces):
        yield int(rows[0]), batch.pick(rows)


def _joined(parts: Sequence[tuple[int, Judgement]]) -> Judgement:
    """Join the judgements of one rule about the pieces of a batch."""
    moved = [
        replace(part, without_text=part.without_text + start, records=part.records + start, left=part.left + start)
        for start, part in parts
    ]
    failed = None
    if any(part.failed is not None for part in moved):
        failed = np.concatenate([np.zeros(len(p.records), np.bool_) if p.failed is None else p.failed for p in moved])
    return Judgement(
        np.concatenate([part.without_text for part in moved]),
        np.concatenate([part.records for part in moved]),
        [score for part in moved for score in score_list(part.scores)],
        failed,
        np.concatenate([part.left for part in moved]),
    )


# -- one rule after the other -----------------------------------------------------------------------------------------


def _judge_each(batch: DocumentBatch, links: Sequence[ChainedRule], beside: Beside) -> Iterator[Judgement]:
    """Yield the result of each rule, computed on demand."""
    known = [_known_scores(link, batch) for link in links]
    texts = _texts(batch, links, known, beside)
    left: Rows = np.arange(batch.num_items, dtype=np.int64)
    for link, scores in zip(links, known, strict=True):
        judgement = _judge_by(link, scores, left, texts.get(link.text_field), batch)
        left = judgement.left
        yield judgement


def _known_scores(link: ChainedRule, batch: DocumentBatch) -> Scores | None:
    """Return the scores that need no computing: those cached in a batch, in which `None` stands for a missing score, or
    the values of the column for a rule that judges them."""
    if link.score is None:
        values = records_of(batch, link.fields) if len(link.fields) > 1 else batch.values(link.text_field)
        return np.fromiter(values, dtype=np.object_, count=batch.num_items)
    known: Scores | None = batch._memo.get(link.key)
    return known


def _judge_by(
    link: ChainedRule, known: Scores | None, records: Rows, texts: RecordTexts | None, batch: DocumentBatch
) -> Judgement:
    none = records[:0]
    if not len(records):
        return Judgement(none, none, [], None, none)
    scores, has = _complete(link, known, records, (batch, texts), link.score)
    without = none
    if has is not None:
        without, records = records[~has], records[has]
        scores = [score for score, there in zip(scores, has.tolist(), strict=True) if there]
    failed = _failed(link, scores)
    return Judgement(without, records, scores, failed, records if failed is None else records[~failed])


def _complete(
    link: ChainedRule,
    known: Scores | None,
    records: Rows,
    source: tuple[DocumentBatch, RecordTexts | None],
    score: Callable[[str], Any] | None,
) -> tuple[Scores, npt.NDArray[np.bool_] | None]:
    """Return the scores of records, those that are not known computed, by `score` if the rule is no formula; and a mask
    of the records that have a text, `None` if no text is missing."""
    if known is not None and not isinstance(known, list):
        return known[records], None
    if known is None:
        found: list[Any] = [None] * len(records)
        missing: Rows = np.arange(len(records), dtype=np.int64)
    else:
        found = [known[record] for record in records.tolist()]
        missing = np.array([index for index, value in enumerate(found) if value is None], dtype=np.int64)
    if not len(missing):
        return found, None
    batch, texts = source
    assert texts is not None, "made for a link that lacks a score"
    assert score is not None, "a rule without one judges values, which are known"
    has = texts.has_text(records[missing])
    open_records = records[missing[has]]
    if link.counted is not None and isinstance(texts, TextColumn):
        values: Scores = np.zeros(0, dtype=np.int64)
        if len(open_records):
            values = link.counted.score_counts(texts.counts.of(link.needs, texts.rows[open_records]))
    elif link.of_texts is not None and isinstance(texts, TextColumn):
        values = link.of_texts.score_texts(texts.texts, texts.rows[open_records])
    else:
        values = [score(text) for text in texts.strings(open_records)]
    if len(values) == len(records):
        return values, None
    for index, value in zip(missing[has].tolist(), score_list(values), strict=True):
        found[index] = value
    if link.takes_any and not has.all():
        has = has | _score_others(
            found, missing, ~has, batch.pick(records[missing[~has]]).values(link.text_field), score
        )
    if has.all():
        return found, None
    has_text = np.ones(len(records), dtype=np.bool_)
    has_text[missing[~has]] = False
    return found, has_text


def _score_others(
    found: list[Any],
    missing: Rows,
    open_ones: npt.NDArray[np.bool_],
    values: Sequence[Any],
    score: Callable[[Any], Any],
) -> npt.NDArray[np.bool_]:
    """Score values that are no strings, of the `open_ones` among the records at `missing`; return a mask of those that
    have a value."""
    scored = np.zeros(len(missing), dtype=np.bool_)
    for place, value in zip(np.flatnonzero(open_ones).tolist(), values, strict=True):
        if value is not None:
            found[missing[place]] = score(value)
            scored[place] = True
    return scored


def _failed(link: ChainedRule, scores: Scores) -> npt.NDArray[np.bool_] | None:
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


def _all_scores(batch: DocumentBatch, links: Sequence[ChainedRule]) -> list[Scores]:
    """Return the scores of all records of a batch by each link; `None` for a record without one."""
    known = [_known_scores(link, batch) for link in links]
    texts = _texts(batch, links, known, tuple)
    everything: Rows = np.arange(batch.num_items, dtype=np.int64)
    return [
        _complete(link, scores, everything, (batch, texts.get(link.text_field)), _or_none(link.score))[0]
        for link, scores in zip(links, known, strict=True)
    ]


def _or_none(score: Callable[[str], Any] | None) -> Callable[[str], Any]:
    """Return a function that gives `None` for a text on which the rule fails."""
    assert score is not None, "the rules of a score sidecar score texts"

    def safe(text: str) -> Any:
        try:
            return score(text)
        except Exception:  # the code of a rule may raise anything
            return None

    return safe


# -- texts for missing scores -----------------------------------------------------------------------------------------


def _texts(
    batch: DocumentBatch, links: Sequence[ChainedRule], known: Sequence[Scores | None], beside: Beside
) -> dict[str, RecordTexts]:
    """Return the texts of each column for which a score is missing; only those records are decoded."""
    found: dict[str, RecordTexts] = {
        link.text_field: RecordValues(records_of(batch, link.fields))
        for link in links
        if len(link.fields) > 1 and link.score is not None
    }
    for field in dict.fromkeys(link.text_field for link in links if len(link.fields) == 1):
        made: RecordTexts | None = batch._memo.get((COLUMN, field))
        wanted: list[ChainedRule] = []
        if made is None:
            columns = [scores for link, scores in zip(links, known, strict=True) if link.text_field == field]
            wanted = [link for link in (*links, *beside()) if link.text_field == field and _reads_bytes(link)]
            records = _open_records(batch, columns)
            if not len(records):
                continue
            made = text_column(batch, field, records) if wanted else plain_texts(batch, field, records)
        found[field] = made
        if isinstance(made, TextColumn):
            made.counts.expect([need for link in wanted or links if link.text_field == field for need in link.needs])
    return found


def _reads_bytes(link: ChainedRule) -> bool:
    """Return True if the scores of a rule are computed from the bytes of the texts."""
    return link.counted is not None or link.of_texts is not None


def _open_records(batch: DocumentBatch, columns: Sequence[Scores | None]) -> Rows:
    """Return the records that lack a score in one of the columns."""
    if any(scores is None for scores in columns):
        return np.arange(batch.num_items, dtype=np.int64)
    lists = [scores for scores in columns if isinstance(scores, list)]
    return np.array(sorted({row for scores in lists for row, score in enumerate(scores) if score is None}), np.int64)
