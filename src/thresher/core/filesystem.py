# SPDX-License-Identifier: Apache-2.0
"""Files by path, wherever they lie: local ones through the operating system, URLs through fsspec.

fsspec is loaded when the first URL is seen and never for local paths, so that a run over local files starts fast. A
`file://` URL is a local path.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Literal, NamedTuple, cast

from thresher.errors import InputError, MissingPackageError

StorageOptions = dict[str, Any] | None

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?:::[A-Za-z][A-Za-z0-9+.-]*)*(?:://|::)")
_EXTRAS = {"s3": "s3", "s3a": "s3"}
"""Schemes whose package is one of our extras."""
_REMOTE_BLOCK = 8 * 2**20
"""Bytes that a remote file asks for at a time, at least."""
_VERSION_KEYS = ("ETag", "etag", "version_id", "md5Hash", "generation", "LastModified", "mtime", "created")
"""What file systems call the fact that changes with the content, best first."""


class FileInfo(NamedTuple):
    """A file that was found."""

    path: str
    """Where to open it: a local path or a URL."""
    relative: str
    """Its path below the folder that was listed, with forward slashes."""
    size: int
    """Bytes on disk."""
    version: str
    """Changes when the content does: modification time in nanoseconds, or ETag."""


def is_url(path: str) -> bool:
    """Whether `path` needs fsspec; a `file://` URL is a local path."""
    return _SCHEME.match(path) is not None and not path.startswith("file://")


def local_path(path: str) -> str:
    """`path` without a leading `file://`."""
    return path.removeprefix("file://")


def join(base: str, *names: str) -> str:
    """`names` below `base`, always with forward slashes."""
    for name in names:
        base = f"{base}{name}" if base.endswith("/") or not base else f"{base}/{name}"
    return base


def url_filesystem(url: str, storage_options: StorageOptions = None) -> tuple[Any, str]:
    """The fsspec file system that serves `url`, and the path inside it."""
    import fsspec

    scheme = re.split(r"::|://", url, maxsplit=1)[0]
    try:
        file_system, inner = fsspec.core.url_to_fs(url, **(storage_options or {}))
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        package = f"thresher[{extra}]" if extra else f"the package that serves {scheme}:// URLs for fsspec"
        raise MissingPackageError(f"{url}: {error}. Install {package}, for example: pip install '{package}'") from error
    except ValueError as error:
        known = ", ".join(f"{name}://" for name in ("s3", "gs", "abfs", "https", "memory"))
        raise InputError(f"{url}: {error}. Legal are local paths and URLs that fsspec knows: {known} …") from error
    return file_system, str(inner)


def exists(path: str, storage_options: StorageOptions = None) -> bool:
    """Whether there is a file or folder at `path`."""
    if is_url(path):
        file_system, inner = url_filesystem(path, storage_options)
        return bool(file_system.exists(inner))
    return os.path.exists(local_path(path))


def kind_of(path: str, storage_options: StorageOptions = None) -> Literal["file", "folder", "nothing"]:
    """What lies at `path`; on an object store a folder is where anything lies below."""
    if not is_url(path):
        found = local_path(path)
        return "folder" if os.path.isdir(found) else "file" if os.path.lexists(found) else "nothing"
    file_system, inner = url_filesystem(path, storage_options)
    try:
        return "folder" if file_system.info(inner).get("type") == "directory" else "file"
    except FileNotFoundError:
        return "nothing"


def file_info(path: str, storage_options: StorageOptions = None, relative: str = "") -> FileInfo:
    """Size and version of one file; `InputError` when it is missing, not a file, or may not be looked at."""
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
    """The file, opened at byte `start`. A local one is not buffered: `readinto` fills the caller's memory at once."""
    with explained(path):
        if is_url(path):
            file_system, inner = url_filesystem(path, storage_options)
            opened = cast(BinaryIO, file_system.open(inner, "rb", block_size=_REMOTE_BLOCK))
        else:
            opened = cast(BinaryIO, open(local_path(path), "rb", buffering=0))  # noqa: SIM115 - the caller closes it
        if start:
            opened.seek(start)
        return opened


def opened_state(opened: BinaryIO) -> tuple[int, str] | None:
    """Size and version of a file that is open, to compare with what `file_info` said; `None` where nobody knows."""
    facts = getattr(opened, "details", None)
    if isinstance(facts, dict):
        return int(facts.get("size") or 0), _remote_version(facts)
    try:
        status = os.fstat(opened.fileno())
    except (OSError, AttributeError):
        return None
    return status.st_size, str(status.st_mtime_ns)


def read_start(path: str, count: int, storage_options: StorageOptions = None) -> bytes:
    """The first `count` bytes of a file, fewer when it is shorter."""
    with explained(path):
        if is_url(path):
            file_system, inner = url_filesystem(path, storage_options)
            return bytes(file_system.cat_file(inner, start=0, end=count))
        with open(local_path(path), "rb", buffering=0) as opened:
            return opened.read(count)


def read_starts(paths: Sequence[str], count: int, storage_options: StorageOptions = None) -> list[bytes]:
    """The first `count` bytes of several remote files, asked for at the same time; fewer where a file is shorter."""
    file_system, _ = url_filesystem(paths[0], storage_options)
    inner = [url_filesystem(path, storage_options)[1] for path in paths]
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
    """All files below `folder` in byte order of their relative paths; local folders are walked as the caller goes on.

    Names that begin with `.` or `_` (files and folders) are passed over unless `hidden`. `descend` is asked for each
    local folder by its relative path whether to look into it. A link to nothing has the size -1.
    """
    if is_url(folder):
        yield from _list_remote(folder, storage_options, hidden)
    else:
        root = local_path(folder)
        yield from _Walk(hidden, descend).files(root if root == "/" else root.rstrip("/"), "", ())


def is_hidden(name: str) -> bool:
    """Whether readers pass over a file or folder of this name."""
    return name.startswith((".", "_"))


class _Walk:
    """A walk through local folders."""

    def __init__(self, hidden: bool, descend: Callable[[str], bool] | None) -> None:
        self._hidden = hidden
        self._descend = descend

    def files(self, folder: str, below: str, inside: tuple[tuple[int, int], ...]) -> Iterator[FileInfo]:
        """`inside` names the folders above by device and number, so that a link to one of them cannot loop."""
        with explained(folder):
            status = os.stat(folder)
            here = (status.st_dev, status.st_ino)
            if here in inside:
                return
            with os.scandir(folder) as found:
                entries = [entry for entry in found if self._hidden or not is_hidden(entry.name)]
        # A folder sorts as `name/`: that is how its files compare with their neighbours in byte order of whole paths.
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
def explained(path: str) -> Iterator[None]:
    """Turn the refusals of a file system into an `InputError` that names the path and what to do."""
    try:
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
