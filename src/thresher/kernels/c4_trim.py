# SPDX-License-Identifier: Apache-2.0
"""The trimming of C4: texts become the lines that look like prose, or are dropped."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.c4_lines import (
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
from thresher.kernels.counts import PADDING, Rows, Work
from thresher.kernels.gopher import line_breaks
from thresher.kernels.intrinsics import BYTES, INT32, INT64, get, helper, kernel, put
from thresher.kernels.places import places
from thresher.kernels.sentence_ends import ENDING, ends_sentence
from thresher.kernels.signatures import types
from thresher.kernels.white_space import white_at, white_before

KEPT, LOREM_IPSUM, CURLY_BRACKET, TOO_FEW_SENTENCES, UNDECIDED = range(5)
"""What became of a text. `UNDECIDED`: it has characters that only Unicode's own tables can tell, ask somebody else."""
_FAR = 2**40
"""No word is so long."""


class Trimming(NamedTuple):
    """What is removed; -1 turns a bound off."""

    remove_citations: bool
    """Take out `[1]`, `[edit]` and `[citation needed]`."""
    need_punctuation: bool
    """Leave out lines that do not end like a sentence."""
    min_sentences: int
    """Drop texts with fewer in the lines that are left."""
    min_words: int
    """Leave out lines with fewer."""
    max_word_length: int
    """Leave out lines with a word of more code points."""
    drop_lorem_ipsum: bool
    """Drop texts that say so in a line that would be left."""
    skip_javascript: bool
    """Leave out lines that say so."""
    drop_curly_bracket: bool
    """Drop texts with one in a line that would be left."""
    skip_policy: bool
    """Leave out lines with a phrase of cookie and privacy notices."""


class Trimmed(NamedTuple):
    """Texts after trimming, in the order of the rows."""

    data: npt.NDArray[np.uint8]
    """The bytes of all of them, and padding."""
    starts: Rows
    """Where each text begins."""
    ends: Rows
    """Where it ends."""
    outcome: Rows
    """`KEPT`, or why it is dropped, or `UNDECIDED`."""
    sentences: Rows
    """How many sentences were counted, up to the line that decided."""
    changed: Rows
    """Whether the new text differs from the old one: 0 or 1."""


def can_trim(how: Trimming) -> bool:
    """Whether the kernel knows this way of trimming: blank lines must not be kept."""
    return how.need_punctuation or how.min_words >= 1


def trim(work: Work, rows: Rows, how: Trimming) -> Trimmed:
    """Trim these texts. Those that are kept lie one behind the other, with nothing between them."""
    texts, found = work.texts, places(work, rows)
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
    """The line that begins with the word at `edge`: the edge behind its last word, the place behind it, how many
    sentences end before that word, and whether some word is too long."""
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
    """The candidates of a line: the number of its citations, noted in `spans`; its phrases; whether all is clear."""
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
    """What becomes of a line by its phrases: it is kept, left out (`UNDECIDED` stands for that), or the end of the
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
    """Move a text to `begin` without white space at its ends; the place behind it."""
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
def _trimmed(text: Any, edges: Any, span: Any, options: Any, ending: Any, room: Any, out: Any, place: int) -> Any:
    """One text, put into `out` from `place` on: the place behind it, the outcome, and its sentences."""
    candidates, spans = room
    edge, last_edge = span
    longest = options[4] if options[4] != -1 else _FAR
    first_place, mark, sentences = place, 0, 0
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
                return first_place, UNDECIDED, sentences
        if not options[0]:
            citations = 0
        has_mark = ends_with_mark(text, begin, stop)
        line_place = place + (1 if place > first_place else 0)
        if citations:
            line_stop = copy_line(text, begin, stop, (spans, citations), out, line_place)
            has_mark = ends_with_mark(out, line_place, line_stop)
            found = phrases_in(out, line_place, line_stop)
        if (options[1] and not has_mark) or (edge - first_edge) >> 1 < options[3]:
            continue
        verdict = _verdict(found, options)
        if verdict == UNDECIDED:
            continue
        if verdict != KEPT:
            return first_place, verdict, sentences
        if citations:
            sentences += sentences_in(out, line_place, line_stop, ending)
        else:
            sentences += 1 + ended
            line_stop = copy_line(text, begin, stop, (spans, 0), out, line_place)
        if line_place > place:
            put(out, place, np.uint8(0x0A))
        place = line_stop
    if sentences < options[2]:
        return first_place, TOO_FEW_SENTENCES, sentences
    return _stripped(out, first_place, place), KEPT, sentences


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
def _trim(data: Any, by_text: Any, edges: Any, options: Any, ending: Any, room: Any, out: Any, results: Any) -> None:
    """Text by text, each behind the one before."""
    place = 0
    for n in range(len(by_text)):
        start, end = by_text[n, 0], by_text[n, 1]
        length = end - start
        text = data[start : end + PADDING]
        find_candidates(text, length, room[0])
        span = (by_text[n, 2], by_text[n, 2] + by_text[n, 3])
        stop, outcome, sentences = _trimmed(text, edges, span, options, ending, room, out, place)
        is_same = stop - place == length
        at = 0
        while is_same and at < length:
            is_same = get(out, place + at) == get(text, at)
            at += 1
        results[0, n], results[1, n], results[2, n] = place, stop, outcome
        results[3, n], results[4, n] = sentences, 0 if is_same else 1
        place = stop
