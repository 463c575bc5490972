# SPDX-License-Identifier: Apache-2.0
"""Sequences of tokens: each token of each document is in one sequence, wherever batches are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of
from thresher import PackSequences
from thresher.core.documents.batch import DocumentBatch
from thresher.core.tally import context_of
from thresher.errors import UsageError
from thresher.stages.corpus.packing import Pieces, best_fit, concatenated

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=30)


def numbers(values: list[int]) -> Any:
    return np.array(values, dtype=np.int64)


def rows(pieces: Pieces) -> list[tuple[int, int, int, int]]:
    """Document, start, length and sequence of each piece."""
    columns = (pieces.document, pieces.start, pieces.length, pieces.sequence)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def check_cover(pieces: Pieces, lengths: list[int], skip: int = 0) -> None:
    """Every token of every document is in one piece."""
    tokens = [(d, n) for d, start, length, _ in rows(pieces) for n in range(start, start + length)]
    assert sorted(tokens) == [(d, n) for d, length in enumerate(lengths) for n in range(skip if d == 0 else 0, length)]
    assert pieces.sequence.tolist() == sorted(pieces.sequence.tolist())


# -- which tokens make a sequence -------------------------------------------------------------------------------------


def test_documents_one_after_the_other_are_cut_into_full_sequences() -> None:
    pieces = concatenated(numbers([3, 5, 1]), 0, 4, whole=True)
    assert rows(pieces) == [(0, 0, 3, 0), (1, 0, 1, 0), (1, 1, 4, 1), (2, 0, 1, 2)]
    open_end = concatenated(numbers([3, 5, 1]), 0, 4, whole=False)
    assert rows(open_end) == rows(pieces)[:-1]
    assert rows(concatenated(numbers([7, 2]), 3, 4, whole=True)) == [(0, 3, 4, 0), (1, 0, 2, 1)]


@given(LENGTHS, st.integers(1, 10), st.data())
def test_concatenation_fills_all_sequences_but_the_last(lengths: list[int], size: int, data: st.DataObject) -> None:
    skip = data.draw(st.integers(0, lengths[0] - 1))
    pieces = concatenated(numbers(lengths), skip, size, whole=True)
    check_cover(pieces, lengths, skip)
    filled = np.bincount(pieces.sequence, weights=pieces.length).tolist()
    assert filled[:-1] == [size] * (len(filled) - 1)
    assert 0 < filled[-1] <= size
    tokens = [(d, n) for d, start, length, _ in rows(pieces) for n in range(start, start + length)]
    assert tokens == sorted(tokens)


def test_best_fit_takes_the_fullest_sequence_with_room() -> None:
    assert rows(best_fit(numbers([2, 6, 3, 5, 2, 9]), 8)) == [
        (0, 0, 2, 0),
        (1, 0, 6, 0),
        (2, 0, 3, 1),
        (3, 0, 5, 1),
        (4, 0, 2, 2),
        (5, 8, 1, 2),
        (5, 0, 8, 3),
    ]


def plain_best_fit(lengths: list[int], size: int) -> int:
    """The number of sequences, by the definition."""
    pieces = sorted((min(size, n - start) for n in lengths for start in range(0, n, size)), reverse=True)
    space: list[int] = []
    for piece in pieces:
        room = [left for left in space if left >= piece]
        if room:
            space.remove(min(room))
            space.append(min(room) - piece)
        else:
            space.append(size - piece)
    return len(space)


@given(LENGTHS, st.integers(1, 10))
def test_best_fit_cuts_only_long_documents_and_needs_no_more_than_its_definition(lengths: list[int], size: int) -> None:
    pieces = best_fit(numbers(lengths), size)
    check_cover(pieces, lengths)
    assert np.bincount(pieces.sequence, weights=pieces.length).max() <= size
    assert pieces.sequence[-1] + 1 == plain_best_fit(lengths, size)
    cut = {document for document, start, _, _ in rows(pieces) if start}
    assert cut == {document for document, length in enumerate(lengths) if length > size}


# -- the stage --------------------------------------------------------------------------------------------------------


def documents(lengths: list[int]) -> list[dict[str, Any]]:
    """Documents whose tokens tell them apart."""
    return [{"tokens": [100 * d + n for n in range(length)], "text": "x"} for d, length in enumerate(lengths, start=1)]


def packed(stage: PackSequences, records: list[dict[str, Any]], cut: int) -> tuple[DocumentBatch, int]:
    """What a unit becomes whose batches have `cut` records; and what came in less what was merged, plus what is new."""
    whole = batch_of(records)
    kept, made, balance = stage.begin_unit(), [], 0
    for start in range(0, len(records), cut):
        batch = whole.take(range(start, min(start + cut, len(records))))
        made.append(stage.take(kept, batch))
        balance += len(batch)
    made.append(stage.end_unit(kept))
    balance += sum(one.created - one.merged for one in made)
    left_out = sum(len(gone.batch) for one in made for gone in one.batch._dropped)
    left_out += sum(gone.total for one in made for gone in one.batch._failed)
    batches = [one.batch for one in made if len(one.batch)]
    return (batches[0].joined(batches[1:]) if batches else DocumentBatch([])), balance - left_out


def content(batch: DocumentBatch) -> tuple[list[str], list[dict[str, Any]]]:
    ids = batch.ids.strings() if batch.ids is not None else []
    return ids, batch.to_pyarrow().to_pylist() if len(batch) else []


@pytest.mark.parametrize("strategy", ["concat", "best-fit"])
@given(lengths=LENGTHS, size=st.integers(1, 10), cut=st.integers(1, 30))
def test_sequences_do_not_depend_on_batches_and_have_ids_of_their_own(
    strategy: str, lengths: list[int], size: int, cut: int
) -> None:
    stage = PackSequences(size, tokens_field="tokens", strategy=strategy, window=2)
    records = documents(lengths)
    made, balance = packed(stage, records, cut)
    assert content(made) == content(packed(stage, records, len(records))[0])
    ids, sequences = content(made)
    assert len(set(ids)) == len(ids) == balance
    tokens = [token for sequence in sequences for token in sequence["tokens"]]
    assert sorted(tokens) == [token for record in records for token in record["tokens"]]
    if strategy == "concat":
        assert tokens == sorted(tokens)


def test_a_sequence_says_which_tokens_belong_together() -> None:
    stage = PackSequences(4, tokens_field="tokens", pad_id=0)
    made, _ = packed(stage, documents([3, 3]), 5)
    assert made.to_pyarrow().to_pylist() == [
        {
            "tokens": [100, 101, 102, 200],
            "attention_mask": [1, 1, 1, 1],
            "position_ids": [0, 1, 2, 0],
            "segment_ids": [1, 1, 1, 2],
            "documents": 2,
        },
        {
            "tokens": [201, 202, 0, 0],
            "attention_mask": [1, 1, 0, 0],
            "position_ids": [0, 1, 0, 0],
            "segment_ids": [1, 1, 0, 0],
            "documents": 1,
        },
    ]
    assert context_of(stage).noted.counts["tokens"] == 6


def test_without_an_id_for_padding_the_last_sequence_is_shorter() -> None:
    made, _ = packed(PackSequences(4, tokens_field="tokens"), documents([6]), 1)
    assert [row["tokens"] for row in made.to_pyarrow().to_pylist()] == [[100, 101, 102, 103], [104, 105]]
    assert content(made)[0] == [content(batch_of(documents([6])))[0][0] + end for end in ("", "/0")]


def test_sequences_that_are_not_full_can_be_dropped() -> None:
    stage = PackSequences(4, tokens_field="tokens", drop_last=True)
    kept = stage.begin_unit()
    made = [stage.take(kept, batch_of(documents([6]))), stage.end_unit(kept)]
    assert [one.batch.num_items for one in made] == [1, 0]
    (gone,) = made[1].batch._dropped
    assert (gone.rule, len(gone.batch)) == ("not-full", 1)


def test_documents_without_tokens_are_left_out_with_a_reason() -> None:
    stage = PackSequences(4, tokens_field="tokens")
    records = [{"tokens": []}, {"tokens": [1]}, {"tokens": None}, {"tokens": ["a"]}, {"tokens": [2**31]}, {}]
    kept = stage.begin_unit()
    made = stage.take(kept, batch_of(records))
    assert [gone.rule for gone in made.batch._dropped] == ["no-tokens"]
    assert sorted((gone.error, gone.total) for gone in made.batch._failed) == [
        ("field-missing", 2),
        ("not-token-ids", 2),
    ]
    assert stage.end_unit(kept).batch.to_pyarrow()["tokens"].to_pylist() == [[1]]


def test_an_empty_unit_gives_nothing() -> None:
    stage = PackSequences(4, tokens_field="tokens")
    assert stage.end_unit(stage.begin_unit()).batch.num_items == 0


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"strategy": "best-fit"}, "about tokens; give tokens_field too"),
        ({"pad_id": 0}, "about tokens; give tokens_field too"),
        ({"tokens_field": "tokens", "strategy": "bestfit"}, "Did you mean 'best-fit'"),
        ({"tokens_field": "tokens", "length_field": "n"}, "about texts; leave them out with tokens_field"),
        ({"tokens_field": "tokens", "separator": ""}, "about texts; leave them out with tokens_field"),
        ({"tokens_field": "tokens", "pad_id": -1}, "pad_id: -1 is not a whole number of 0 or more"),
        ({"tokens_field": "tokens", "window": 0}, "window: 0 is not a whole number of 1 or more"),
        ({"tokens_field": "position_ids"}, "two of the columns"),
        ({"tokens_field": ""}, "tokens_field: '' is not the name of a column"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        PackSequences(8, **parameters)
