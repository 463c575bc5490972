# SPDX-License-Identifier: Apache-2.0
"""Properties of a line that the C4 rules check: phrases, brackets, citations, sentences and line ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from thresher.kernels.build.decorators import ir, primitive
from thresher.kernels.build.intrinsics import (
    NONE,
    ONE,
    get,
    helper,
    low_bits,
    mask_equal,
    mask_folded,
    put,
    trailing_zeros,
)
from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.sentence_ends import ends_sentence
from thresher.kernels.bytes.white_space import white_at

JAVASCRIPT, LOREM, POLICY, CURLY = 1, 2, 4, 8
"""Flags of what a line contains."""


@primitive
def copy_bytes(_typing: Any, source: Any, start: Any, target: Any, position: Any, length: Any) -> Any:
    """Copy `length` bytes between arrays that do not overlap. Kernels call it without the first argument."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, start, target, position, length = arguments
        origin = builder.gep(context.make_array(signature.args[0])(context, builder, source).data, [start])
        goal = builder.gep(context.make_array(signature.args[2])(context, builder, target).data, [position])
        pointer, size = ir.IntType(8).as_pointer(), ir.IntType(64)
        copy = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, size])
        builder.call(copy, [goal, origin, length, ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64, types.int64), generate


@helper
def find_candidates(text: Any, length: int, found: Any) -> None:
    """Write to `found` the positions where a phrase, a bracket or the Kelvin sign (U+212A, a `k` in lower case) may be,
    followed by `length`. Every phrase contains one of five rare pairs of letters."""
    number = 0
    for block in range(0, length, 64):
        behind = block + 1
        bits = mask_folded(text, block, 0x7B)
        bits |= mask_folded(text, block, 0x6B) & mask_folded(text, behind, 0x69)
        bits |= mask_folded(text, block, 0x63) & mask_folded(text, behind, 0x79)
        bits |= (mask_folded(text, block, 0x6D) | mask_folded(text, block, 0x70)) & mask_folded(text, behind, 0x73)
        bits |= mask_folded(text, block, 0x6A) & mask_folded(text, behind, 0x61)
        bits |= mask_equal(text, block, 0xE2) & mask_equal(text, behind, 0x84)
        bits &= low_bits(length - block)
        while bits != NONE:
            put(found, number, np.int32(block + trailing_zeros(bits)))
            number += 1
            bits &= bits - ONE
    put(found, number, np.int32(length))


@helper
def _is_phrase(data: Any, start: int, stop: int, at: int, phrase: Any) -> bool:
    """Return True if the phrase, in any case, is at `at` and lies between `start` and `stop`."""
    if at < start or at + len(phrase) > stop:
        return False
    for n in range(len(phrase)):
        byte = get(data, at + n)
        if 0x41 <= byte <= 0x5A:
            byte |= 0x20
        if byte != phrase[n]:
            return False
    return True


@helper
def phrase_at(data: Any, start: int, stop: int, at: int) -> int:
    """Return the flag of the phrase whose rare pair of letters is at `at`."""
    byte = get(data, at)
    if byte == 0x7B:
        return CURLY
    letter = byte | 0x20
    if letter == 0x6B:
        if (
            _is_phrase(data, start, stop, at - 8, b"uses cookies")
            or _is_phrase(data, start, stop, at - 10, b"use of cookies")
            or _is_phrase(data, start, stop, at - 7, b"use cookies")
        ):
            return POLICY
    elif letter == 0x63:
        if _is_phrase(data, start, stop, at - 12, b"privacy policy") or _is_phrase(
            data, start, stop, at - 11, b"cookie policy"
        ):
            return POLICY
    elif letter == 0x6D:
        if _is_phrase(data, start, stop, at - 3, b"terms of use"):
            return POLICY
    elif letter == 0x70:
        if _is_phrase(data, start, stop, at - 7, b"lorem ipsum"):
            return LOREM
    elif letter == 0x6A and _is_phrase(data, start, stop, at, b"javascript"):
        return JAVASCRIPT
    return 0


@helper
def _may_begin_digit(lead: int) -> bool:
    """Return True if the UTF-8 of some decimal digit outside ASCII begins with this byte."""
    if lead < 0xE0:
        return lead == 0xD9 or lead == 0xDB or lead == 0xDF
    return lead == 0xE0 or lead == 0xE1 or lead == 0xEA or lead >= 0xEF


@helper
def citation_end(data: Any, at: int, stop: int) -> int:
    """Return the end of the citation that begins at `at` with a bracket: 0 if there is none, -1 if deciding needs the
    table of all digits of Unicode."""
    end = at + 1
    while end < stop and 0x30 <= get(data, end) <= 0x39:
        end += 1
    if end < stop and get(data, end) == 0x5D:
        return end + 1
    if end < stop and get(data, end) >= 0x80:
        while end < stop and (get(data, end) >= 0x80 or 0x30 <= get(data, end) <= 0x39):
            if get(data, end) >= 0xC0 and not _may_begin_digit(get(data, end)):
                return 0
            end += 1
        return -1 if end < stop and get(data, end) == 0x5D else 0
    for phrase in (b"[edit]", b"[citation needed]"):
        fits = at + len(phrase) <= stop
        n = 0
        while fits and n < len(phrase):
            fits = get(data, at + n) == phrase[n]
            n += 1
        if fits:
            return at + len(phrase)
    return 0


@helper
def is_kelvin_sign(data: Any, at: int) -> bool:
    """Return True if this is the Kelvin sign, which `str.lower` turns into a k."""
    return bool(get(data, at) == 0xE2 and get(data, at + 1) == 0x84 and get(data, at + 2) == 0xAA)


@helper
def phrases_in(data: Any, start: int, stop: int) -> int:
    """Return the flags of a line, checking every position."""
    found = 0
    for at in range(start, stop):
        found |= phrase_at(data, start, stop, at)
    return found


@helper
def sentences_in(data: Any, start: int, stop: int, ending: Any) -> int:
    """Return the number of sentences of a line whose words are not known."""
    sentences, at, ended = 1, start, False
    while True:
        size = white_at(data, at, stop)
        while size:
            at += size
            size = white_at(data, at, stop)
        if at >= stop:
            return sentences
        if ended:
            sentences += 1
        begin = at
        while at < stop and not white_at(data, at, stop):
            at += 1
        ended = ends_sentence(data, begin, at, ending)


@helper
def has_more_characters(data: Any, start: int, end: int, longest: int) -> bool:
    """Return True if a word has more than `longest` code points."""
    characters = 0
    for at in range(start, end):
        if get(data, at) & 0xC0 != 0x80:
            characters += 1
    return characters > longest


@helper
def ends_with_mark(data: Any, start: int, stop: int) -> bool:
    """Return True if a line ends like a sentence for C4: with a terminal mark or a quotation mark, and not with an
    ellipsis."""
    if stop <= start:
        return False
    last = get(data, stop - 1)
    if last == 0x2E:
        return not (stop - start >= 3 and get(data, stop - 2) == 0x2E and get(data, stop - 3) == 0x2E)
    return bool(last == 0x3F or last == 0x21 or last == 0x22 or last == 0x27)


@helper
def copy_line(text: Any, start: int, stop: int, citations: Any, out: Any, position: int) -> int:
    """Copy a line without its citations, given as spans and their number; return the position after it."""
    spans, number = citations
    for n in range(number):
        until = get(spans, 2 * n)
        copy_bytes(text, start, out, position, until - start)
        position += until - start
        start = get(spans, 2 * n + 1)
    copy_bytes(text, start, out, position, stop - start)
    return position + stop - start
