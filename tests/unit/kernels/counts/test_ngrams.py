# SPDX-License-Identifier: Apache-2.0
"""Counts of n-grams: every kernel says what its definition in plain Python says, on every text."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings

from tests.unit.kernels.ngram_definitions import (
    DEFINITIONS,
    counted,
    defined,
    gopher_top_characters,
    repetitive_text,
    repetitive_texts,
    top_ngram_characters,
)
from tests.unit.kernels.texts import as_texts, hard_texts, made_up_texts, real_texts
from thresher.kernels.bytes.hash_tables import new_epoch
from thresher.kernels.bytes.tie_hash import phrase_hash, word_hash
from thresher.kernels.counts import gopher_ngrams, ngrams
from thresher.kernels.counts.text_counts import PADDING, Counts, Texts

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13)
WANTED = list(product(DEFINITIONS, SIZES))


def count_of(text: str, name: str, n: int) -> int:
    return counted([text], [(name, n)])[name, n][0]


# -- what is counted ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "n", "characters"),
    [
        ("a b c a b", 2, 6),  # "a b" twice
        ("xa bx a b a b", 2, 9),  # and once inside longer words
        ("a b  a\tb a\nb a b", 2, 6),  # "a b" comes four times, but only twice with a single space
        ("a a a a", 2, 6),  # "a a" is cut out twice, although it comes three times
        ("one", 1, 3),
        ("é é é é", 1, 4),  # characters, not bytes
        ("one two", 3, 0),  # fewer than n words
    ],
)
def test_characters_of_the_most_frequent_ngram_are_those_that_replace_takes_out(
    text: str, n: int, characters: int
) -> None:
    assert count_of(text, "top_ngram_characters", n) == characters


@pytest.mark.parametrize(
    ("text", "n", "characters"),
    [
        ("a b c a b", 2, 3),  # the second "a b" with its space
        ("a b c a b c", 2, 5),  # "a b", then "c" and a space of the overlapping "b c"
        ("a b c d a b c d", 2, 7),
        ("a b x y a b", 2, 3),
        ("one one one", 1, 6),  # without spaces
        ("é ü é ü", 2, 3),
        ("a b c", 2, 0),
    ],
)
def test_characters_of_ngrams_that_came_before_count_overlapping_words_once(text: str, n: int, characters: int) -> None:
    assert count_of(text, "duplicate_ngram_characters", n) == characters


@pytest.mark.parametrize(
    ("text", "n", "characters"),
    [
        ("a b c a b", 2, 6),
        ("a\tb  c a\nb", 2, 6),  # white space does not matter
        ("one two three", 2, 7),  # all come once: the first
        ("a b long word a b long word", 2, 6),  # all come twice: the first
        ("one", 2, 0),
    ],
)
def test_gopher_takes_the_first_of_the_most_frequent_ngrams(text: str, n: int, characters: int) -> None:
    assert count_of(text, "gopher_top_characters", n) == characters


@pytest.mark.parametrize(
    ("text", "n", "characters"),
    [
        ("a b c a b", 2, 2),
        ("a a a a a", 2, 4),  # after a hit the next n-gram begins behind it
        ("ab c x a bc", 2, 3),  # joined, "ab c" and "a bc" are the same
        ("into be fair x in tobe fair", 3, 10),
        ("ab c a b c", 2, 0),  # two words are not three
    ],
)
def test_gopher_joins_words_without_anything_between(text: str, n: int, characters: int) -> None:
    assert count_of(text, "gopher_duplicate_characters", n) == characters


def test_a_text_with_fewer_than_n_words_counts_nothing() -> None:
    texts = [" ".join(["word"] * words) for words in range(14)]
    found = counted(texts, WANTED)
    assert found == defined(texts, WANTED)
    assert all(number == 0 for (_, n), numbers in found.items() for number in numbers[:n])


# -- ties -----------------------------------------------------------------------------------------------------------


def test_the_smallest_hash_decides_between_ngrams_that_come_equally_often() -> None:
    phrases = [("one", "two"), ("of", "the"), ("in", "a"), ("longer", "words")]
    smallest = min(phrases, key=phrase_hash)
    for turn in range(len(phrases)):
        ordered = phrases[turn:] + phrases[:turn]
        text = " ".join(f"{number} {' '.join(phrase)}" for number, phrase in enumerate(ordered * 2))
        assert top_ngram_characters(text, 2) == 2 * len(" ".join(smallest))
        assert count_of(text, "top_ngram_characters", 2) == 2 * len(" ".join(smallest))


def test_no_place_in_a_document_is_favoured() -> None:
    random = Random(1)
    places = []
    for _ in range(2000):
        words = [f"{random.getrandbits(40):x}" for _ in range(11)]
        phrases = list(pairwise(words))
        places.append(phrases.index(min(phrases, key=phrase_hash)))
    numbers = np.bincount(places, minlength=10)
    assert numbers.min() > 140, numbers
    assert numbers.max() < 260, numbers


def test_the_hash_is_fixed() -> None:
    assert word_hash("") == 0
    assert word_hash("the") == 0x1B6C2953793D1C90
    assert word_hash("internationalization") == 0x9929911CB565486
    assert word_hash("\ud800") != word_hash("\udfff")
    assert phrase_hash(("of", "the")) != phrase_hash(("the", "of"))


def same_hash() -> tuple[str, str]:
    """Two words of 16 letters with the same hash: the second half makes up for the first."""
    factor, bits = 0x9E3779B97F4A7C15, 2**64 - 1

    def state(half: bytes) -> int:
        value = (16 ^ int.from_bytes(half, "little")) * factor & bits
        return value ^ value >> 32

    first, rest = b"abcdefgh", b"ABCDEFGH"
    for number in range(10**6):
        other = (b"%08d" % number)[::-1]
        other_rest = (int.from_bytes(rest, "little") ^ state(first) ^ state(other)).to_bytes(8, "little")
        if all(33 <= byte < 127 for byte in other_rest):
            return (first + rest).decode(), (other + other_rest).decode()
    raise AssertionError("there is one")


def test_words_with_the_same_hash_are_different_words() -> None:
    one, other = same_hash()
    assert word_hash(one) == word_hash(other)
    texts = [f"{one} x {other} x {other} x {one}", f"{other} {one} {one} {other}", f"{one} {other}"]
    assert counted(texts, WANTED) == defined(texts, WANTED)


# -- on every text --------------------------------------------------------------------------------------------------


@settings(max_examples=400, deadline=None)
@given(repetitive_texts)
@example("a a")
@example("a b a b a b a b a b a b a b a b a b a b a b a b")
def test_kernels_say_what_the_definitions_say(text: str) -> None:
    texts = ["a b ab a b", text, "b a"]
    assert counted(texts, WANTED) == defined(texts, WANTED)


@settings(max_examples=200, deadline=None)
@given(hard_texts)
def test_on_hard_texts_too(text: str) -> None:
    texts = ["a b ab a b", text, "b a"]
    assert counted(texts, WANTED) == defined(texts, WANTED)


def test_on_longer_texts_of_repeated_pieces() -> None:
    random = Random(7)
    texts = [repetitive_text(random, random.choice([20, 100, 500])) for _ in range(150)] + made_up_texts(3, 60)
    assert counted(texts, WANTED) == defined(texts, WANTED)


def test_on_real_texts() -> None:
    texts = [text for text in real_texts(30) if len(text) < 100_000]
    wanted = list(product(DEFINITIONS, (2, 3, 5, 10)))
    found, expected = counted(texts, wanted), defined(texts, wanted)
    for count in wanted:
        assert found[count] == expected[count], count


def test_a_text_of_ten_megabytes() -> None:
    words = 2_000_000
    text = "word " * words
    wanted = [(name, 2) for name in DEFINITIONS]
    found = {name: numbers[1] for (name, _), numbers in counted(["a b a b", text, "a b"], wanted).items()}
    assert found == {
        "top_ngram_characters": words // 2 * len("word word"),
        "duplicate_ngram_characters": len(text) - len("word ") - 1,
        "gopher_top_characters": (words - 1) * len("word word"),
        "gopher_duplicate_characters": (words - 1) // 2 * len("wordword"),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    ["It was the best of times, it was the worst of times, naïve 日本語 {}\n", "{:060d} ", "x" * 3_000_000 + " {} "],
    ids=["sentences", "numbers", "very long words"],
)
def test_any_text_of_ten_megabytes(piece: str) -> None:
    texts = [
        "a b c a b",
        "".join(piece.format(number) for number in range(10_000_000 // len(piece.format(0)))),
        "a b a b",
    ]
    wanted = [(name, 3) for name in DEFINITIONS]
    assert counted(texts, wanted) == defined(texts, wanted)


@settings(max_examples=100, deadline=None)
@given(repetitive_texts)
def test_bytes_that_are_no_text_do_no_harm(text: str) -> None:
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    random = Random(len(data))
    for _ in range(len(data) // 4):
        data[random.randrange(len(data))] = random.choice([0xFF, 0x80, 0xC2, 0xE2, 0x20, 0x00])
    padded = np.frombuffer(bytes(data) + bytes(PADDING), dtype=np.uint8)
    counts = Counts(Texts(padded, np.array([0]), np.array([len(data)])))
    counts.fill(WANTED, np.arange(1))
    assert all(counts[count][0] >= 0 for count in WANTED)


# -- how they are asked ---------------------------------------------------------------------------------------------


def test_asked_one_by_one_and_all_at_once_the_counts_are_the_same() -> None:
    random = Random(11)
    texts = [repetitive_text(random, 80) for _ in range(20)]
    together = counted(texts, WANTED)
    assert {count: counted(texts, [count])[count] for count in WANTED} == together


def test_rows_may_be_asked_for_in_parts_and_in_any_order() -> None:
    random = Random(13)
    texts = [repetitive_text(random, 60) for _ in range(30)]
    expected = counted(texts, WANTED)
    counts = Counts(as_texts(texts))
    rows = random.sample(range(30), 30)
    for part in (rows[:1], rows[1:4], [], rows[4:]):
        counts.fill(WANTED, np.array(part, dtype=np.int64))
    assert {count: counts[count].tolist() for count in WANTED} == expected


def test_ngrams_of_absurd_length_cost_nothing() -> None:
    wanted = [(name, n) for name in DEFINITIONS for n in (2, 10**12)]
    found = counted(["a b a b", "a"], wanted)
    assert found == {**defined(["a b a b", "a"], wanted[::2]), **{count: [0, 0] for count in wanted[1::2]}}
    rows = np.arange(4)[::2]  # not one after the other in memory
    counts = Counts(as_texts(["a b a b", "x", "a b a b"]))
    counts.fill(wanted, rows)
    assert counts["gopher_top_characters", 2].tolist() == [6, 0, 6]


def test_no_rows_are_no_counts() -> None:
    assert counted([], WANTED) == {count: [] for count in WANTED}


def test_tables_are_right_after_their_epochs_ran_out() -> None:
    random = Random(17)
    texts = [repetitive_text(random, 100) for _ in range(40)]
    expected = defined(texts, WANTED)
    assert counted(texts, WANTED) == expected
    held = [ngrams._KEPT.words, gopher_ngrams._KEPT.buffers]
    for room in held:
        assert room is not None
        room.epoch[0] = 2**32 - 20
    assert counted(texts, WANTED) == expected
    for room in held:
        assert room is not None
        assert room.epoch[0] < 2**32 - 20


def test_a_new_epoch_empties_a_table() -> None:
    table, epoch = np.zeros(16, dtype=np.uint64), np.zeros(1, dtype=np.uint64)
    first, second = new_epoch(epoch, table), new_epoch(epoch, table)
    assert (first, second) == (1 << 32, 2 << 32)
    table[3] = 5
    epoch[0] = 2**32 - 1
    assert new_epoch(epoch, table) == 1 << 32
    assert not table.any()


def test_room_for_a_very_long_document_is_given_back() -> None:
    counted(["a b c " * 200_000, "a b"], WANTED)
    for room in (ngrams._KEPT.words, gopher_ngrams._KEPT.buffers):
        assert room is None or room.table.nbytes < 20_000_000
    assert count_of("a b a b", "gopher_top_characters", 2) == gopher_top_characters("a b a b", 2)
