# SPDX-License-Identifier: Apache-2.0
"""Trim texts as C4 does: keep the lines that look like prose, or drop the text."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import BYTES, INT32, INT64, get, helper, kernel, put
from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.sentence_ends import ENDING, ends_sentence
from thresher.kernels.bytes.white_space import white_at, white_before
from thresher.kernels.counts.gopher import line_breaks
from thresher.kernels.counts.positions import positions
from thresher.kernels.counts.text_counts import PADDING, Rows, SharedCounts
from thresher.kernels.edits.c4_lines import (
    CURLY,
    JAVASCRIPT,
    LOREM,
    POLICY,
    citation_end,
    copy_line,
    ends_with_mark,
    find_candidates,
    has_more_characters,
    is_kelvin_sign,
    phrase_at,
    phrases_in,
    sentences_in,
)

KEPT, LOREM_IPSUM, CURLY_BRACKET, TOO_FEW_SENTENCES, UNDECIDED = range(5)
"""Outcomes of a text. `UNDECIDED`: it has characters that need Unicode's tables, so that Python has to decide."""
_FAR = 2**40
"""Longer than any word."""


class Trimming(NamedTuple):
    """The parts of a text to remove; -1 disables a limit."""

    remove_citations: bool
    """Remove `[1]`, `[edit]` and `[citation needed]`."""
    need_punctuation: bool
    """Remove lines that do not end like a sentence."""
    min_sentences: int
    """Drop texts with fewer sentences in the remaining lines."""
    min_words: int
    """Remove lines with fewer words."""
    max_word_length: int
    """Remove lines with a word of more code points."""
    drop_lorem_ipsum: bool
    """Drop texts with "lorem ipsum" in a remaining line."""
    skip_javascript: bool
    """Remove lines with "javascript"."""
    drop_curly_bracket: bool
    """Drop texts with a curly bracket in a remaining line."""
    skip_policy: bool
    """Remove lines with a phrase of cookie and privacy notices."""


class Trimmed(NamedTuple):
    """Texts after trimming, in the order of the rows."""

    data: npt.NDArray[np.uint8]
    """The bytes of all texts, and padding."""
    starts: Rows
    """Start of each text."""
    ends: Rows
    """End of each text."""
    outcome: Rows
    """`KEPT`, the reason for dropping it, or `UNDECIDED`."""
    sentences: Rows
    """Number of sentences up to the line that decided."""
    changed: Rows
    """1 if the new text differs from the old one, otherwise 0."""


def can_trim(how: Trimming) -> bool:
    """Return True if the kernel supports these options: blank lines must not be kept."""
    return how.need_punctuation or how.min_words >= 1


def trim(work: SharedCounts, rows: Rows, how: Trimming) -> Trimmed:
    """Trim these texts. Those that are kept follow each other without gaps."""
    texts, found = work.texts, positions(work, rows)
    starts, ends = texts.starts[rows], texts.ends[rows]
    lengths = ends - starts
    data = np.empty(int(lengths.sum()) + PADDING, dtype=np.uint8)
    data[-PADDING:] = 0
    out = np.zeros((5, len(rows)), dtype=np.int64)
    candidates = np.empty(int(lengths.max(initial=0)) + 1, dtype=np.int32)
    spans = np.empty(len(candidates) + 1, dtype=np.int32)
    options = np.array([int(value) for value in how], dtype=np.int64)
    by_text = np.stack([starts, ends, 2 * found.first_word[rows], 2 * found.words[rows]], axis=1)
    _trim(texts.data, by_text, found.edges, options, ENDING, (candidates, spans), data, out)
    return Trimmed(data, *out)


@helper
def _line_from(text: Any, edges: Any, edge: int, last_edge: int, longest: int, ending: Any) -> Any:
    """Return, for the line that begins with the word at `edge`: the edge after its last word, the position after it,
    the number of sentences that end before that word, and True if some word is too long."""
    ended, too_long = 0, False
    while True:
        word, behind = get(edges, edge), get(edges, edge + 1)
        edge += 2
        if behind - word > longest:
            too_long = too_long or has_more_characters(text, word, behind, longest)
        if edge == last_edge:
            break
        following = get(edges, edge)
        is_space = following - behind == 1 and get(text, behind) == 0x20
        if not is_space and line_breaks(text, behind, following)[0]:
            break
        last = get(text, behind - 1)
        # Letters and digits end no sentence.
        may_end = last < 0x30 or last > 0x7A or last == 0x3F or last == 0x5D
        if may_end and ends_sentence(text, word, behind, ending):
            ended += 1
    return edge, behind, ended, too_long


@helper
def _look_into(text: Any, begin: int, stop: int, candidates: Any, mark: int, spans: Any) -> Any:
    """Check the candidates of a line. Return the number of its citations, which are written to `spans`, its flags, and
    False if it cannot be decided."""
    citations, found = 0, 0
    while get(candidates, mark) < stop:
        at = get(candidates, mark)
        mark += 1
        if get(text, at) == 0x5B:
            end = citation_end(text, at, stop)
            if end < 0:
                return citations, found, False
            if end:
                put(spans, 2 * citations, np.int32(at))
                put(spans, 2 * citations + 1, np.int32(end))
                citations += 1
        elif is_kelvin_sign(text, at):
            return citations, found, False
        else:
            found |= phrase_at(text, begin, stop, at)
    return citations, found, True


@helper
def _verdict(found: int, options: Any) -> int:
    """Return the outcome of a line by its flags: `KEPT`, `UNDECIDED` to remove the line, or the reason to drop the
    text."""
    if options[5] and found & LOREM:
        return LOREM_IPSUM
    if options[6] and found & JAVASCRIPT:
        return UNDECIDED
    if options[7] and found & CURLY:
        return CURLY_BRACKET
    if options[8] and found & POLICY:
        return UNDECIDED
    return KEPT


@helper
def _stripped(out: Any, begin: int, stop: int) -> int:
    """Strip a text in place: move it to `begin` and return the position after it."""
    size = white_before(out, begin, stop)
    while size:
        stop -= size
        size = white_before(out, begin, stop)
    first = begin
    size = white_at(out, first, stop)
    while size:
        first += size
        size = white_at(out, first, stop)
    if first > begin:
        for at in range(stop - first):
            put(out, begin + at, get(out, first + at))
    return stop - (first - begin)


@helper
def _trimmed(text: Any, edges: Any, span: Any, options: Any, ending: Any, buffers: Any, out: Any, position: int) -> Any:
    """Trim one text and write it to `out` from `position` on; return the position after it, the outcome, and the number
    of its sentences."""
    candidates, spans = buffers
    edge, last_edge = span
    longest = options[4] if options[4] != -1 else _FAR
    first_position, mark, sentences = position, 0, 0
    while edge < last_edge:
        begin, first_edge = get(edges, edge), edge
        edge, stop, ended, too_long = _line_from(text, edges, edge, last_edge, longest, ending)
        if too_long:
            continue
        while get(candidates, mark) < begin:
            mark += 1
        citations, found = 0, 0
        if get(candidates, mark) < stop:
            citations, found, is_clear = _look_into(text, begin, stop, candidates, mark, spans)
            if not is_clear:
                return first_position, UNDECIDED, sentences
        if not options[0]:
            citations = 0
        has_mark = ends_with_mark(text, begin, stop)
        line_position = position + (1 if position > first_position else 0)
        if citations:
            line_stop = copy_line(text, begin, stop, (spans, citations), out, line_position)
            has_mark = ends_with_mark(out, line_position, line_stop)
            found = phrases_in(out, line_position, line_stop)
        if (options[1] and not has_mark) or (edge - first_edge) >> 1 < options[3]:
            continue
        verdict = _verdict(found, options)
        if verdict == UNDECIDED:
            continue
        if verdict != KEPT:
            return first_position, verdict, sentences
        if citations:
            sentences += sentences_in(out, line_position, line_stop, ending)
        else:
            sentences += 1 + ended
            line_stop = copy_line(text, begin, stop, (spans, 0), out, line_position)
        if line_position > position:
            put(out, position, np.uint8(0x0A))
        position = line_stop
    if sentences < options[2]:
        return first_position, TOO_FEW_SENTENCES, sentences
    return _stripped(out, first_position, position), KEPT, sentences


@kernel(
    types.void(
        BYTES,
        types.Array(types.int64, 2, "C", readonly=True),
        INT32,
        INT64,
        INT64,
        types.Tuple((types.int32[::1], types.int32[::1])),
        types.uint8[::1],
        types.int64[:, ::1],
    )
)
def _trim(data: Any, by_text: Any, edges: Any, options: Any, ending: Any, buffers: Any, out: Any, results: Any) -> None:
    """Trim all texts, each written after the one before."""
    position = 0
    for n in range(len(by_text)):
        start, end = by_text[n, 0], by_text[n, 1]
        length = end - start
        text = data[start : end + PADDING]
        find_candidates(text, length, buffers[0])
        span = (by_text[n, 2], by_text[n, 2] + by_text[n, 3])
        stop, outcome, sentences = _trimmed(text, edges, span, options, ending, buffers, out, position)
        is_same = stop - position == length
        at = 0
        while is_same and at < length:
            is_same = get(out, position + at) == get(text, at)
            at += 1
        results[0, n], results[1, n], results[2, n] = position, stop, outcome
        results[3, n], results[4, n] = sentences, 0 if is_same else 1
        position = stop
