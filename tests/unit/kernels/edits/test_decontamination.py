# SPDX-License-Identifier: Apache-2.0
"""The kernel finds the runs of words that the plain definition finds, in any text and in bytes that are none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.stages.text.rules.texts import real_texts
from thresher.kernels.counts.text_counts import Texts
from thresher.kernels.edits import decontamination as kernel
from thresher.stages.text.columns.text_column import as_texts
from thresher.stages.text.decontamination import normalized_words, shared_runs

FOLDS = kernel.fold_table()
PIECES = [
    *["the", "THE", "Cat", "cat", "sat8", "internationalisation", "x" * 8, "y" * 17, "don't", "Σίσυφος", "ΣΊΣΥΦΟΣ"],
    *[
        "İ",
        "\u212a",
        "k",
        "e\u0301",
        "é",
        "ſ",
        "ß",
        "中文",
        "日本",
        "ひら",
        "カタ",
        "ไทย",
        "ខ្មែរ",
        "한국어",
        "हिन्दी",
        "\u0301",
    ],
    *["\u00ad", "\u200d", "\ufeff", "\x00", "\ud800", "\udfff", "\U0001f642", "\U00020000", "\U0010ffff", "１２"],
    *[" ", "\n", ", ", ".", "-", "_", "…", "\u3000", "«", "@", "[", "`", "{", "/", ":", "\x7f", "\x80"],
]
texts = st.one_of(
    st.text(st.characters(), max_size=40),
    st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
)


def encoded(parts: Sequence[str]) -> Texts:
    return as_texts([part.encode("utf-8", "surrogatepass") for part in parts])


def found_by_kernel(documents: Sequence[str], evaluation: Sequence[str], n: int) -> list[tuple[int, int]]:
    keys, _ = kernel.ngram_keys(encoded(evaluation), FOLDS, n)
    table = kernel.make_table(keys, np.zeros(len(keys), dtype=np.uint16))
    found = kernel.look_up(encoded(documents), FOLDS, n, table)
    return [(int(row[kernel.NGRAMS]), int(row[kernel.MATCHES])) for row in found]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat, the CAT.", ["the", "cat", "the", "cat"]),
        ("don't well-known", ["don", "t", "well", "known"]),
        ("soft\u00adhyphen", ["softhyphen"]),
        ("ΣΊΣΥΦΟΣ Σίσυφος", ["σίσυφοσ", "σίσυφοσ"]),
        ("中文abc", ["中", "文", "abc"]),
        ("ที่", ["ที่"]),
        ("हिन्दी", ["हिन्दी"]),
        ("a\u0301b", ["a\u0301b"]),
        ("\u212aelvin \u0130x", ["kelvin", "ix"]),
        (" ... \ud800 ", []),
    ],
)
def test_words_are_compared_in_small_letters_and_without_punctuation(text: str, words: list[str]) -> None:
    assert normalized_words(text) == words


@given(st.lists(texts, max_size=4), st.lists(texts, max_size=4), st.integers(1, 4))
def test_the_kernel_finds_what_the_definition_finds(documents: list[str], evaluation: list[str], n: int) -> None:
    expected = [shared_runs(document, evaluation, n) for document in documents]
    assert found_by_kernel(documents, evaluation, n) == expected


@given(texts)
def test_each_word_has_a_hash_of_its_own(text: str) -> None:
    keys, _ = kernel.ngram_keys(encoded([text]), FOLDS, 1)
    words = normalized_words(text)
    assert len(keys) == len(words)
    assert len(set(keys.tolist())) == len(set(words))
    alone, _ = kernel.ngram_keys(encoded(words), FOLDS, 1)
    assert keys.tolist() == alone.tolist()


@given(st.binary(max_size=80), st.integers(1, 3))
def test_bytes_that_are_no_text_are_looked_at_without_harm(data: bytes, n: int) -> None:
    keys, counts = kernel.ngram_keys(as_texts([data, b"", data]), FOLDS, n)
    assert counts[0] == counts[2]
    assert len(keys) == 2 * counts[0]
    assert keys[: counts[0]].tolist() == keys[counts[0] :].tolist()


@given(st.lists(texts, min_size=2, max_size=4))
def test_a_text_does_not_see_its_neighbours(parts: list[str]) -> None:
    together, _ = kernel.ngram_keys(encoded(parts), FOLDS, 2)
    apart = [key for part in parts for key in kernel.ngram_keys(encoded([part]), FOLDS, 2)[0].tolist()]
    assert together.tolist() == apart


def test_the_place_of_the_first_run_and_its_set_are_told() -> None:
    keys, _ = kernel.ngram_keys(encoded(["one two three"]), FOLDS, 3)
    both = np.concatenate((keys, keys))
    table = kernel.make_table(both, np.array([7, 8], dtype=np.uint16))
    document = "é: One, two; THREE! one two three"
    row = kernel.look_up(encoded(["nothing", document]), FOLDS, 3, table)[1]
    assert document.encode()[row[kernel.FIRST_START] : row[kernel.FIRST_END]] == b"One, two; THREE"
    assert row[kernel.MATCHES] == 2
    assert row[kernel.SET] == 7


def test_a_table_finds_all_of_many_hashes_and_no_others() -> None:
    keys = np.unique(np.random.default_rng(1).integers(1, 2**63, 20_000, dtype=np.uint64))
    words = [f"w{number}" for number in range(5_000)]
    known, _ = kernel.ngram_keys(encoded(words[:2_500]), FOLDS, 1)
    table = kernel.make_table(np.concatenate((keys, known)), np.zeros(len(keys) + len(known), dtype=np.uint16))
    found = kernel.look_up(encoded(words), FOLDS, 1, table)
    assert found[:, kernel.MATCHES].tolist() == [1] * 2_500 + [0] * 2_500


def test_real_texts_hold_their_own_parts_and_the_definition_agrees() -> None:
    documents = [text[:3000] for text in real_texts(15)]
    evaluation = [text[500:900] for text in documents[::3]]
    expected = [shared_runs(document, evaluation, 8) for document in documents]
    assert found_by_kernel(documents, evaluation, 8) == expected
    assert any(matches for _, matches in expected)


def test_hashes_are_what_they_were_when_their_scheme_got_its_number() -> None:
    """Indexes are kept in files. When this fails, hashes have changed: raise `SCHEME`, and note the new ones here."""
    keys, _ = kernel.ngram_keys(encoded(["The cat, 42 Straßen 中文"]), FOLDS, 3)
    assert (kernel.SCHEME, [f"{key:016x}" for key in keys.tolist()]) == (
        1,
        ["914d2882ec8068b7", "c5b3ca034555bf77", "dac0311e76e6bebd", "087cdfb6d99f0297"],
    )
