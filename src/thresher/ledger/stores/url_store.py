# SPDX-License-Identifier: Apache-2.0
"""A folder behind a URL. An object appears complete or not at all, so there is nothing to sync or rename."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any, TypeVar

from thresher.core.files.filesystem import url_filesystem
from thresher.core.files.url_errors import any_refusal, is_unreachable
from thresher.errors import OutputRefusedError, ThresherError, UsageError
from thresher.ledger.stores.errors import classify, with_backoff
from thresher.ledger.stores.store import Owner, VersionedFile, inside

T = TypeVar("T")
_CHUNK = 2**20
_WITHOUT_BUCKETS = frozenset(
    {
        "http",
        "https",
        "memory",
        "ftp",
        "sftp",
        "ssh",
        "smb",
        "hdfs",
        "arrow_hdfs",
        "webhdfs",
        "webdav",
        "webdavs",
        "dbfs",
        "file",
        "local",
    }
)
"""Schemes whose top-level folder can be created like any other."""


class UrlStore:
    """A folder behind a URL that fsspec knows. Subclasses add what fsspec does not offer."""

    def __init__(self, root: str, storage_options: dict[str, Any], conditional: bool = True) -> None:
        self.root = root.rstrip("/")
        self.conditional = conditional
        self._fs, base = url_filesystem(self.root, storage_options)
        self._base = base.rstrip("/")

    def _path(self, name: str) -> str:
        return f"{self._base}/{inside(name)}" if name else self._base

    def _call(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return with_backoff(lambda: call(*args, **kwargs))

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, name: str) -> bytes | None:
        """Return the content of an object."""
        try:
            content: bytes = self._call(self._fs.cat_file, self._path(name))
        except FileNotFoundError:
            return None
        return content

    def find(self, name: str) -> VersionedFile | None:
        """Return the content of an object with its hash as the version."""
        content = self.read(name)
        return None if content is None else VersionedFile(content, hashlib.sha256(content).hexdigest())

    def get(self, name: str, target: str) -> None:
        """Download an object."""
        self._call(self._fs.get_file, self._path(name), target)

    def names(self, folder: str = "") -> list[str]:
        """Return the names directly in a folder."""
        return sorted(
            name + ("/" if entry["type"] == "directory" else "") for name, entry in self._entries(folder).items()
        )

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the bytes of each object below a folder."""
        root = self._path(folder).rstrip("/") + "/"
        self._fs.invalidate_cache(root.rstrip("/"))
        try:
            found = self._call(self._fs.find, root.rstrip("/"), detail=True)
        except FileNotFoundError:
            return {}
        files = {str(name): entry for name, entry in found.items() if entry["type"] == "file"}
        return {name.removeprefix(root): int(files[name]["size"]) for name in files if name.startswith(root)}

    def _entries(self, folder: str) -> dict[str, Any]:
        path = self._path(folder).rstrip("/")
        self._fs.invalidate_cache(path)
        try:
            found = self._call(self._fs.ls, path, detail=True)
        except FileNotFoundError:
            return {}
        by_path = {str(entry["name"]).rstrip("/"): entry for entry in found}
        return {name.rsplit("/", 1)[-1]: entry for name, entry in by_path.items() if name != path}

    def exists(self, name: str) -> bool:
        """Return True if there is such an object."""
        self._fs.invalidate_cache(self._path(name).rsplit("/", 1)[0])
        return bool(self._call(self._fs.exists, self._path(name)))

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, name: str, data: bytes) -> None:
        """Put an object."""
        self._call(self._fs.pipe_file, self._path(name), data)

    def create(self, name: str, data: bytes) -> bool:
        """Put an object if there is none. An existing one with the same content is accepted: its answer was lost."""
        if self.conditional:
            try:
                self._call(self._create_once, name, data)
            except Exception as error:
                if classify(error) == "exists":
                    return self.read(name) == data
                if classify(error) != "unsupported":
                    raise
                self.conditional = False
        if not self.conditional:
            if self.exists(name):
                return self.read(name) == data
            self.write(name, data)
        return True

    def _create_once(self, name: str, data: bytes) -> None:
        try:
            self._fs.pipe_file(self._path(name), data, mode="create")
        except TypeError as error:  # a file system without `mode`
            raise NotImplementedError(f"{self.root}: no conditional put") from error

    def replace(self, name: str, data: bytes, version: str) -> bool:
        """Put an object in place of the given version. This is not atomic: a concurrent put may come between."""
        found = self.find(name)
        if found is None or found.version != version:
            return found is not None and found.data == data
        self.write(name, data)
        return True

    def refuses_to_create(self, name: str, data: bytes) -> bool:
        """Return True if the store honours conditions: `name` exists with this content, so creating it again must
        fail."""
        if self.conditional:
            try:
                self._call(self._create_once, name, data)
            except Exception as error:
                self.conditional = classify(error) == "exists"
            else:
                self.conditional = False
        return self.conditional

    def put(self, source: str, name: str, owner: Owner | None = None) -> None:
        """Upload a file; with `owner`, never over an object of another owner."""
        if owner is not None and self.conditional:
            self._publish(source, name, owner)
        else:
            self._call(self._fs.put_file, source, self._path(name))
        os.unlink(source)

    def _publish(self, source: str, name: str, owner: Owner) -> None:
        """Create an object. The owner of an existing one is unknown here: it is accepted only if it has the same
        bytes."""
        try:
            self._call(self._fs.put_file, source, self._path(name), mode="create")
        except Exception as error:
            error_class = classify(error)
            if error_class == "unsupported" or isinstance(error, TypeError):
                self._call(self._fs.put_file, source, self._path(name))
            elif error_class != "exists":
                raise
            elif self._sha256(name) != owner.sha256:
                raise foreign_object(f"{self.root}/{name}") from error

    def _sha256(self, name: str) -> str:
        def read() -> str:
            digest = hashlib.sha256()
            with self._fs.open(self._path(name), "rb", block_size=_CHUNK) as opened:
                while chunk := opened.read(_CHUNK):
                    digest.update(chunk)
            return digest.hexdigest()

        return self._call(read)

    # -- folders and removing -----------------------------------------------------------------------------------------

    def require_root(self) -> None:
        """Raise if the bucket does not exist; an unreachable server is not retried."""
        try:
            found = self._call(self._reach_root)
        except ThresherError:
            raise
        except Exception as error:
            raise UsageError(any_refusal(self.root, error)) from error
        if not found:
            raise UsageError(
                f"{self.root}: the bucket {self._bucket_name()!r} does not exist, and Thresher makes no buckets. Check "
                "the name, or make the bucket first"
            )

    def _reach_root(self) -> bool:
        try:
            return self._root_exists()
        except Exception as error:
            if is_unreachable(error):
                raise UsageError(any_refusal(self.root, error)) from error
            raise

    def _bucket_name(self) -> str:
        return self._base.lstrip("/").split("/", 1)[0]

    def _root_exists(self) -> bool:
        if self.root.partition("://")[0].lower() in _WITHOUT_BUCKETS:
            return True
        return bool(self._fs.exists(self._bucket_name()))

    def make_folder(self, folder: str = "") -> None:
        """Create a folder where the file system has folders; object stores have none."""
        self._call(self._fs.makedirs, self._path(folder), exist_ok=True)

    def remove(self, name: str) -> None:
        """Remove an object."""
        try:
            self._call(self._fs.rm_file, self._path(name))
        except FileNotFoundError:
            return

    def withdraw(self, name: str, owner: Owner) -> None:
        """Remove an object; its owner is unknown here."""
        self.remove(name)

    def remove_empty(self, folder: str) -> None:
        """Do nothing: folders are parts of names."""

    def remove_tree(self, folder: str) -> None:
        """Remove all objects below a folder."""
        assert folder, "the root of a store is never removed"
        path = self._path(folder)
        self._fs.invalidate_cache()
        if self._call(self._fs.exists, path):
            self._call(self._fs.rm, path, recursive=True)

    def move(self, name: str, new_name: str) -> None:
        """Copy and remove an object, or every object below a folder."""
        self._fs.invalidate_cache()
        source, target = self._path(name), self._path(new_name)
        for path in self._call(self._fs.find, source):
            self._call(self._fs.cp_file, path, target + str(path).removeprefix(source))
            self._call(self._fs.rm_file, path)

    def abort_uploads(self, wanted: Callable[[str], bool]) -> None:
        """Do nothing: unfinished uploads are unknown here."""

    def sync(self, folder: str = "") -> None:
        """Do nothing: a complete object is durable."""


def foreign_object(url: str, which: str = "that this run did not write") -> OutputRefusedError:
    """Return the error for a final name that is taken."""
    return OutputRefusedError(
        f"{url}: there is an object {which}, with other bytes. Nothing was overwritten. Move it away and run the same "
        "command again, or choose another output path"
    )
