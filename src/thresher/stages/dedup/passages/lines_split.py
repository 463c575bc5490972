# SPDX-License-Identifier: Apache-2.0
"""Boundaries of the lines, paragraphs and sentences of a text: the plain definition of what the kernel finds."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from thresher.stages.text.c4.quality import ends_sentence

UNITS = ("line", "paragraph", "sentence")
"""The units, in the order of their numbers in the kernel."""
_WORD = re.compile(r"\S+")
_FULL_STOP = re.compile("[。！？｡]+[\"')\\]}”’»」』）]*")
"""Marks that end a sentence without white space behind them, with what closes a quotation."""


class Passage(NamedTuple):
    """A line, paragraph or sentence; it begins and ends with a character that is no white space."""

    tile: int
    """End of the passage before; white space that is cut with the passage may follow."""
    start: int
    """Its first character."""
    end: int
    """The position after its last character."""


def passages_of(text: str, unit: str) -> list[Passage]:
    """Return the passages of a text. A blank one is none.

    Lines end with a line feed. Paragraphs are separated by blank lines. A sentence ends with a line, after a word that
    ends a sentence (`ends_sentence`), and after an ideographic full stop.
    """
    lines = list(_lines(text))
    if unit == "paragraph":
        found = list(_paragraphs(lines))
    elif unit == "sentence":
        found = [sentence for line in lines if line.start < line.end for sentence in _sentences(text, line)]
    else:
        found = [line for line in lines if line.start < line.end]
    return [found[0]._replace(tile=0), *found[1:]] if found else []


def _lines(text: str) -> Iterator[Passage]:
    """Yield all lines, also blank ones."""
    at = 0
    for line in text.split("\n"):
        start = at + len(line) - len(line.lstrip())
        yield Passage(at, start, start + len(line.strip()))
        at += len(line) + 1


def _paragraphs(lines: Sequence[Passage]) -> Iterator[Passage]:
    paragraph = None
    for line in lines:
        if line.start < line.end:
            paragraph = line if paragraph is None else paragraph._replace(end=line.end)
        elif paragraph is not None:
            yield paragraph
            paragraph = None
    if paragraph is not None:
        yield paragraph


def _sentences(text: str, line: Passage) -> Iterator[Passage]:
    tile, start = line.tile, line.start
    for end in [*_sentence_ends(text, line), line.end]:
        if start < end:
            yield Passage(tile, start, end)
            tile = start = end + len(text[end : line.end]) - len(text[end : line.end].lstrip())


def _sentence_ends(text: str, line: Passage) -> Iterator[int]:
    for word in _WORD.finditer(text, line.start, line.end):
        rest = word.start()
        for mark in _FULL_STOP.finditer(text, word.start(), word.end()):
            rest = mark.end()
            yield rest
        if rest < word.end() and ends_sentence(text[rest : word.end()]):
            yield word.end()


def without(text: str, passages: Sequence[Passage], removed: Collection[int]) -> str:
    """Return a text without the passages of these numbers.

    What goes with a passage is the white space up to the next one. Where the last passages go, the white space before
    them goes, and that at the end of the text stays. A text that loses all its passages is empty.
    """
    if not removed:
        return text
    kept = [number for number in range(len(passages)) if number not in removed]
    if not kept:
        return ""
    tiles = [passage.tile for passage in passages] + [len(text)]
    made = "".join(text[tiles[number] : tiles[number + 1]] for number in kept[:-1])
    last = kept[-1]
    if last + 1 == len(passages):
        return made + text[tiles[last] :]
    return made + text[tiles[last] : passages[last].end] + text[passages[-1].end :]
