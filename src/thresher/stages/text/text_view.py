# SPDX-License-Identifier: Apache-2.0
"""A text as rules look at it: what one rule worked out is there for the next."""

from __future__ import annotations

from typing import NamedTuple

from thresher.core.batch import MOST_REMEMBERED, VALUE, DocumentBatch

VIEW = "text-view"
"""The name under which a batch remembers the views of a column."""
_SLICE = 2**20
"""Longer texts are taken apart by slices: a list of all words takes ten times the room of the text."""


class WordStats(NamedTuple):
    """Numbers about the words of a text; words are what `str.split()` gives."""

    number: int
    """How many there are."""
    characters: int
    """Code points in all of them together."""


class LineStats(NamedTuple):
    """Numbers about the lines of a text that are not blank; only a line feed ends a line."""

    number: int
    """How many there are."""
    distinct: int
    """How many different ones."""


class TextView:
    """One text. It keeps numbers, not lists: a batch of views takes little more room than its texts."""

    __slots__ = ("_lines", "_words", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._words: WordStats | None = None
        self._lines: LineStats | None = None

    @property
    def utf8(self) -> bytes:
        """The text's bytes; not kept. A lone surrogate, which has none, gets what it would have."""
        try:
            return self.text.encode()
        except UnicodeEncodeError:
            return self.text.encode("utf-8", "surrogatepass")

    @property
    def words(self) -> WordStats:
        """Counted when first asked for."""
        found = self._words
        if found is None:
            found = self._words = word_stats(self.text)
        return found

    @property
    def lines(self) -> LineStats:
        """Counted when first asked for."""
        found = self._lines
        if found is None:
            lines = [line for line in self.text.split("\n") if line and not line.isspace()]
            found = self._lines = LineStats(len(lines), len(set(lines)))
        return found


def word_stats(text: str) -> WordStats:
    """Numbers about the words of a text, in little room however long it is."""
    number = characters = start = 0
    while start < len(text):
        end = _between_words(text, start + _SLICE)
        words = (text[start:end] if start or end < len(text) else text).split()
        number += len(words)
        characters += len("".join(words))
        start = end
    return WordStats(number, characters)


def _between_words(text: str, place: int) -> int:
    """The first place from `place` on where no word is cut: at white space, or at the end."""
    while place < len(text) and not text[place].isspace():
        place += 1
    return min(place, len(text))


def text_views(batch: DocumentBatch, field: str) -> list[TextView | None]:
    """A view of each record's text, made once per batch; `None` where the field holds no string."""
    views = batch._memo.get((VIEW, field))
    if views is None:
        values = batch.values(field)
        views = [TextView(value) if isinstance(value, str) else None for value in values]
        if batch.nbytes <= MOST_REMEMBERED:
            batch._memo[VALUE, field], batch._memo[VIEW, field] = values, views
    return views
