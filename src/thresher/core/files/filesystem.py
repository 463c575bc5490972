# SPDX-License-Identifier: Apache-2.0
"""File access by path: local files through the operating system, URLs through fsspec.

fsspec is loaded when the first URL is seen and never for local paths, so that a run over local files starts fast. A
`file://` URL is a local path.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, cast

from thresher.core.files.url_errors import any_refusal, is_missing, missing_package, port_fault, url_refusal
from thresher.credentials import with_credentials
from thresher.errors import InputError, MissingPackageError, ThresherError

if TYPE_CHECKING:
    from thresher.core.unit import Piece

STANDARD_STREAM = "-"
"""Path that stands for standard input in a reader and standard output in a writer."""
StorageOptions = dict[str, Any] | None

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?:::[A-Za-z][A-Za-z0-9+.-]*)*(?:://|::)")
_REMOTE_BLOCK = 8 * 2**20
"""Minimum number of bytes per request to a remote file."""
_VERSION_KEYS = ("ETag", "etag", "version_id", "md5Hash", "generation", "LastModified", "mtime", "created")
"""Keys of the metadata field that changes with the content, in order of preference."""


class FileInfo(NamedTuple):
    """A file that was found."""

    path: str
    """Local path or URL."""
    relative: str
    """Path below the listed folder, with forward slashes."""
    size: int
    """Bytes on disk."""
    version: str
    """Changes with the content: modification time in nanoseconds, or ETag."""


def is_url(path: str) -> bool:
    """Return True if `path` needs fsspec; a `file://` URL is a local path."""
    return _SCHEME.match(path) is not None and not path.startswith("file://")


def local_path(path: str) -> str:
    """Return `path` without a leading `file://`."""
    return path.removeprefix("file://")


def join(base: str, *names: str) -> str:
    """Return the path of `names` below `base`, always with forward slashes."""
    for name in names:
        base = f"{base}{name}" if base.endswith("/") or not base else f"{base}/{name}"
    return base


def url_filesystem(url: str, storage_options: StorageOptions = None) -> tuple[Any, str]:
    """Return the fsspec file system that serves `url`, and the path inside it."""
    import fsspec

    fault = port_fault(url)
    if fault:
        raise InputError(fault)
    full, options = with_credentials(url, storage_options)
    try:
        file_system, inner = fsspec.core.url_to_fs(full, **options)
    except ImportError as error:
        raise MissingPackageError(missing_package(url, error)) from error
    except ValueError as error:
        known = ", ".join(f"{name}://" for name in ("s3", "gs", "abfs", "https", "memory"))
        raise InputError(f"{url}: {error}. Legal are local paths and URLs that fsspec knows: {known} …") from error
    except Exception as error:  # each file system has its own errors for unknown options
        raise InputError(any_refusal(url, error)) from error
    return file_system, str(inner)


def exists(path: str, storage_options: StorageOptions = None) -> bool:
    """Return True if there is a file or folder at `path`."""
    if is_url(path):
        file_system, inner = url_filesystem(path, storage_options)
        return bool(file_system.exists(inner))
    return os.path.exists(local_path(path))


def kind_of(path: str, storage_options: StorageOptions = None) -> Literal["file", "folder", "nothing"]:
    """Return what is at `path`; on an object store a prefix of any object is a folder."""
    if not is_url(path):
        found = local_path(path)
        return "folder" if os.path.isdir(found) else "file" if os.path.lexists(found) else "nothing"
    file_system, inner = url_filesystem(path, storage_options)
    with explained(path):
        try:
            return "folder" if file_system.info(inner).get("type") == "directory" else "file"
        except FileNotFoundError as error:
            if not is_missing(error):
                raise
            return "nothing"


def file_info(path: str, storage_options: StorageOptions = None, relative: str = "") -> FileInfo:
    """Return size and version of one file; raise `InputError` if it is missing, not a file, or not accessible."""
    with explained(path):
        if is_url(path):
            file_system, inner = url_filesystem(path, storage_options)
            facts = file_system.info(inner)
            if facts.get("type") == "directory":
                raise InputError(f"{path} is a folder, and a file was needed here")
            return FileInfo(path, relative or _last_name(path), _remote_size(path, facts), _remote_version(facts))
        status = os.stat(local_path(path))
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path} is not a regular file; give a file, a folder or a glob")
        return FileInfo(local_path(path), relative or _last_name(path), status.st_size, str(status.st_mtime_ns))


def open_read(path: str, start: int = 0, storage_options: StorageOptions = None) -> BinaryIO:
    """Open a file at byte `start`. A local file is unbuffered, so that `readinto` fills the caller's memory
    directly."""
    with explained(path, only_os_errors=True):
        if is_url(path):
            file_system, inner = url_filesystem(path, storage_options)
            opened = cast(BinaryIO, file_system.open(inner, "rb", block_size=_REMOTE_BLOCK))
        else:
            opened = cast(BinaryIO, open(local_path(path), "rb", buffering=0))  # noqa: SIM115 - the caller closes it
        if start:
            opened.seek(start)
        return opened


def open_piece(piece: Piece, start: int = 0, storage_options: StorageOptions = None) -> BinaryIO:
    """Open the file of a piece at byte `start`; raise an `InputError` if it is missing or has changed since listing.

    A changed file would give wrong record ids or mixed records.
    """
    opened = open_read(piece.path, start, storage_options)
    state = opened_state(opened)
    if state is not None and piece.version and state[1] and state != (piece.size, piece.version):
        opened.close()
        raise InputError(
            f"{piece.path} changed after it was listed (it had {piece.size} bytes, now it has {state[0]}); "
            "leave input alone during a run, then run again with --fresh"
        )
    return opened


def opened_state(opened: BinaryIO) -> tuple[int, str] | None:
    """Return size and version of an open file, for comparison with `file_info`; `None` if they are unknown."""
    facts = getattr(opened, "details", None)
    if isinstance(facts, dict):
        return int(facts.get("size") or 0), _remote_version(facts)
    try:
        status = os.fstat(opened.fileno())
    except (OSError, AttributeError):
        return None
    return status.st_size, str(status.st_mtime_ns)


def read_start(path: str, count: int, storage_options: StorageOptions = None) -> bytes:
    """Return the first `count` bytes of a file, fewer if it is shorter."""
    with explained(path):
        if is_url(path):
            file_system, inner = url_filesystem(path, storage_options)
            return bytes(file_system.cat_file(inner, start=0, end=count))
        with open(local_path(path), "rb", buffering=0) as opened:
            return opened.read(count)


def read_starts(paths: Sequence[str], count: int, storage_options: StorageOptions = None) -> list[bytes]:
    """Return the first `count` bytes of several remote files, fewer if a file is shorter, with concurrent requests."""
    file_system, _ = url_filesystem(paths[0], storage_options)
    inner = [url_filesystem(path, storage_options)[1] for path in paths]
    with explained(paths[0]):
        heads = file_system.cat_ranges(inner, [0] * len(paths), [count] * len(paths), on_error="return")
    for path, head in zip(paths, heads, strict=True):
        if isinstance(head, BaseException):
            with explained(path):
                raise head
    return [bytes(head) for head in heads]


def list_files(
    folder: str,
    storage_options: StorageOptions = None,
    hidden: bool = False,
    descend: Callable[[str], bool] | None = None,
) -> Iterator[FileInfo]:
    """Yield all files below `folder` in byte order of their relative paths; local folders are walked lazily.

    Files and folders whose names begin with `.` or `_` are skipped unless `hidden`. `descend` decides by relative path
    which local folders are entered. A dangling link has the size -1.
    """
    if is_url(folder):
        yield from _list_remote(folder, storage_options, hidden)
    else:
        root = local_path(folder)
        yield from _FolderWalk(hidden, descend).files(root if root == "/" else root.rstrip("/"), "", ())


def is_hidden(name: str) -> bool:
    """Return True if readers skip a file or folder of this name."""
    return name.startswith((".", "_"))


class _FolderWalk:
    """A walk through local folders."""

    def __init__(self, hidden: bool, descend: Callable[[str], bool] | None) -> None:
        self._hidden = hidden
        self._descend = descend

    def files(self, folder: str, below: str, inside: tuple[tuple[int, int], ...]) -> Iterator[FileInfo]:
        """Yield the files below `folder`; `inside` holds device and inode of its parents, so that links cannot loop."""
        with explained(folder):
            status = os.stat(folder)
            here = (status.st_dev, status.st_ino)
            if here in inside:
                return
            with os.scandir(folder) as found:
                entries = [entry for entry in found if self._hidden or not is_hidden(entry.name)]
        # A folder sorts as `name/`, which gives the byte order of whole paths.
        for key, entry in sorted((entry.name + "/" if entry.is_dir() else entry.name, entry) for entry in entries):
            path = join(folder, entry.name)
            if not key.endswith("/"):
                yield from self._file(path, below + key, entry)
            elif self._descend is None or self._descend(below + entry.name):
                yield from self.files(path, below + key, (*inside, here))

    def _file(self, path: str, relative: str, entry: os.DirEntry[str]) -> Iterator[FileInfo]:
        try:
            status = entry.stat()
        except FileNotFoundError:
            yield FileInfo(path, relative, -1, "")
            return
        if stat.S_ISREG(status.st_mode):
            yield FileInfo(path, relative, status.st_size, str(status.st_mtime_ns))


def _list_remote(folder: str, storage_options: StorageOptions, hidden: bool) -> Iterator[FileInfo]:
    file_system, inner = url_filesystem(folder, storage_options)
    with explained(folder):
        file_system.invalidate_cache()
        found: dict[str, dict[str, Any]] = file_system.find(inner, detail=True)
    root = inner.rstrip("/") + "/"
    base = folder.rstrip("/")
    infos = []
    for name, facts in found.items():
        relative = name.removeprefix(root).lstrip("/")
        is_file = name.startswith(root) and facts.get("type") != "directory" and not name.endswith("/")
        if is_file and (hidden or not any(is_hidden(part) for part in relative.split("/"))):
            path = f"{base}/{relative}"
            infos.append(FileInfo(path, relative, _remote_size(path, facts), _remote_version(facts)))
    yield from sorted(infos, key=lambda info: info.relative)


def _remote_size(path: str, facts: dict[str, Any]) -> int:
    size = facts.get("size")
    if size is None:
        raise InputError(f"{path}: the server does not say how large the file is; fetch it and read the local copy")
    return int(size)


def _remote_version(facts: dict[str, Any]) -> str:
    for key in _VERSION_KEYS:
        if facts.get(key):
            return str(facts[key]).strip('"')
    return ""


def _last_name(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]


@contextlib.contextmanager
def explained(path: str, *, only_os_errors: bool = False) -> Iterator[None]:
    """Turn file system errors into an `InputError` that names the path and what to do.

    With `only_os_errors`, let errors through that are not an `OSError`: the worker retries them.
    """
    try:
        with _explained_url(path, only_os_errors) if is_url(path) else contextlib.nullcontext():
            yield
    except FileNotFoundError as error:
        reason = "is a link to something that does not exist" if os.path.islink(path) else "does not exist"
        raise InputError(f"{path} {reason}; check the path") from error
    except PermissionError as error:
        raise InputError(f"{path} may not be read (no permission); grant read access or leave it out") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder, and a file was needed here") from error
    except NotADirectoryError as error:
        raise InputError(f"{path} does not exist: a part of the path is a file, not a folder") from error


@contextlib.contextmanager
def _explained_url(url: str, only_os_errors: bool) -> Iterator[None]:
    try:
        yield
    except ThresherError:
        raise
    except Exception as error:
        if isinstance(error, OSError):
            message = url_refusal(url, error)
            if message is None and isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
                raise
        elif only_os_errors:
            raise
        else:
            message = None
        raise InputError(message or any_refusal(url, error)) from error
