# SPDX-License-Identifier: Apache-2.0
"""Folders that files are put into as a whole, local or behind any URL that fsspec knows.

A file appears under its name complete or not at all. A local store writes to a temporary name and renames; an object
store guarantees it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from thresher.core.files.filesystem import is_url, local_path
from thresher.errors import DamagedRunError, OutputRefusedError

_TEMPORARY = ".thresher-tmp"
_S3 = ("s3://", "s3a://")


class VersionedFile(NamedTuple):
    """A small file with its version."""

    data: bytes
    """Content of the file."""
    version: str
    """Changes when it is put again with other content."""
    age_s: float | None = None
    """Seconds since it was put, by the clock of the store; `None` if unknown."""


class Owner(NamedTuple):
    """The writer and content of a file, for recognizing the file later."""

    run_id: str
    """Run that puts the file."""
    attempt: int
    """Attempt of that run."""
    sha256: str
    """SHA-256 of the file."""


class Store(Protocol):
    """A folder. Names are relative to it, with forward slashes."""

    root: str
    conditional: bool
    """True if `create`, `replace` and `put` are atomic with respect to concurrent writers."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; `None` if there is none."""

    def find(self, name: str) -> VersionedFile | None:
        """Return the content of a file with its version; `None` if there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file, replacing an existing one."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a whole file only if there is none; return True if it is the current one."""

    def replace(self, name: str, data: bytes, version: str) -> bool:
        """Write a whole file only in place of that version; return True if it is the current one."""

    def refuses_to_create(self, name: str, data: bytes) -> bool:
        """Try to create an existing file with the same content; return True if the store refuses, as it should."""

    def put(self, source: str, name: str, owner: Owner | None = None) -> None:
        """Move a finished, synced local file here.

        Without `owner`, and in a local store, an existing file is replaced. On an object store only an older file of
        the same run is replaced; an existing file with the same bytes is accepted, and any other is refused.
        """

    def get(self, name: str, target: str) -> None:
        """Copy a file to a local path."""

    def names(self, folder: str = "") -> list[str]:
        """Return the names of files and folders directly in a folder, sorted; folders end in a slash."""

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the bytes of each file below a folder, by its name relative to the folder."""

    def exists(self, name: str) -> bool:
        """Return True if there is such a file."""

    def require_root(self) -> None:
        """Raise if the server does not answer or the bucket does not exist; buckets are never created."""

    def make_folder(self, folder: str = "") -> None:
        """Create a folder and its parents."""

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""

    def withdraw(self, name: str, owner: Owner) -> None:
        """Remove a file that the owner's attempt or an earlier one of its run put, because this attempt has no output
        for it."""

    def remove_empty(self, folder: str) -> None:
        """Remove a folder if there is nothing in it."""

    def remove_tree(self, folder: str) -> None:
        """Remove a folder with its content if it exists."""

    def move(self, name: str, new_name: str) -> None:
        """Move a file or folder to another name in this store if it exists."""

    def abort_uploads(self, wanted: Callable[[str], bool]) -> None:
        """Abort the unfinished uploads below this folder for whose names `wanted` returns True."""

    def sync(self, folder: str = "") -> None:
        """Sync the directory entries of a folder to disk."""


def open_store(root: str, storage_options: dict[str, Any] | None = None, conditional: bool = True) -> Store:
    """Return the store of the folder `root`, which need not exist. `conditional` is False if conditional puts are known
    not to work."""
    if ":" not in root:
        return LocalStore(root)
    if root.startswith(_S3):
        from thresher.ledger.stores.s3_store import S3Store

        return S3Store(root, storage_options or {}, conditional)
    if is_url(root):
        from thresher.ledger.stores.url_store import UrlStore

        return UrlStore(root, storage_options or {}, conditional)
    return LocalStore(local_path(root))


def escapes_folder(name: str) -> bool:
    """Return True if a name does not stay below its folder. Names in run folders are untrusted."""
    return not name or os.path.isabs(name) or "\\" in name or "\0" in name or ".." in name.split("/")


def inside(name: str) -> str:
    """Return the name if it stays inside the folder, else raise: the run folder is damaged or hostile."""
    if escapes_folder(name):
        raise OutputRefusedError(
            f"{name!r}, which the run folder names, is not below its folder; nothing is done with it"
        )
    return name


class LocalStore:
    """A local folder."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.conditional = True

    def _path(self, name: str) -> str:
        return os.path.join(self.root, inside(name)) if name else self.root

    def read(self, name: str) -> bytes | None:
        """Return the content of a file."""
        try:
            return Path(self._path(name)).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except IsADirectoryError:
            raise DamagedRunError(f"{self._path(name)} is a folder, and a file of the run belongs there") from None

    def write(self, name: str, data: bytes) -> None:
        """Write to a temporary name, sync and rename."""
        path = self._path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        beside = f"{path}.{os.getpid()}{_TEMPORARY}"
        _write_new(beside, data, sync=True)
        os.replace(beside, path)

    def create(self, name: str, data: bytes) -> bool:
        """Write to a temporary name and link, which fails if the name is taken. Without a sync: a power cut only
        repeats work."""
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

    def find(self, name: str) -> VersionedFile | None:
        """Return the content of a file with its hash as the version."""
        content = self.read(name)
        return None if content is None else VersionedFile(content, hashlib.sha256(content).hexdigest())

    def replace(self, name: str, data: bytes, version: str) -> bool:
        """Compare the version, then write. This is not atomic; only a file system without locks needs it."""
        found = self.find(name)
        if found is None or found.version != version:
            return False
        self.write(name, data)
        return True

    def refuses_to_create(self, name: str, data: bytes) -> bool:
        """Return True: a link never replaces a file."""
        return True

    def put(self, source: str, name: str, owner: Owner | None = None) -> None:
        """Rename; across file systems, copy to a temporary name, sync and rename."""
        path = self._path(name)
        try:
            os.replace(source, path)
        except FileNotFoundError:
            if not os.path.exists(source):  # a newer attempt removed it
                raise
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
        """Return the names directly in a folder."""
        try:
            with os.scandir(self._path(folder)) as entries:
                return sorted(e.name + "/" if e.is_dir(follow_symlinks=False) else e.name for e in entries)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the bytes of each file below a folder."""
        root = os.path.join(self._path(folder), "")
        paths = [os.path.join(place, name) for place, _, names in os.walk(root) for name in names]
        return {path.removeprefix(root): os.stat(path).st_size for path in paths if os.path.isfile(path)}

    def exists(self, name: str) -> bool:
        """Return True if there is such a file."""
        return os.path.exists(self._path(name))

    def require_root(self) -> None:
        """Do nothing: local folders are created when they are needed."""

    def make_folder(self, folder: str = "") -> None:
        """Create a folder."""
        os.makedirs(self._path(folder), exist_ok=True)

    def remove(self, name: str) -> None:
        """Remove a file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(name))

    def withdraw(self, name: str, owner: Owner) -> None:
        """Remove a file. The owner cannot be checked here: the caller knows that no newer attempt has begun."""
        self.remove(name)

    def remove_empty(self, folder: str) -> None:
        """Remove a folder if there is nothing in it."""
        with contextlib.suppress(OSError):  # it is not empty, or does not exist
            os.rmdir(self._path(folder))

    def remove_tree(self, folder: str) -> None:
        """Rename, then remove, so that the folder disappears at once for concurrent writers."""
        assert folder, "the root of a store is never removed"
        path = self._path(folder)
        beside = f"{path}.{os.getpid()}{_TEMPORARY}"
        shutil.rmtree(beside, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, beside)
            shutil.rmtree(beside)

    def abort_uploads(self, wanted: Callable[[str], bool]) -> None:
        """Do nothing: a local store has no uploads."""

    def move(self, name: str, new_name: str) -> None:
        """Rename."""
        path = self._path(new_name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.replace(self._path(name), path)

    def sync(self, folder: str = "") -> None:
        """Sync the directory entries of a folder to disk."""
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


class StagedFile(NamedTuple):
    """A finished local file that is to be published."""

    path: str
    """Local path."""
    name: str
    """Name in the store."""
    sha256: str
    """SHA-256 of the file."""


def publish(store: Store, files: Sequence[StagedFile], names: Sequence[str], owner: Owner) -> None:
    """Move the files of a unit here, and remove what an earlier try of the unit left under its other names.

    `names` are all names that files of the unit may have; one that ends in `/` is a folder of files.
    """
    for file in files:
        store.put(file.path, file.name, owner._replace(sha256=file.sha256))
    published = {file.name for file in files}
    for name in names:
        there = [f"{name}{file}" for file in store.sizes(name)] if name.endswith("/") else [name]
        left = [found for found in there if found not in published]
        for found in left:
            store.withdraw(found, owner)
        for folder in sorted({name.rstrip("/"), *_folders(left)} if name.endswith("/") else (), reverse=True):
            store.remove_empty(folder)
    for folder in sorted(_folders(published)):
        store.sync(folder)


def _folders(names: Iterable[str]) -> set[str]:
    """Return all folders on the way to files."""
    split = [name.split("/") for name in names]
    return {"/".join(parts[:end]) for parts in split for end in range(1, len(parts))}


def remove_files(store: Store, names: Iterable[str]) -> None:
    """Remove files of units, and the folders that are empty then."""
    names = list(names)
    for name in names:
        store.remove(name)
    for folder in sorted(_folders(names), reverse=True):
        store.remove_empty(folder)


def remove_emptied(paths: Iterable[str], below: str) -> None:
    """Remove the local folders between `below` and files that were moved away. A folder that holds anything stays."""
    folders = {folder for folder in _folders(paths) if folder.startswith(os.path.join(below, ""))}
    for folder in sorted(folders, reverse=True):
        with contextlib.suppress(OSError):  # it is not empty
            os.rmdir(folder)


def remove_listed(store: Store, name: str) -> None:
    """Remove a file or folder, given its name as returned by `names`."""
    if name.endswith("/"):
        store.remove_tree(name.rstrip("/"))
    else:
        store.remove(name)


def is_temporary(name: str) -> bool:
    """Return True for a file that is being written before its rename, or a folder that is being removed."""
    return name.rstrip("/").endswith(_TEMPORARY)
