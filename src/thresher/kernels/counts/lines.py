# SPDX-License-Identifier: Apache-2.0
"""Count the lines of texts: how many are distinct, how they begin and how they end.

Only a line feed ends a line, and lines without a word do not count. Lines are compared unstripped; their beginnings and
ends are taken from their words, which is the same as stripping them first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thresher.kernels.build.intrinsics import (
    OUT,
    flattened,
    get,
    helper,
    integer,
    kernel,
    load8,
)
from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.repeats import TABLE, part_for, seen_before, table_for
from thresher.kernels.counts.positions import BATCH, Batch, batch_of
from thresher.kernels.counts.text_counts import Count, Rows, SharedCounts

_COLUMNS = (
    "lines",
    "distinct_lines",
    "line_characters",
    "distinct_line_characters",
    "bullet_lines",
    "unpunctuated_lines",
    "ellipsis_lines",
)
"""The columns that the kernel fills, in its order."""
BULLETS = "•‣⁃⁌⁍∙○●◘◦⦾⦿"
"""Characters with which a list item may begin. Each is three bytes long and begins with E2."""


def _number(text: str) -> np.uint64:
    return np.uint64(int.from_bytes(text.encode(), "little"))


(_B0, _B1, _B2, _B3, _B4, _B5, _B6, _B7, _B8, _B9, _B10, _B11) = map(_number, BULLETS)
_TWO_BYTES, _THREE_BYTES, _FIVE_BYTES = np.uint64(2**16 - 1), np.uint64(2**24 - 1), np.uint64(2**40 - 1)
_ELLIPSIS, _DOTS, _BRACKET_ELLIPSIS = _number("…"), _number("..."), _number("[…]")
_BRACKET_DOTS, _PARENTHESIS_DOTS, _ARROW, _TWO_DOTS = _number("[...]"), _number("(...)"), _number("-»"), _number("..")
_READ_MOR, _SMALL_LETTERS = _number("read mor"), np.uint64(0x2020200020202020)
_FOUR_BYTES, _MORE, _SMALL_LETTERS_4 = np.uint64(2**32 - 1), _number("more"), np.uint64(0x20202020)
_END_MARKS = np.uint64(sum(1 << ord(mark) for mark in ".?!\"'"))
_E2, _E, _DOT = 0xE2, 0x65, 0x2E


def compute(work: SharedCounts, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """Return all counts of the group."""
    batch = batch_of(work, rows)
    out = np.empty((len(rows), len(_COLUMNS)), dtype=np.int64)
    _count(batch, table_for(int(batch.line_feeds[rows].max(initial=0)) + 1), out)
    return {(name, 0): out[:, column] for column, name in enumerate(_COLUMNS)}


@helper
def _is_bullet(data: Any, position: int) -> Any:
    if get(data, position) != _E2:
        return False
    three = load8(data, position) & _THREE_BYTES
    early = three == _B0 or three == _B1 or three == _B2 or three == _B3 or three == _B4 or three == _B5
    late = three == _B6 or three == _B7 or three == _B8 or three == _B9 or three == _B10 or three == _B11
    return early or late


@helper
def _is_end_mark(byte: Any) -> Any:
    """Return 1 for `.`, `?`, `!` and quotation marks of ASCII, 0 for other bytes."""
    return integer(byte < 64) & integer(_END_MARKS >> np.uint64(byte & 63)) & 1


@helper
def _may_be_ellipsis(data: Any, end: int) -> Any:
    """Return True if the last bytes of a line that ends at `end` may be an ellipsis mark; most are not."""
    if end < 4:
        return True
    four = load8(data, end - 4) & _FOUR_BYTES
    last = four >> np.uint64(24)
    bracket = (last == np.uint64(0x5D)) | (last == np.uint64(0x29))
    beyond_ascii = (last == np.uint64(0xA6)) | (last == np.uint64(0xBB))
    return bracket | beyond_ascii | (four >> np.uint64(16) == _TWO_DOTS) | (four | _SMALL_LETTERS_4 == _MORE)


@helper
def _ends_with_ellipsis(data: Any, start: int, word: int, end: int) -> Any:
    """Return True if the line stripped to `start` and `end`, with its last word at `word`, ends with an ellipsis
    mark."""
    length = end - word
    last = integer(get(data, end - 1))
    if last == _DOT:
        if length >= 3 and load8(data, end - 3) & _THREE_BYTES == _DOTS:
            return True
        return end - start >= 11 and load8(data, end - 2) & _TWO_BYTES == _TWO_DOTS and _is_read_more(data, end - 11)
    if last | 0x20 == _E:
        return end - start >= 9 and _is_read_more(data, end - 9)
    if length >= 5 and (last == 0x5D or last == 0x29):
        five = load8(data, end - 5) & _FIVE_BYTES
        return five == _BRACKET_DOTS or five == _BRACKET_ELLIPSIS or five == _PARENTHESIS_DOTS
    if length >= 3 and (last == 0xA6 or last == 0xBB):
        three = load8(data, end - 3) & _THREE_BYTES
        return three == _ELLIPSIS or three == _ARROW
    return False


@helper
def _is_read_more(data: Any, position: int) -> Any:
    """Return True if "read more" is at a position, in any case."""
    return load8(data, position) | _SMALL_LETTERS == _READ_MOR and get(data, position + 8) | 0x20 == _E


@kernel(types.void(BATCH, TABLE, OUT))
def _count(batch: Batch, table: Any, out: Any) -> None:
    """Fill a row of `out` for each of `rows`."""
    data, edges, flat = batch.data, batch.edges, flattened(batch.feeds)
    for n in range(len(batch.rows)):
        row = batch.rows[n]
        start, length = batch.starts[row], batch.ends[row] - batch.starts[row]
        number, feed, word = batch.line_feeds[row], 3 * batch.first_feed[row], 2 * batch.first_word[row]
        own_table = part_for(table, number + 1)
        lines = distinct = characters = distinct_characters = bullets = unpunctuated = ellipses = 0
        begin = words_before = continuation_before = 0
        for line in range(number + 1):
            if line < number:
                end = integer(get(flat, feed + 3 * line))
                words_upto = integer(get(flat, feed + 3 * line + 1))
                continuation_upto = integer(get(flat, feed + 3 * line + 2))
            else:
                end, words_upto, continuation_upto = length, batch.words[row], batch.continuation[row]
            if words_upto > words_before:
                lines += 1
                line_characters = end - begin - (continuation_upto - continuation_before)
                characters += line_characters
                if not seen_before(own_table, n + 1, data, start + begin, start + end):
                    distinct += 1
                    distinct_characters += line_characters
                first = start + get(edges, word + 2 * words_before)
                last = start + get(edges, word + 2 * words_upto - 2)
                stop = start + get(edges, word + 2 * words_upto - 1)
                bullets += 1 if _is_bullet(data, first) else 0
                unpunctuated += 1 - _is_end_mark(integer(get(data, stop - 1)))
                if _may_be_ellipsis(data, stop):
                    ellipses += 1 if _ends_with_ellipsis(data, first, last, stop) else 0
            begin, words_before, continuation_before = end + 1, words_upto, continuation_upto
        out[n, 0], out[n, 1], out[n, 2], out[n, 3] = lines, distinct, characters, distinct_characters
        out[n, 4], out[n, 5], out[n, 6] = bullets, unpunctuated, ellipses
