# SPDX-License-Identifier: Apache-2.0
"""Machine code that needs no linker: the object files of a kernel become one image that can be copied to any address.

Only what compilers for this kind of machine write for code anywhere in memory is known here: whole addresses. Anything
else is refused, and the kernel is loaded by Numba. Wrappers for the interpreter are left without what they refer to:
they are never called.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_X86_64 = 62
_PROGRAM, _SYMBOLS, _RELOCATIONS, _NOTHING = 1, 2, 4, 8
_WRITTEN, _ALLOCATED = 1, 2
_ADDRESS_64 = 1
_UNDEFINED, _COMMON = 0, 0xFFF2
_WRAPPERS = ("_ZN7cpython", "cfunc.")
"""What the names of functions for the interpreter begin with."""
LIBRARY = frozenset({"memcpy", "memmove", "memset", "memcmp"})
"""What kernels may call from outside."""
NEVER_CALLED = frozenset({"NRT_MemInfo_call_dtor"})
"""What ends memory that a kernel made itself; these make none."""


class CannotLink(Exception):
    """The object file has something that is not known here."""


@dataclass(frozen=True)
class Image:
    """Machine code and its constants, for any address."""

    content: bytes
    """As it lies in memory, but for the places below."""
    entry: int
    """Where the function begins."""
    own: tuple[tuple[int, int], ...]
    """Places that hold the address of a place in the image."""
    outside: tuple[tuple[int, str], ...]
    """Places that hold the address of a function of the C library."""


@dataclass
class _Section:
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    at: int = -1
    """Where it is in the image."""


@dataclass
class _Symbol:
    name: str
    section: int
    value: int
    size: int


@dataclass
class _Object:
    data: bytes
    sections: list[_Section] = field(default_factory=list)
    symbols: list[_Symbol] = field(default_factory=list)

    def is_in_wrapper(self, section: int, place: int) -> bool:
        return any(
            symbol.section == section
            and symbol.name.startswith(_WRAPPERS)
            and symbol.value <= place < symbol.value + symbol.size
            for symbol in self.symbols
        )


def link(objects: Sequence[bytes], entry: str) -> Image:
    """One image of some object files; `entry` is the name of the function that will be called."""
    parsed = [_parse(data) for data in objects]
    content = bytearray()
    known: dict[str, int] = {}
    for one in parsed:
        _lay_out(one, content)
        known |= {symbol.name: _place(one, symbol) for symbol in one.symbols if symbol.name and _is_here(one, symbol)}
    own: list[tuple[int, int]] = []
    outside: list[tuple[int, str]] = []
    for one in parsed:
        for place, symbol, addend in _relocations(one):
            if _is_here(one, symbol):
                own.append((place, _place(one, symbol) + addend))
            elif symbol.name in known:
                own.append((place, known[symbol.name] + addend))
            elif symbol.name in LIBRARY and not addend:
                outside.append((place, symbol.name))
            elif symbol.name not in NEVER_CALLED:
                raise CannotLink(f"it needs {symbol.name}")
    if entry not in known:
        raise CannotLink(f"it has no {entry}")
    return Image(bytes(content), known[entry], tuple(own), tuple(outside))


def _parse(data: bytes) -> _Object:
    magic, kind, machine = data[:6], *struct.unpack_from("<HH", data, 16)
    if magic != b"\x7fELF\x02\x01" or kind != 1 or machine != _X86_64:
        raise CannotLink("it is no object file of this kind of machine")
    (start,) = struct.unpack_from("<Q", data, 40)
    size, number = struct.unpack_from("<HH", data, 58)
    made = _Object(data)
    for n in range(number):
        _, kind, flags, _, offset, length, link, info, align, _ = struct.unpack_from(
            "<IIQQQQIIQQ", data, start + n * size
        )
        made.sections.append(_Section(kind, flags, offset, length, link, info, max(1, align)))
    for section in made.sections:
        if section.kind == _SYMBOLS:
            names = made.sections[section.link].offset
            for at in range(section.offset, section.offset + section.size, 24):
                name, _, _, place, value, length = struct.unpack_from("<IBBHQQ", data, at)
                text = data[names + name : data.index(0, names + name)].decode("ascii", "replace")
                made.symbols.append(_Symbol(text, place, value, length))
    return made


def _lay_out(one: _Object, content: bytearray) -> None:
    """Put the parts of an object that are needed in memory behind what is there."""
    for section in one.sections:
        if section.flags & _ALLOCATED and section.kind in (_PROGRAM, _NOTHING) and section.size:
            if section.flags & _WRITTEN:
                raise CannotLink("it has variables of its own")
            content.extend(bytes(-len(content) % section.align))
            section.at = len(content)
            stored = one.data[section.offset : section.offset + section.size]
            content.extend(stored if section.kind == _PROGRAM else bytes(section.size))
    for symbol in one.symbols:
        if symbol.section == _COMMON:  # an empty variable: its value is what it must be aligned to
            content.extend(bytes(-len(content) % max(1, symbol.value)))
            one.sections.append(_Section(_NOTHING, _ALLOCATED, 0, symbol.size, 0, 0, 1, len(content)))
            symbol.section, symbol.value = len(one.sections) - 1, 0
            content.extend(bytes(symbol.size))


def _is_here(one: _Object, symbol: _Symbol) -> bool:
    return _UNDEFINED < symbol.section < len(one.sections) and one.sections[symbol.section].at >= 0


def _place(one: _Object, symbol: _Symbol) -> int:
    return one.sections[symbol.section].at + symbol.value


def _relocations(one: _Object) -> Iterator[tuple[int, _Symbol, int]]:
    """The places in the image that hold addresses, what they refer to, and how far from its begin."""
    for section in one.sections:
        if section.kind != _RELOCATIONS or one.sections[section.info].at < 0:
            continue
        for at in range(section.offset, section.offset + section.size, 24):
            place, info, addend = struct.unpack_from("<QQq", one.data, at)
            if one.is_in_wrapper(section.info, place):
                continue
            if info & 0xFFFFFFFF != _ADDRESS_64:
                raise CannotLink(f"it has a relocation of kind {info & 0xFFFFFFFF}")
            yield one.sections[section.info].at + place, one.symbols[info >> 32], addend
