# SPDX-License-Identifier: Apache-2.0
"""What the counts of n-grams mean, in plain Python: the kernels must say the same. And texts in which n-grams come
again in many ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import numpy as np
from hypothesis import strategies as st

from tests.unit.kernels.texts import WHITE_SPACE, as_texts
from thresher.kernels.bytes.tie_hash import phrase_hash
from thresher.kernels.counts.text_counts import Count, Counts

WORDS = [
    "a", "b", "ab", "ba", "aa", "aab", "aba", "the", "the\0", "\0", "é", "éa", "e\u0301", "日本", "日本語日本語",
    "\ud800", "😀", "abcdefg", "abcdefgh", "abcdefghi", "abcdefgh\0", "bcdefghabc", "x" * 15, "x" * 16, "x" * 17,
    "x" * 40,
]  # fmt: skip
SPACES = [*[" "] * 12, "  ", "\n", "\n\n", "\t", "\u3000", "\xa0", "\x1c", *WHITE_SPACE]


def top_ngram_characters(text: str, n: int) -> int:
    """What is missing when the n-gram that comes most often is cut out; the smallest hash decides between several."""
    words = text.split()
    times = Counter(zip(*(words[first:] for first in range(n)), strict=False))
    if not times:
        return 0
    most = max(times.values())
    chosen = min((phrase for phrase, number in times.items() if number == most), key=phrase_hash)
    return len(text) - len(text.replace(" ".join(chosen), ""))


def duplicate_ngram_characters(text: str, n: int) -> int:
    """The words of all n-grams that have come before, each word once, and the spaces between them."""
    words = text.split()
    seen = set()
    total = overlap = 0
    for phrase in zip(*(words[first:] for first in range(n)), strict=False):
        if phrase in seen:
            total += sum(len(word) for word in phrase[overlap:]) + min(n - overlap, n - 1)
            overlap = n
        seen.add(phrase)
        overlap = max(overlap - 1, 0)
    return total


def gopher_top_characters(text: str, n: int) -> int:
    """The characters of the n-gram that comes most often, times how often; the first decides between several."""
    words = text.split()
    times = Counter(" ".join(words[first : first + n]) for first in range(len(words) - n + 1))
    if not times:
        return 0
    phrase, number = times.most_common(1)[0]
    return len(phrase) * number


def gopher_duplicate_characters(text: str, n: int) -> int:
    """The characters of joined n-grams that have come before; words of a found one begin no other."""
    words = text.split()
    seen = set()
    total = word = 0
    while word <= len(words) - n:
        joined = "".join(words[word : word + n])
        if joined in seen:
            total += len(joined)
            word += n
        else:
            seen.add(joined)
            word += 1
    return total


DEFINITIONS: dict[str, Callable[[str, int], int]] = {
    function.__name__: function
    for function in (
        top_ngram_characters,
        duplicate_ngram_characters,
        gopher_top_characters,
        gopher_duplicate_characters,
    )
}


def _text_of(words: list[str], spaces: list[str], around: tuple[str, str]) -> str:
    between = [spaces[place % len(spaces)] for place in range(len(words) - 1)] + [""]
    return around[0] + "".join(map("".join, zip(words, between, strict=False))) + around[1]


def _texts_with(words: st.SearchStrategy[list[str]]) -> st.SearchStrategy[str]:
    spaces = st.lists(st.sampled_from(SPACES), min_size=1, max_size=7)
    return st.builds(_text_of, words, spaces, st.sampled_from([("", ""), (" ", ""), ("", "\n"), ("\t", " ")]))


def _repeated(words: list[str], times: int, tail: list[str]) -> list[str]:
    return words * times + tail


some_words = st.lists(st.sampled_from(WORDS), max_size=14)
repetitive_texts = st.one_of(
    _texts_with(st.lists(st.sampled_from(["a", "b"]), max_size=60)),
    _texts_with(st.lists(st.sampled_from(["a", "ab", "ba", "b"]), max_size=60)),
    _texts_with(st.lists(st.sampled_from(WORDS), max_size=60)),
    _texts_with(st.builds(_repeated, some_words, st.integers(1, 4), some_words)),
)
"""Texts of few different words that contain each other, with all kinds of white space."""


def repetitive_text(random: Random, words: int) -> str:
    """A longer text in which pieces of any length come again."""
    few = random.sample(WORDS, random.randint(1, len(WORDS)))
    made: list[str] = []
    while len(made) < words:
        if made and random.random() < 0.3:
            start = random.randrange(len(made))
            made += made[start : start + random.randint(1, 14)]
        else:
            made.append(random.choice(few))
    return "".join(word + random.choice(SPACES) for word in made)


def counted(texts: Sequence[str], wanted: Sequence[Count]) -> dict[Count, list[int]]:
    """What the kernels count."""
    counts = Counts(as_texts(texts))
    counts.fill(wanted, np.arange(len(texts)))
    return {count: counts[count].tolist() for count in wanted}


def defined(texts: Sequence[str], wanted: Sequence[Count]) -> dict[Count, list[int]]:
    """What they should count."""
    return {(name, n): [DEFINITIONS[name](text, n) for text in texts] for name, n in wanted}
