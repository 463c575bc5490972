# SPDX-License-Identifier: Apache-2.0
"""Where words and line feeds are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.unit.kernels.texts import as_texts, hard_texts, made_up_texts
from thresher.kernels.counts.positions import LONGEST, Positions, positions
from thresher.kernels.counts.text_counts import SharedCounts, Texts


def words_of(texts: Texts, found: Positions, row: int) -> list[str]:
    first, start = int(found.first_word[row]), int(texts.starts[row])
    edges = found.edges[2 * first : 2 * (first + int(found.words[row]))].reshape(-1, 2) + start
    return [texts.data[begin:end].tobytes().decode("utf-8", "surrogatepass") for begin, end in edges.tolist()]


def feeds_of(found: Positions, row: int) -> list[list[int]]:
    first = int(found.first_feed[row])
    rows: list[list[int]] = found.feeds[first : first + int(found.line_feeds[row])].tolist()
    return rows


@settings(deadline=None)
@given(text=hard_texts)
def test_words_are_those_of_split(text: str) -> None:
    texts = as_texts(["x ", text, "\u3000y"])
    found = positions(SharedCounts(texts), np.arange(3))
    assert [words_of(texts, found, row) for row in range(3)] == [["x"], text.split(), ["y"]]


@settings(deadline=None)
@given(text=hard_texts)
def test_a_line_feed_knows_the_words_and_the_continuation_bytes_before_it(text: str) -> None:
    texts = as_texts(["\n", text])
    found = positions(SharedCounts(texts), np.arange(2))
    heads = [text[:place] for place, character in enumerate(text) if character == "\n"]
    sizes = [len(head.encode("utf-8", "surrogatepass")) for head in heads]
    expected = [[size, len(head.split()), size - len(head)] for head, size in zip(heads, sizes, strict=True)]
    assert feeds_of(found, 1) == expected


def test_a_text_that_was_not_asked_for_was_not_scanned() -> None:
    work = SharedCounts(as_texts(["a b", "c", "d e f"]))
    assert positions(work, np.array([2])).first_word.tolist() == [-1, -1, 0]
    assert positions(work, np.array([0, 2])).first_word.tolist() == [3, -1, 0]


def test_texts_that_are_scanned_later_lie_behind_those_before() -> None:
    texts = as_texts(made_up_texts(seed=1, number=50))
    work = SharedCounts(texts)
    for row in range(49, -1, -1):
        found = positions(work, np.array([row]))
    whole = [texts.data[a:b].tobytes().decode("utf-8", "surrogatepass") for a, b in zip(*texts[1:], strict=True)]
    assert [words_of(texts, found, row) for row in range(50)] == [text.split() for text in whole]


def test_more_words_and_line_feeds_than_were_made_room_for() -> None:
    texts = as_texts(["a " * 5000, *["\n" * 100] * 200, "b\n" * 5000, *["c "] * 3000])
    work = SharedCounts(texts)
    found = positions(work, np.arange(len(texts.starts)))
    assert found.words.tolist() == [5000, *[0] * 200, 5000, *[1] * 3000]
    assert found.line_feeds.tolist() == [0, *[100] * 200, 5000, *[0] * 3000]
    assert words_of(texts, found, 3201) == ["c"]
    assert feeds_of(found, 201)[-1] == [9999, 5000, 0]


@pytest.mark.parametrize("length", [1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 1000])
def test_texts_of_single_letters_have_an_edge_at_every_byte(length: int) -> None:
    text = ("a " * length)[:length]
    texts = as_texts([text] * 5)
    found = positions(SharedCounts(texts), np.arange(5))
    assert [words_of(texts, found, row) for row in range(5)] == [text.split()] * 5


def test_a_text_that_is_too_long_for_32_bits_is_refused_before_it_is_read() -> None:
    texts = as_texts(["a"])._replace(ends=np.array([LONGEST]))
    with pytest.raises(OverflowError, match="too long for the kernels"):
        positions(SharedCounts(texts), np.arange(1))
