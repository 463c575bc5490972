# SPDX-License-Identifier: Apache-2.0
"""A fixed hash of words and phrases that breaks ties between equally frequent n-grams.

Among the most frequent n-grams of a document, the one with the smallest `phrase_hash` is chosen (of equal hashes the
first). The choice depends on the phrase alone: it is the same on every run and machine, and it does not favour the
beginning of a document, where titles and headings are.
"""

from __future__ import annotations

from collections.abc import Sequence

WORD_FACTOR = 0x9E3779B97F4A7C15
PHRASE_FACTOR = 0xD6E8FEB86659FD93
_BITS = (1 << 64) - 1


def word_hash(word: str) -> int:
    """Return a 64-bit hash of the UTF-8 of a word, eight bytes at a time."""
    data = word.encode("utf-8", "surrogatepass")
    value = len(data)
    for position in range(0, len(data), 8):
        value = (value ^ int.from_bytes(data[position : position + 8], "little")) * WORD_FACTOR & _BITS
        value ^= value >> 32
    return value


def phrase_hash(words: Sequence[str]) -> int:
    """Return a 64-bit hash of words and their order."""
    value = 0
    for word in words:
        value = (value * PHRASE_FACTOR + word_hash(word)) & _BITS
    return value
