# SPDX-License-Identifier: Apache-2.0
"""Folders that files are put into as a whole: on this machine, or behind any URL that fsspec knows.

A file appears under its name complete or not at all. On this machine that is done by writing beside and renaming; an
object store does it by itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path
from typing import Any, Protocol

from thresher.core.filesystem import is_url, local_path

_TEMPORARY = ".thresher-tmp"


class Store(Protocol):
    """A folder. Names are relative to it and use forward slashes."""

    root: str

    def read(self, name: str) -> bytes | None:
        """The content of a file; `None` if there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Put a whole file in place of what is there."""

    def create(self, name: str, data: bytes) -> bool:
        """Put a whole file only if there is none yet; say whether it was put."""

    def put(self, source: str, name: str) -> None:
        """Move a finished, synced local file here, in place of what is there."""

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

    def remove_tree(self, folder: str) -> None:
        """Remove a folder with all it holds, if it is there."""

    def move(self, name: str, new_name: str) -> None:
        """Move a file or folder to another name in this store, if it is there."""

    def sync(self, folder: str = "") -> None:
        """Bring the names in a folder to disk."""


def open_store(root: str, storage_options: dict[str, Any] | None = None) -> Store:
    """The folder `root`, which need not exist yet."""
    if is_url(root):
        from thresher.ledger.url_store import UrlStore

        return UrlStore(root, storage_options or {})
    return LocalStore(local_path(root))


class LocalStore:
    """A folder on this machine."""

    def __init__(self, root: str) -> None:
        self.root = root

    def _path(self, name: str) -> str:
        return os.path.join(self.root, name) if name else self.root

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

    def put(self, source: str, name: str) -> None:
        """Rename; across file systems copy beside, sync and rename."""
        path = self._path(name)
        try:
            os.replace(source, path)
        except FileNotFoundError:
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

    def remove_tree(self, folder: str) -> None:
        """Remove a folder."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._path(folder))

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


def is_temporary(name: str) -> bool:
    """Whether a file was being written beside its final name."""
    return name.endswith(_TEMPORARY)
