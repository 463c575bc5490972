# SPDX-License-Identifier: Apache-2.0
"""From what a user writes as `file_paths` (a file, a folder, a glob, a list of them) to files in input order.

Input order is the byte order of paths relative to the root: the folder, the fixed part of the glob, the parent of a
single file, the common parent of a list. A file that several entries of a list name is read once.
"""

from __future__ import annotations

import fnmatch
import heapq
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from thresher.core.filesystem import (
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
from thresher.errors import InputError, UsageError

_GLOB_CHARACTERS = frozenset("*?[")


@dataclass(frozen=True)
class Wanted:
    """Which files of a folder a reader takes."""

    reader: str
    """Its name, for messages."""
    endings: tuple[str, ...]
    """What their names end with, in lower case."""
    packed: tuple[str, ...] = ()
    """What may follow these endings."""

    def takes(self, name: str) -> bool:
        """Whether a file of this name is taken."""
        lowered = name.lower()
        for ending in self.packed:
            if lowered.endswith(ending):
                lowered = lowered.removesuffix(ending)
                break
        return lowered.endswith(self.endings)

    def __str__(self) -> str:
        packed = f" (also with {' '.join(self.packed)} behind)" if self.packed else ""
        return f"{self.reader} looks for {' '.join(self.endings)}{packed}"


@dataclass(frozen=True)
class _Entry:
    """One entry of `file_paths`."""

    given: str
    """As the user wrote it."""
    base: str
    """The folder below which its files lie."""
    names: tuple[str, ...] | None
    """Path parts below it: of a file, or of a glob; `None` for a folder."""
    is_glob: bool = False


def find_files(
    file_paths: str | Sequence[str], wanted: Wanted, storage_options: StorageOptions = None
) -> Iterator[FileInfo]:
    """All files to read, in input order, relative to the root; found as the caller goes on where that is possible.

    `InputError` when an entry names nothing that can be read.
    """
    paths = [file_paths] if isinstance(file_paths, str) else list(file_paths)
    entries = [_entry(path, storage_options) for path in paths]
    root = _common_parent([entry.base for entry in entries])
    singles = [entry for entry in entries if entry.names is not None and not entry.is_glob]
    many = [entry for entry in entries if entry.names is None or entry.is_glob]
    runs = [_below(root, entry, _files_of(entry, wanted, storage_options)) for entry in many]
    runs.append(iter(sorted(_single(root, entry, storage_options) for entry in singles)))
    last = None
    for info in heapq.merge(*runs, key=lambda info: info.relative):
        if info.relative != last:
            yield _checked(info)
        last = info.relative


def _checked(info: FileInfo) -> FileInfo:
    if info.size < 0:
        raise InputError(f"{info.path} is a link to something that does not exist; remove it or mend it")
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


def _files_of(entry: _Entry, wanted: Wanted, storage_options: StorageOptions) -> Iterator[FileInfo]:
    if entry.names is None:
        found = list_files(entry.base, storage_options)
        return _taken(entry, found, wanted, lambda info: wanted.takes(info.relative))
    pattern = entry.names
    found = list_files(
        entry.base, storage_options, hidden=True, descend=lambda folder: _leads_to(folder.split("/"), pattern)
    )
    matching = ((info, _fits(info.relative.split("/"), pattern)) for info in found)
    files = (info for info, how in matching if how == 2 or (how == 1 and wanted.takes(info.relative)))
    return _taken(entry, files, wanted, lambda _: True)


def _taken(
    entry: _Entry, found: Iterator[FileInfo], wanted: Wanted, takes: Callable[[FileInfo], bool]
) -> Iterator[FileInfo]:
    """The files that are wanted; an error when there is none."""
    others: Counter[str] = Counter()
    any_taken = False
    for info in found:
        if takes(info):
            any_taken = True
            yield info
        elif not any_taken:
            others[os.path.splitext(info.relative)[1].lower() or "no extension"] += 1
    if not any_taken:
        raise InputError(_nothing_found(entry, wanted, others))


def _nothing_found(entry: _Entry, wanted: Wanted, others: Counter[str]) -> str:
    if entry.is_glob:
        return f"{entry.given}: no file matches this pattern; check it, and put it in quotes on a command line"
    if not others:
        return f"{entry.given}: the folder has no files (names that begin with . or _ are passed over); {wanted}"
    seen = ", ".join(f"{ending} ({count})" for ending, count in others.most_common(5))
    return (
        f"{entry.given}: no file here can be read. {wanted}; found: {seen}. Name the files or use a glob to read them"
    )


def _fits(names: Sequence[str], pattern: Sequence[str]) -> int:
    """2 when a path fits a pattern, 1 when one of the folders that it lies in does, else 0."""
    if not pattern:
        return 2 if not names else int(not any(is_hidden(name) for name in names))
    if pattern[0] == "**":
        deeper = _fits(names[1:], pattern) if names and not is_hidden(names[0]) else 0
        return max(_fits(names, pattern[1:]), deeper)
    if not names or not _name_fits(names[0], pattern[0]):
        return 0
    return _fits(names[1:], pattern[1:])


def _leads_to(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether files below a folder may fit a pattern."""
    if not names:
        return True
    if not pattern:
        return not any(is_hidden(name) for name in names)
    if pattern[0] == "**":
        deeper = not is_hidden(names[0]) and _leads_to(names[1:], pattern)
        return deeper or _leads_to(names, pattern[1:])
    return _name_fits(names[0], pattern[0]) and _leads_to(names[1:], pattern[1:])


def _name_fits(name: str, pattern: str) -> bool:
    """Names that are passed over fit only a pattern that begins like them."""
    if is_hidden(name) and not pattern.startswith(name[0]):
        return False
    return fnmatch.fnmatchcase(name, pattern)
