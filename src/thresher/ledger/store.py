# SPDX-License-Identifier: Apache-2.0
"""Folders that files are put into as a whole: on this machine, or behind any URL that fsspec knows.

A file appears under its name complete or not at all. On this machine that is done by writing beside and renaming; an
object store does it by itself.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from thresher.core.filesystem import is_url, local_path
from thresher.errors import OutputRefusedError

_TEMPORARY = ".thresher-tmp"
_S3 = ("s3://", "s3a://")


class Found(NamedTuple):
    """A small file as it was found."""

    data: bytes
    """Its content."""
    version: str
    """Changes when it is put again with other content."""
    age_s: float | None = None
    """How long ago it was put, by the clock of the store; `None` where the store does not say."""


class Owner(NamedTuple):
    """Who puts a file, and what is in it: so that its own file is known again."""

    run_id: str
    """The run."""
    attempt: int
    """The attempt of that run."""
    sha256: str
    """Of the file's bytes."""


class Store(Protocol):
    """A folder. Names are relative to it and use forward slashes."""

    root: str
    conditional: bool
    """Whether `create`, `replace` and `put` hold also against somebody who does the same at the same moment."""

    def read(self, name: str) -> bytes | None:
        """The content of a file; `None` if there is none."""

    def find(self, name: str) -> Found | None:
        """The content of a file with its version; `None` if there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Put a whole file in place of what is there."""

    def create(self, name: str, data: bytes) -> bool:
        """Put a whole file only if there is none yet; say whether it is the one that is there now."""

    def replace(self, name: str, data: bytes, version: str) -> bool:
        """Put a whole file in place of that version only; say whether it is the one that is there now."""

    def refuses_to_create(self, name: str, data: bytes) -> bool:
        """Try to create a file that is there with this content; say whether the store refuses, as it should."""

    def put(self, source: str, name: str, owner: Owner | None = None) -> None:
        """Move a finished, synced local file here.

        Without `owner`, and on this machine, it takes the place of what is there. On an object store only an older file
        of the same run may be replaced: what is there with the same bytes is taken as done, all else is refused.
        """

    def get(self, name: str, target: str) -> None:
        """Copy a file to a local path."""

    def names(self, folder: str = "") -> list[str]:
        """Names of files and folders directly in a folder, sorted; folders end in a slash."""

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""

    def make_folder(self, folder: str = "") -> None:
        """Make a folder and what is above it."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def withdraw(self, name: str, owner: Owner) -> None:
        """Remove a file that an attempt of the owner's run put, up to his own: it has nothing to put there."""

    def remove_tree(self, folder: str) -> None:
        """Remove a folder with all it holds, if it is there."""

    def move(self, name: str, new_name: str) -> None:
        """Move a file or folder to another name in this store, if it is there."""

    def abort_uploads(self, wanted: Callable[[str], bool]) -> None:
        """Forget the uploads below this folder that were begun and never finished, where `wanted` says so by name."""

    def sync(self, folder: str = "") -> None:
        """Bring the names in a folder to disk."""


def open_store(root: str, storage_options: dict[str, Any] | None = None, conditional: bool = True) -> Store:
    """The folder `root`, which need not exist yet. `conditional`: whether the store is known to heed conditions."""
    if root.startswith(_S3):
        from thresher.ledger.s3_store import S3Store

        return S3Store(root, storage_options or {}, conditional)
    if is_url(root):
        from thresher.ledger.url_store import UrlStore

        return UrlStore(root, storage_options or {}, conditional)
    return LocalStore(local_path(root))


def leads_out(name: str) -> bool:
    """Whether a name is not that of something below a folder. Run folders are not trusted: they may say anything."""
    return not name or os.path.isabs(name) or "\\" in name or "\0" in name or ".." in name.split("/")


def inside(name: str) -> str:
    """The name, if it stays inside the folder; only a damaged or hostile run folder holds another one."""
    if leads_out(name):
        raise OutputRefusedError(
            f"{name!r}, which the run folder names, is not below its folder; nothing is done with it"
        )
    return name


class LocalStore:
    """A folder on this machine."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.conditional = True

    def _path(self, name: str) -> str:
        return os.path.join(self.root, inside(name)) if name else self.root

    def read(self, name: str) -> bytes | None:
        """The content of a file."""
        try:
            return Path(self._path(name)).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write beside, sync, rename."""
        path = self._path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        beside = f"{path}.{os.getpid()}{_TEMPORARY}"
        _write_new(beside, data, sync=True)
        os.replace(beside, path)

    def create(self, name: str, data: bytes) -> bool:
        """Write beside and link, which fails where the name is taken. Not synced: what a power cut takes is redone."""
        path = self._path(name)
        beside = f"{path}.{os.getpid()}{_TEMPORARY}"
        _write_new(beside, data, sync=False)
        try:
            os.link(beside, path)
        except FileExistsError:
            return False
        except OSError as error:  # a file system without hard links
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
            if os.path.exists(path):
                return False
            os.replace(beside, path)
            return True
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside)
        return True

    def find(self, name: str) -> Found | None:
        """The content of a file."""
        content = self.read(name)
        return None if content is None else Found(content, hashlib.sha256(content).hexdigest())

    def replace(self, name: str, data: bytes, version: str) -> bool:
        """Look, then write: only a folder whose file system has no locks needs this."""
        found = self.find(name)
        if found is None or found.version != version:
            return False
        self.write(name, data)
        return True

    def refuses_to_create(self, name: str, data: bytes) -> bool:
        """Links are never made over a file."""
        return True

    def put(self, source: str, name: str, owner: Owner | None = None) -> None:
        """Rename; across file systems copy beside, sync and rename."""
        path = self._path(name)
        try:
            os.replace(source, path)
        except FileNotFoundError:  # the folder is missing, or `source`: then a newer attempt removed it
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.replace(source, path)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            folder, base = os.path.split(path)
            os.makedirs(folder, exist_ok=True)
            beside = os.path.join(folder, f".{base}.{os.getpid()}{_TEMPORARY}")
            try:
                shutil.copyfile(source, beside)
                with open(beside, "rb") as copied:
                    os.fsync(copied.fileno())
                os.replace(beside, path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(beside)
            os.unlink(source)

    def get(self, name: str, target: str) -> None:
        """Copy a file."""
        shutil.copyfile(self._path(name), target)

    def names(self, folder: str = "") -> list[str]:
        """What is directly in a folder."""
        try:
            with os.scandir(self._path(folder)) as entries:
                return sorted(e.name + "/" if e.is_dir(follow_symlinks=False) else e.name for e in entries)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return os.path.exists(self._path(name))

    def make_folder(self, folder: str = "") -> None:
        """Make a folder."""
        os.makedirs(self._path(folder), exist_ok=True)

    def remove(self, name: str) -> None:
        """Remove a file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(name))

    def withdraw(self, name: str, owner: Owner) -> None:
        """Remove a file. Whose it is does not show: the caller knows that no newer attempt has begun."""
        self.remove(name)

    def remove_tree(self, folder: str) -> None:
        """Rename, then remove: who still writes there finds nothing from one moment to the next."""
        path = self._path(folder)
        beside = f"{path}.{os.getpid()}{_TEMPORARY}"
        shutil.rmtree(beside, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, beside)
            shutil.rmtree(beside)

    def abort_uploads(self, wanted: Callable[[str], bool]) -> None:
        """There are no uploads on this machine."""

    def move(self, name: str, new_name: str) -> None:
        """Rename."""
        path = self._path(new_name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.replace(self._path(name), path)

    def sync(self, folder: str = "") -> None:
        """Bring the names in a folder to disk."""
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(self._path(folder), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _write_new(path: str, data: bytes, *, sync: bool) -> None:
    try:
        with open(path, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def remove_listed(store: Store, name: str) -> None:
    """Remove a file or folder by a name as `names` gives it."""
    if name.endswith("/"):
        store.remove_tree(name.rstrip("/"))
    else:
        store.remove(name)


def is_temporary(name: str) -> bool:
    """Whether a file was being written beside its final name, or a folder being removed."""
    return name.rstrip("/").endswith(_TEMPORARY)
