# SPDX-License-Identifier: Apache-2.0
"""The kernel finds and cuts the lines, paragraphs and sentences that the plain definition finds and cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.kernels.counts.text_counts import Texts
from thresher.kernels.dedup import passages as kernel
from thresher.stages.dedup.passages.lines_split import UNITS, Passage, passages_of, without
from thresher.stages.text.columns.text_column import as_texts

PIECES = [
    *[
        "A",
        "Mr.",
        "word",
        "word.",
        "Ends!",
        "U.S.",
        "J.",
        "...",
        "He said 'no.'",
        "。",
        "完了。",
        "「はい。」次",
        "！？",
        "｡x",
    ],
    *[" ", "  ", "\n", "\n\n", "\n \n", "\r\n", "\t", "\u3000", "\xa0", "\u2028", "\x85", "\x0b"],
    *["é", "\ud800", "\U0001f642", "\0", "»", "”", "」", "?", ".", "x" * 70],
]
texts = st.one_of(st.text(st.characters(), max_size=40), st.lists(st.sampled_from(PIECES), max_size=30).map("".join))


class Found(NamedTuple):
    texts: Texts
    passages: kernel.Passages


def found_in(documents: Sequence[str], unit: str) -> Found:
    encoded = as_texts([text.encode("utf-8", "surrogatepass") for text in documents])
    return Found(encoded, kernel.find_passages(encoded, UNITS.index(unit)))


def size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def in_bytes(text: str, passage: Passage) -> tuple[int, int, int]:
    tile, start, end = (size(text[:at]) for at in passage)
    return tile, start, end


@pytest.mark.parametrize("unit", UNITS)
@given(documents=st.lists(texts, max_size=4))
def test_finds_what_the_definition_finds(documents: list[str], unit: str) -> None:
    encoded, passages = found_in(documents, unit)
    expected = []
    for row, text in enumerate(documents):
        for passage in passages_of(text, unit):
            base = int(encoded.starts[row])
            positions = [base + at for at in in_bytes(text, passage)]
            expected.append([row, *positions, passage.end - passage.start])
    assert passages.found.tolist() == expected


@pytest.mark.parametrize("unit", UNITS)
@given(document=texts, data=st.data())
def test_cuts_what_the_definition_cuts(document: str, unit: str, data: st.DataObject) -> None:
    encoded, passages = found_in(["before", document, "behind\n"], unit)
    own = passages_of(document, unit)
    removed = data.draw(st.sets(st.integers(0, len(own) - 1))) if own else set()
    flags = np.zeros(len(passages.found), dtype=np.bool_)
    flags[[1 + number for number in removed]] = True
    made, done = b"", int(encoded.starts[1])
    for row, start, end in kernel.cuts_without(encoded, passages, flags).tolist():
        assert row == 1
        made += encoded.data[done:start].tobytes()
        done = end
    made += encoded.data[done : encoded.ends[1]].tobytes()
    assert made.decode("utf-8", "surrogatepass") == without(document, own, removed)


@given(documents=st.lists(texts, max_size=4), span=st.integers(1, 4), least=st.integers(0, 30))
def test_windows_have_equal_keys_where_their_passages_are_equal(documents: list[str], span: int, least: int) -> None:
    _, passages = found_in(documents, "sentence")
    windows = kernel.find_windows(passages, span, least)
    contents, first = [], 0
    expected = []
    for text in documents:
        own = [text[start:end] for _, start, end in passages_of(text, "sentence")]
        for number in range(len(own) - span + 1):
            if sum(map(len, own[number : number + span])) >= least:
                expected.append(first + number)
                contents.append(tuple(own[number : number + span]))
        first += len(own)
    assert windows.firsts.tolist() == expected
    numbers: dict[tuple[str, ...], int] = {}
    keys: dict[tuple[int, ...], int] = {}
    by_content = [numbers.setdefault(content, len(numbers)) for content in contents]
    by_key = [keys.setdefault(tuple(key), len(keys)) for key in windows.keys.tolist()]
    assert by_content == by_key


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("One.\nTwo.", "line", ["One.", "Two."]),
        ("  One. \r\n\r\nTwo.\n", "line", ["One.", "Two."]),
        ("a\nb\n\n \nc", "paragraph", ["a\nb", "c"]),
        ("Dr. No came. He left! Why?\nWho", "sentence", ["Dr.", "No came.", "He left!", "Why?", "Who"]),
        ("終わり。次「はい。」と", "sentence", ["終わり。", "次「はい。」", "と"]),
        (" \n\t", "line", []),
        ("", "paragraph", []),
    ],
)
def test_examples_of_passages(text: str, unit: str, expected: list[str]) -> None:
    assert [text[start:end] for _, start, end in passages_of(text, unit)] == expected


@pytest.mark.parametrize(
    ("text", "removed", "expected"),
    [
        ("a\nb\nc", {1}, "a\nc"),
        ("a\nb\nc", {2}, "a\nb"),
        ("a\nb\nc\n", {2}, "a\nb\n"),
        ("a\n\nb\n\nc", {1}, "a\n\nc"),
        ("\n a\n b", {0}, " b"),
        ("a\nb\n", {0, 1}, ""),
        ("a\nb\n", set(), "a\nb\n"),
    ],
)
def test_examples_of_cuts(text: str, removed: set[int], expected: str) -> None:
    assert without(text, passages_of(text, "line"), removed) == expected
