# SPDX-License-Identifier: Apache-2.0
"""A fixed hash of words and phrases that decides between n-grams that come equally often.

Of the n-grams of a document that come most often the one with the smallest `phrase_hash` is taken (of equal hashes the
one that comes first). The choice depends on the phrase alone: it is the same on every run and machine, and it favours
neither the beginning of a document, where titles and headings are, nor any other place.
"""

from __future__ import annotations

from collections.abc import Sequence

WORD_FACTOR = 0x9E3779B97F4A7C15
PHRASE_FACTOR = 0xD6E8FEB86659FD93
_BITS = (1 << 64) - 1


def word_hash(word: str) -> int:
    """64 bits that only depend on the UTF-8 of the word, eight bytes at a time."""
    data = word.encode("utf-8", "surrogatepass")
    value = len(data)
    for place in range(0, len(data), 8):
        value = (value ^ int.from_bytes(data[place : place + 8], "little")) * WORD_FACTOR & _BITS
        value ^= value >> 32
    return value


def phrase_hash(words: Sequence[str]) -> int:
    """64 bits that depend on the words and their order."""
    value = 0
    for word in words:
        value = (value * PHRASE_FACTOR + word_hash(word)) & _BITS
    return value
