# SPDX-License-Identifier: Apache-2.0
"""Resolution of `file_paths` (a file, a folder, a glob, a list of them) to files in input order.

Input order is the byte order of paths relative to the root: the folder, the fixed part of the glob, the parent of a
single file, the common parent of a list. A file that several entries of a list name is read once.

`units_of` groups small files into units.
"""

from __future__ import annotations

import fnmatch
import heapq
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from thresher.core.files.filesystem import (
    FileInfo,
    StorageOptions,
    file_info,
    is_hidden,
    is_url,
    join,
    kind_of,
    list_files,
    local_path,
)
from thresher.core.unit import Piece, Unit, file_stem, unit_id
from thresher.errors import InputError, UsageError

PACK_FILES = 500
"""Largest number of files in a pack. Opening a tiny file takes longer than reading it, so a larger pack would keep one
worker busy while the others are idle."""
_SMALL = 64
"""A file below this fraction of `blocksize` is grouped with its neighbours."""
_GLOB_CHARACTERS = frozenset("*?[")


@dataclass(frozen=True)
class AcceptedFiles:
    """The files of a folder that a reader accepts."""

    reader: str
    """The name of the reader, for messages."""
    endings: tuple[str, ...]
    """Accepted extensions, in lower case."""
    compressed: tuple[str, ...] = ()
    """Extensions of compressed files that may follow."""

    def accepts(self, name: str) -> bool:
        """Return True if a file of this name is accepted."""
        lowered = name.lower()
        for ending in self.compressed:
            if lowered.endswith(ending):
                lowered = lowered.removesuffix(ending)
                break
        return lowered.endswith(self.endings)

    def __str__(self) -> str:
        compressed = f" (also followed by {' '.join(self.compressed)})" if self.compressed else ""
        return f"{self.reader} looks for {' '.join(self.endings)}{compressed}"


@dataclass(frozen=True)
class _Entry:
    """One entry of `file_paths`."""

    given: str
    """The entry as the user wrote it."""
    base: str
    """The folder that contains its files."""
    names: tuple[str, ...] | None
    """Path parts below `base`: of a file, or of a glob; `None` for a folder."""
    is_glob: bool = False


def find_files(
    file_paths: str | Sequence[str], accepted: AcceptedFiles, storage_options: StorageOptions = None
) -> Iterator[FileInfo]:
    """Yield all files to read, in input order, relative to the root, while listing continues if possible.

    Raises an `InputError` if an entry names nothing that can be read.
    """
    paths = [file_paths] if isinstance(file_paths, str) else list(file_paths)
    entries = [_entry(path, storage_options) for path in paths]
    root = _common_parent([entry.base for entry in entries])
    singles = [entry for entry in entries if entry.names is not None and not entry.is_glob]
    many = [entry for entry in entries if entry.names is None or entry.is_glob]
    runs = [_below(root, entry, _files_of(entry, accepted, storage_options)) for entry in many]
    runs.append(iter(sorted(_single(root, entry, storage_options) for entry in singles)))
    last = None
    for info in heapq.merge(*runs, key=lambda info: info.relative):
        if info.relative != last:
            yield _checked(info)
        last = info.relative


def check_local_paths(paths: Sequence[str]) -> None:
    """Refuse local paths that name nothing that can be read."""
    for path in paths:
        if not is_url(path):
            _entry(path, None)


def _checked(info: FileInfo) -> FileInfo:
    if info.size < 0:
        raise InputError(f"{info.path} is a broken link; remove or repair it")
    try:
        info.path.encode("utf-8")
    except UnicodeEncodeError as error:
        shown = info.path.encode("utf-8", "backslashreplace").decode()
        raise InputError(f"{shown}: the name is not valid UTF-8, so it cannot be recorded; rename the file") from error
    return info


# -- entries ----------------------------------------------------------------------------------------------------------


def _entry(given: str, storage_options: StorageOptions) -> _Entry:
    path = given if is_url(given) else os.path.abspath(os.path.expanduser(local_path(given)))
    kind = kind_of(path, storage_options)
    if kind == "folder":
        return _Entry(given, path.rstrip("/") or "/", None)
    parts = path.rsplit("://", 1)[-1].split("/")
    first = next((n for n, part in enumerate(parts) if _GLOB_CHARACTERS.intersection(part)), None)
    if first is None or kind == "file":
        file_info(path, storage_options)
        parent, _, name = path.rpartition("/")
        return _Entry(given, parent or "/", (name,))
    names = tuple(parts[first:])
    base = path.removesuffix("/".join(names)).rstrip("/") or "/"
    if not is_url(path) and not os.path.isdir(base):
        raise InputError(f"{given}: the folder {base} does not exist; check the path")
    return _Entry(given, base, names, is_glob=True)


def _common_parent(bases: Sequence[str]) -> str:
    if len({base.split("://")[0] if is_url(base) else "" for base in bases}) > 1:
        raise UsageError(
            f"file_paths: {', '.join(bases[:3])} … lie on different file systems; read them in separate runs"
        )
    split = [base.split("/") for base in bases]
    common = []
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return "/".join(common) or "/"


def _below(root: str, entry: _Entry, files: Iterator[FileInfo]) -> Iterator[FileInfo]:
    prefix = entry.base.removeprefix(root).strip("/")
    for info in files:
        yield info._replace(relative=join(prefix, info.relative))


def _single(root: str, entry: _Entry, storage_options: StorageOptions) -> FileInfo:
    assert entry.names is not None
    path = join(entry.base, *entry.names)
    return file_info(path, storage_options, path.removeprefix(root).lstrip("/"))


# -- folders and globs ------------------------------------------------------------------------------------------------


def _files_of(entry: _Entry, accepted: AcceptedFiles, storage_options: StorageOptions) -> Iterator[FileInfo]:
    if entry.names is None:
        found = list_files(entry.base, storage_options)
        return _taken(entry, found, accepted, lambda info: accepted.accepts(info.relative))
    pattern = entry.names
    found = list_files(
        entry.base, storage_options, hidden=True, descend=lambda folder: _may_contain(folder.split("/"), pattern)
    )
    matching = ((info, _fits(info.relative.split("/"), pattern)) for info in found)
    files = (info for info, how in matching if how == 2 or (how == 1 and accepted.accepts(info.relative)))
    return _taken(entry, files, accepted, lambda _: True)


def _taken(
    entry: _Entry, found: Iterator[FileInfo], accepted: AcceptedFiles, accepts: Callable[[FileInfo], bool]
) -> Iterator[FileInfo]:
    """Yield the accepted files; raise an error if there is none."""
    others: Counter[str] = Counter()
    any_taken = False
    for info in found:
        if accepts(info):
            any_taken = True
            yield info
        elif not any_taken:
            others[os.path.splitext(info.relative)[1].lower() or "no extension"] += 1
    if not any_taken:
        raise InputError(_nothing_found(entry, accepted, others))


def _nothing_found(entry: _Entry, accepted: AcceptedFiles, others: Counter[str]) -> str:
    if entry.is_glob:
        return f"{entry.given}: no file matches this pattern; check it, and put it in quotes on a command line"
    if not others:
        return f"{entry.given}: the folder has no files (names that begin with . or _ are skipped); {accepted}"
    seen = ", ".join(f"{ending} ({count})" for ending, count in others.most_common(5))
    return (
        f"{entry.given}: no file here can be read. {accepted}; found: {seen}. Name the files or use a glob to read them"
    )


def _fits(names: Sequence[str], pattern: Sequence[str]) -> int:
    """Return 2 if a path matches a pattern, 1 if one of its parent folders does, else 0."""
    if not pattern:
        return 2 if not names else int(not any(is_hidden(name) for name in names))
    if pattern[0] == "**":
        deeper = _fits(names[1:], pattern) if names and not is_hidden(names[0]) else 0
        return max(_fits(names, pattern[1:]), deeper)
    if not names or not _name_matches(names[0], pattern[0]):
        return 0
    return _fits(names[1:], pattern[1:])


def _may_contain(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return True if files below a folder may match a pattern."""
    if not names:
        return True
    if not pattern:
        return not any(is_hidden(name) for name in names)
    if pattern[0] == "**":
        deeper = not is_hidden(names[0]) and _may_contain(names[1:], pattern)
        return deeper or _may_contain(names, pattern[1:])
    return _name_matches(names[0], pattern[0]) and _may_contain(names[1:], pattern[1:])


def _name_matches(name: str, pattern: str) -> bool:
    """Return True if a name matches a pattern; hidden names match only patterns that start like them."""
    if is_hidden(name) and not pattern.startswith(name[0]):
        return False
    return fnmatch.fnmatchcase(name, pattern)


# -- units ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Splitting:
    """The size of units."""

    blocksize: int
    """Bytes of a unit, unpacked if the format records that."""
    files_per_partition: int | None = None
    """Whole files per unit, instead of cutting by bytes."""
    limit: int | None = None
    """Number of records of the input to read, if the listing knows how many there are."""
    storage_options: StorageOptions = None
    """For URLs."""

    def packs(self, weight: int) -> bool:
        """Return True if a file of this many unpacked bytes is kept whole, to be grouped with others."""
        return self.files_per_partition is not None or weight * _SMALL < self.blocksize


@dataclass(frozen=True)
class Stretch:
    """A file, or a part of one."""

    number: int
    """Index of the file in the input."""
    block: int
    """Number of the part within the file."""
    piece: Piece
    """The part."""
    nbytes: int
    """Its size."""
    weight: int
    """Approximate unpacked bytes."""
    packable: bool
    """True if it may share a unit with its neighbours."""
    rows: int = 0
    """Number of records, if the listing has a limit; an unreadable file counts as one."""
    stream: bool = False
    """True if it can only be read from front to back."""


def whole_file(info: FileInfo) -> Piece:
    """Return the piece that is a whole file."""
    return Piece(path=info.path, relative=info.relative, size=info.size, version=info.version)


def units_of(stretches: Iterator[Stretch], splitting: Splitting) -> Iterator[Unit]:
    """Yield the units, in input order; listing stops at the record that reaches the limit."""
    pack: list[Stretch] = []
    weight = 0
    left = splitting.limit
    for stretch in stretches:
        full = weight + stretch.weight > splitting.blocksize or len(pack) >= PACK_FILES
        full = full and splitting.files_per_partition is None
        if pack and (full or not stretch.packable):
            yield _unit(pack, None)
            pack, weight = [], 0
        pack.append(stretch)
        weight += stretch.weight
        if left is not None:
            if stretch.rows >= left:
                yield _unit(pack, left + sum(before.rows for before in pack[:-1]))
                return
            left -= stretch.rows
        if not stretch.packable or len(pack) == splitting.files_per_partition:
            yield _unit(pack, None)
            pack, weight = [], 0
    if pack:
        yield _unit(pack, None)


def _unit(stretches: Sequence[Stretch], limit: int | None) -> Unit:
    first = stretches[0]
    return Unit(
        id=unit_id(first.piece.relative, first.block),
        order=(first.number, first.block),
        pieces=tuple(stretch.piece for stretch in stretches),
        stem=file_stem(first.piece.relative),
        nbytes=sum(stretch.nbytes for stretch in stretches),
        limit=limit,
        stream=first.stream,
    )
