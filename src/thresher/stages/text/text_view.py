# SPDX-License-Identifier: Apache-2.0
"""A text as rules look at it: what one rule worked out is there for the next."""

from __future__ import annotations

from typing import NamedTuple

from thresher.core.batch import VALUE, DocumentBatch

VIEW = "text-view"
"""The name under which a batch remembers the views of a column."""


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
            words = self.text.split()
            found = self._words = WordStats(len(words), len("".join(words)))
        return found

    @property
    def lines(self) -> LineStats:
        """Counted when first asked for."""
        found = self._lines
        if found is None:
            lines = [line for line in self.text.split("\n") if line and not line.isspace()]
            found = self._lines = LineStats(len(lines), len(set(lines)))
        return found


def text_views(batch: DocumentBatch, field: str) -> list[TextView | None]:
    """A view of each record's text, made once per batch; `None` where the field holds no string."""
    views = batch._memo.get((VIEW, field))
    if views is None:
        values = batch.values(field)
        views = [TextView(value) if isinstance(value, str) else None for value in values]
        batch._memo[VALUE, field], batch._memo[VIEW, field] = values, views
    return views
