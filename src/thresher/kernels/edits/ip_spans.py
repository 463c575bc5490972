# SPDX-License-Identifier: Apache-2.0
"""Find public IP addresses. A text in which a letter outside ASCII might begin a title after one is left to the
definition in Python."""

from __future__ import annotations

import ipaddress
from typing import Any

import numpy as np

from thresher.kernels.build.intrinsics import (
    BYTES,
    INT64,
    NONE,
    ONE,
    OUT,
    get,
    helper,
    kernel,
    low_bits,
    mask_equal,
    mask_range,
    trailing_zeros,
)
from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.white_space import white_before
from thresher.kernels.edits.networks import NOT_PUBLIC
from thresher.kernels.edits.pii_bytes import is_digit, is_hex, is_letter
from thresher.kernels.edits.rewrite import DOUBT, FULL, has_half_pair, note_edit
from thresher.kernels.json.scan import byte_at

_ZERO, _NINE, _DOT, _COLON, _LOW, _SPACE, _FEED = b"09.:_ \n"
_CASE = 0x20
_LONGEST_V6 = 45
_BEFORE = 10
"""Number of characters before a number that show whether it numbers a section."""
_SIGN = (0xC2, 0xA7)
"""The section sign in UTF-8."""
_SECTIONS = (b"section", b"chapter", b"appendix", b"version")
_WORDS = np.frombuffer(b"".join(_SECTIONS), dtype=np.uint8)
_WORD_ENDS = np.cumsum([0, *(len(word) for word in _SECTIONS)])
_NO, _YES, _UNSURE = 0, 1, 2
_SMALL_A, _SMALL_F = b"af"
_MOST_PARTS = 9
"""Maximum number of parts between the colons of an IPv6 address, empty ones included."""
_ADDRESS_WORDS = 8
_NOT_PUBLIC = np.array(
    [(int(network.network_address), 32 - network.prefixlen) for network in map(ipaddress.IPv4Network, NOT_PUBLIC)],
    dtype=np.int64,
)
"""Networks that are not public: the first address of each, and the number of its host bits."""


# -- values of addresses ---------------------------------------------------------------------------------------------


@helper
def _address_v4(data: Any, begin: int, end: int) -> tuple[int, int]:
    """Return the value of four numbers separated by dots and the position after them; the value -1 if it is no valid
    address, and the position 0 if the syntax does not match at all."""
    value = 0
    legal = True
    position = begin
    for part in range(4):
        if part > 0:
            if position >= end or byte_at(data, position) != _DOT:
                return -1, 0
            position += 1
        first = position
        number = 0
        while position < end and is_digit(byte_at(data, position)):
            if position - first == 3:
                return -1, 0
            number = 10 * number + byte_at(data, position) - _ZERO
            position += 1
        if position == first:
            return -1, 0
        legal = legal and number <= 255 and (position - first == 1 or byte_at(data, first) != _ZERO)
        value = (value << 8) | number
    if position < end:
        byte = byte_at(data, position)
        if is_letter(byte) or byte == _LOW:
            return -1, 0
        if byte == _DOT and position + 1 < end and is_digit(byte_at(data, position + 1)):
            return -1, 0
    return (value if legal else -1), position


@helper
def _is_public_v4(address: int) -> bool:
    """Return True if an IPv4 address is in no special-purpose network."""
    for network in range(len(_NOT_PUBLIC)):
        if (address ^ _NOT_PUBLIC[network, 0]) >> _NOT_PUBLIC[network, 1] == 0:
            return False
    return True


@helper
def _word(data: Any, start: int, end: int) -> int:
    """Return the value of up to four hexadecimal digits; -1 for anything else."""
    if end - start > 4:
        return -1
    value = 0
    for position in range(start, end):
        byte = byte_at(data, position)
        if is_digit(byte):
            value = 16 * value + byte - _ZERO
        elif _SMALL_A <= byte | _CASE <= _SMALL_F:
            value = 16 * value + (byte | _CASE) - _SMALL_A + 10
        else:
            return -1
    return value


@helper
def _parts(data: Any, start: int, end: int, parts: Any) -> int:
    """Fill `parts` with the value of each part between colons, -1 for an empty one; return their number, -1 if it is no
    address."""
    count = 0
    colons = 0
    first = start
    for position in range(start, end + 1):
        if position < end and byte_at(data, position) != _COLON:
            continue
        if count >= _MOST_PARTS:
            return -1
        value = _word(data, first, position)
        if value < 0:
            address, behind = _address_v4(data, first, position)
            if position < end or address < 0 or behind != position or count + 2 > _MOST_PARTS:
                return -1
            parts[count] = address >> 16
            count += 1
            value = address & 0xFFFF
        parts[count] = value if position > first else -1
        count += 1
        colons += 1 if position < end else 0
        first = position + 1
    return count if colons >= 2 else -1


@helper
def _spread(parts: Any, count: int, words: Any) -> bool:
    """Expand `::` and fill `words` with the eight words of an address; return False if it is invalid."""
    gap = -1
    for part in range(1, count - 1):
        if parts[part] < 0:
            if gap >= 0:
                return False
            gap = part
    high, low = gap, count - gap - 1
    if gap < 0:
        if count != _ADDRESS_WORDS or parts[0] < 0 or parts[count - 1] < 0:
            return False
        high, low = count, 0
    if gap >= 0 and parts[0] < 0:
        high -= 1
        if high > 0:
            return False
    if gap >= 0 and parts[count - 1] < 0:
        low -= 1
        if low > 0:
            return False
    if gap >= 0 and high + low >= _ADDRESS_WORDS:
        return False
    for word in range(_ADDRESS_WORDS):
        words[word] = 0
    for word in range(high):
        words[word] = parts[word]
    for word in range(low):
        words[_ADDRESS_WORDS - low + word] = parts[count - low + word]
    return True


@helper
def _is_public_v6(data: Any, start: int, end: int, parts: Any, words: Any) -> bool:
    """Return True if this is a valid public IPv6 address. `parts` and `words` are work buffers."""
    count = _parts(data, start, end, parts)
    if count < 0 or not _spread(parts, count, words):
        return False
    if words[0] | words[1] | words[2] | words[3] | words[4] == 0 and words[5] == 0xFFFF:
        return _is_public_v4((words[6] << 16) | words[7])
    if words[0] >> 13 != 1:  # 2000::/3
        return False
    if words[0] == 0x2001 and (words[1] < 0x200 or words[1] == 0xDB8):  # 2001::/23, 2001:db8::/32
        return False
    return bool(words[0] != 0x3FFF or words[1] >= 0x1000)  # 3fff::/20


# -- positions in texts -----------------------------------------------------------------------------------------------


@helper
def _ends_with_word(data: Any, first: int, last: int) -> bool:
    """Return True if a word that precedes section numbers ends at `last`."""
    for word in range(len(_WORD_ENDS) - 1):
        begin, size = _WORD_ENDS[word], _WORD_ENDS[word + 1] - _WORD_ENDS[word]
        same = last - first >= size
        for offset in range(size):
            if same and byte_at(data, last - size + offset) | _CASE != byte_at(_WORDS, begin + offset):
                same = False
        if same:
            return True
    return False


@helper
def _characters_before(data: Any, start: int, position: int) -> int:
    """Return the start of the last `_BEFORE` characters before a position, or of the text."""
    for _ in range(_BEFORE):
        if position == start:
            break
        position -= 1
        while position > start and byte_at(data, position) & 0xC0 == 0x80:
            position -= 1
    return position


@helper
def _numbers_a_section(data: Any, start: int, begin: int, behind: int, end: int) -> int:
    """Decide whether a number numbers a section: because of the word before it, or because it begins a line and a title
    follows. Return `_YES`, `_NO` or `_UNSURE`."""
    first = _characters_before(data, start, begin)
    last = begin
    size = white_before(data, first, last)
    while size > 0:
        last -= size
        size = white_before(data, first, last)
    if _ends_with_word(data, first, last):
        return _YES
    if last - first >= 2 and byte_at(data, last - 2) == _SIGN[0] and byte_at(data, last - 1) == _SIGN[1]:
        return _YES
    if last > first or first > start:  # not only white space, unless the line begins after it
        line = begin
        while line > last and byte_at(data, line - 1) != _FEED:
            line -= 1
        if line == last:
            return _NO
    return _title(data, behind, end)


@helper
def _title(data: Any, position: int, end: int) -> int:
    """Decide whether a full stop, spaces and a letter follow. Return `_YES`, `_NO` or `_UNSURE`."""
    if position >= end or byte_at(data, position) != _DOT:
        return _NO
    first = position + 1
    position = first
    while position < end and byte_at(data, position) == _SPACE:
        position += 1
    if position == first or position == end:
        return _NO
    byte = byte_at(data, position)
    if byte >= 0x80:
        return _UNSURE
    return _YES if is_letter(byte) else _NO


@helper
def _marks(data: Any, at: int, end: int) -> Any:
    """Return a mask of up to 64 bytes from `at` on: digits followed by a dot and a digit, and colons."""
    colons = mask_equal(data, at, np.uint8(_COLON))
    if end - at > 64:
        dots = mask_equal(data, at + 1, np.uint8(_DOT))
        if dots != NONE:
            dots &= mask_range(data, at, np.uint8(_ZERO), np.uint8(_NINE))
            dots &= mask_range(data, at + 2, np.uint8(_ZERO), np.uint8(_NINE))
        return dots | colons
    digits = mask_range(data, at, np.uint8(_ZERO), np.uint8(_NINE)) & low_bits(end - at)
    dots = (mask_equal(data, at, np.uint8(_DOT)) >> ONE) & digits & (digits >> np.uint64(2))
    return dots | (colons & low_bits(end - at))


@helper
def _number_begin(data: Any, start: int, position: int) -> int:
    """Return the start of the digits around a position; -1 if the character before them rules an address out."""
    begin = position
    while begin > start and position - begin < 3 and is_digit(byte_at(data, begin - 1)):
        begin -= 1
    if begin > start:
        byte = byte_at(data, begin - 1)
        if is_digit(byte) or is_letter(byte) or byte == _LOW or byte == _DOT:
            return -1
    return begin


@helper
def _run_end(data: Any, position: int, end: int) -> int:
    """Return the position after the hexadecimal digits, colons and dots from here on."""
    while position < end:
        byte = byte_at(data, position)
        if not (is_hex(byte) or byte == _COLON or byte == _DOT):
            break
        position += 1
    return position


@helper
def _v6_begin(data: Any, start: int, colon: int) -> int:
    """Return the start of the digits before a colon; -1 if they are too many or the character before them rules an
    address out."""
    begin = colon
    while begin > start and colon - begin < 5 and is_hex(byte_at(data, begin - 1)):
        begin -= 1
    if colon - begin > 4:
        return -1
    if begin > start:
        byte = byte_at(data, begin - 1)
        if is_digit(byte) or is_letter(byte) or byte == _LOW or byte == _COLON or byte == _DOT:
            return -1
    return begin


@helper
def _v6(data: Any, start: int, colon: int, end: int, parts: Any, words: Any) -> tuple[int, int, int]:
    """Return the start and end of a public IPv6 address at a colon (-1: there is none), and the position up to which
    there is no other."""
    behind = _run_end(data, colon + 1, end)
    begin = _v6_begin(data, start, colon)
    if behind == colon + 1 or begin < 0:
        return -1, -1, behind
    if behind < end and (is_letter(byte_at(data, behind)) or byte_at(data, behind) == _LOW):
        while (
            behind > colon and byte_at(data, behind) != _DOT
        ):  # a word follows: the address ends at a full stop, or there is none
            behind -= 1
    last = behind
    while last > begin and byte_at(data, last - 1) == _DOT:
        last -= 1
    if last > begin and byte_at(data, last - 1) == _COLON and (last - 1 == begin or byte_at(data, last - 2) != _COLON):
        last -= 1
    if last - begin <= _LONGEST_V6 and _is_public_v6(data, begin, last, parts, words):
        return begin, last, max(behind, colon + 1)
    return -1, -1, max(behind, colon + 1)


@kernel(types.int64(BYTES, INT64, INT64, OUT, DOUBT))
def find(data: Any, starts: Any, ends: Any, found: Any, doubtful: Any) -> int:
    """Find the addresses of each text."""
    count = 0
    parts, words = np.empty(_MOST_PARTS, dtype=np.int64), np.empty(_ADDRESS_WORDS, dtype=np.int64)
    for row in range(len(starts)):
        start, end = get(starts, row), get(ends, row)
        before = count
        done = colons_done = start
        unsure = False
        at = start
        while at < end and not unsure:
            mask = _marks(data, at, end)
            while mask != NONE and not unsure:
                position = at + trailing_zeros(mask)
                mask &= mask - ONE
                if byte_at(data, position) == _COLON:
                    if position >= colons_done:
                        begin, behind, colons_done = _v6(data, start, position, end, parts, words)
                        if begin >= done:
                            if count == len(found):
                                return FULL
                            count = note_edit(found, count, row, begin, behind, 0)
                            done = behind
                    continue
                begin = _number_begin(data, start, position)
                if begin < done:
                    continue
                address, behind = _address_v4(data, begin, end)
                if address < 0 or not _is_public_v4(address):
                    continue
                section = _numbers_a_section(data, start, begin, behind, end)
                if section == _UNSURE:
                    unsure = True
                elif section == _NO:
                    if count == len(found):
                        return FULL
                    count = note_edit(found, count, row, begin, behind, 0)
                    done = behind
            at += 64
        if unsure or (count > before and has_half_pair(data, start, end)):
            count = before
            doubtful[row] = 1
    return count
