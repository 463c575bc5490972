# SPDX-License-Identifier: Apache-2.0
"""A folder behind a URL. An object is there complete or not at all; there is nothing to sync and nothing to rename."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any, TypeVar

from thresher.core.filesystem import url_filesystem
from thresher.errors import OutputRefusedError
from thresher.ledger.patience import meaning, repeated
from thresher.ledger.store import Found, Owner, inside

T = TypeVar("T")
_CHUNK = 2**20


class UrlStore:
    """A folder behind a URL that fsspec knows; what goes beyond fsspec is in the classes below this one."""

    def __init__(self, root: str, storage_options: dict[str, Any], conditional: bool = True) -> None:
        self.root = root.rstrip("/")
        self.conditional = conditional
        self._fs, base = url_filesystem(self.root, storage_options)
        self._base = base.rstrip("/")

    def _path(self, name: str) -> str:
        return f"{self._base}/{inside(name)}" if name else self._base

    def _ask(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return repeated(lambda: call(*args, **kwargs))

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, name: str) -> bytes | None:
        """The content of an object."""
        try:
            content: bytes = self._ask(self._fs.cat_file, self._path(name))
        except FileNotFoundError:
            return None
        return content

    def find(self, name: str) -> Found | None:
        """The content of an object with a version that changes when it is put again."""
        content = self.read(name)
        return None if content is None else Found(content, hashlib.sha256(content).hexdigest())

    def get(self, name: str, target: str) -> None:
        """Download an object."""
        self._ask(self._fs.get_file, self._path(name), target)

    def names(self, folder: str = "") -> list[str]:
        """What is directly in a folder."""
        path = self._path(folder).rstrip("/")
        self._fs.invalidate_cache(path)
        try:
            found = self._ask(self._fs.ls, path, detail=True)
        except FileNotFoundError:
            return []
        return sorted(
            str(entry["name"]).rstrip("/").rsplit("/", 1)[-1] + ("/" if entry["type"] == "directory" else "")
            for entry in found
            if str(entry["name"]).rstrip("/") != path
        )

    def exists(self, name: str) -> bool:
        """Whether there is such an object."""
        self._fs.invalidate_cache(self._path(name).rsplit("/", 1)[0])
        return bool(self._ask(self._fs.exists, self._path(name)))

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, name: str, data: bytes) -> None:
        """Put an object."""
        self._ask(self._fs.pipe_file, self._path(name), data)

    def create(self, name: str, data: bytes) -> bool:
        """Put an object if there is none, or if it is this one: then an earlier answer was lost."""
        if self.conditional:
            try:
                self._ask(self._create_once, name, data)
            except Exception as error:
                if meaning(error) == "exists":
                    return self.read(name) == data
                if meaning(error) != "unsupported":
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
        except TypeError as error:  # a file system that knows no `mode`
            raise NotImplementedError(f"{self.root}: no conditional put") from error

    def replace(self, name: str, data: bytes, version: str) -> bool:
        """Put an object in place of the version that `find` gave. Here somebody may come between look and put."""
        found = self.find(name)
        if found is None or found.version != version:
            return found is not None and found.data == data
        self.write(name, data)
        return True

    def refuses_to_create(self, name: str, data: bytes) -> bool:
        """Whether the store heeds conditions: `name` is there with this content, so it must not be created again."""
        if self.conditional:
            try:
                self._ask(self._create_once, name, data)
            except Exception as error:
                self.conditional = meaning(error) == "exists"
            else:
                self.conditional = False
        return self.conditional

    def put(self, source: str, name: str, owner: Owner | None = None) -> None:
        """Upload a file; with `owner` never over what is not his."""
        if owner is not None and self.conditional:
            self._publish(source, name, owner)
        else:
            self._ask(self._fs.put_file, source, self._path(name))
        os.unlink(source)

    def _publish(self, source: str, name: str, owner: Owner) -> None:
        """Create only. Nothing says whose an object is that is there: it is ours if it has our bytes."""
        try:
            self._ask(self._fs.put_file, source, self._path(name), mode="create")
        except Exception as error:
            said = meaning(error)
            if said == "unsupported" or isinstance(error, TypeError):
                self._ask(self._fs.put_file, source, self._path(name))
            elif said != "exists":
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

        return self._ask(read)

    # -- folders and removing -----------------------------------------------------------------------------------------

    def make_folder(self, folder: str = "") -> None:
        """Object stores have no folders; where there are some, they are made."""
        self._ask(self._fs.makedirs, self._path(folder), exist_ok=True)

    def remove(self, name: str) -> None:
        """Remove an object."""
        try:
            self._ask(self._fs.rm_file, self._path(name))
        except FileNotFoundError:
            return

    def withdraw(self, name: str, owner: Owner) -> None:
        """Remove an object; nothing says here whose it is."""
        self.remove(name)

    def remove_tree(self, folder: str) -> None:
        """Remove all objects below."""
        path = self._path(folder)
        self._fs.invalidate_cache()
        if self._ask(self._fs.exists, path):
            self._ask(self._fs.rm, path, recursive=True)

    def move(self, name: str, new_name: str) -> None:
        """Copy and remove; a folder means every object below it."""
        self._fs.invalidate_cache()
        source, target = self._path(name), self._path(new_name)
        for path in self._ask(self._fs.find, source):
            self._ask(self._fs.cp_file, path, target + str(path).removeprefix(source))
            self._ask(self._fs.rm_file, path)

    def abort_uploads(self, wanted: Callable[[str], bool]) -> None:
        """Nothing is known here of uploads that were begun and never finished."""

    def sync(self, folder: str = "") -> None:
        """Nothing to do: a complete object stays."""


def foreign_object(url: str, whose: str = "that this run did not write") -> OutputRefusedError:
    """The error for a final name that is taken."""
    return OutputRefusedError(
        f"{url}: there is an object {whose}, with other bytes. Nothing was overwritten. Move it away and run the same "
        "command again, or choose another output path"
    )
