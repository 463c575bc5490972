# SPDX-License-Identifier: Apache-2.0
"""A folder behind a URL. An object is there complete or not at all; there is nothing to sync and nothing to rename."""

from __future__ import annotations

import os
from typing import Any

from thresher.core.filesystem import url_filesystem


class UrlStore:
    """A folder behind a URL that fsspec knows."""

    def __init__(self, root: str, storage_options: dict[str, Any]) -> None:
        self.root = root.rstrip("/")
        self._fs, base = url_filesystem(self.root, storage_options)
        self._base = base.rstrip("/")

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}" if name else self._base

    def read(self, name: str) -> bytes | None:
        """The content of an object."""
        try:
            content: bytes = self._fs.cat_file(self._path(name))
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, data: bytes) -> None:
        """Put an object."""
        self._fs.pipe_file(self._path(name), data)

    def create(self, name: str, data: bytes) -> bool:
        """Put an object if there is none. There is one writer for each unit, so looking first is enough."""
        if self.exists(name):
            return False
        self.write(name, data)
        return True

    def put(self, source: str, name: str) -> None:
        """Upload a file."""
        self._fs.put_file(source, self._path(name))
        os.unlink(source)

    def get(self, name: str, target: str) -> None:
        """Download an object."""
        self._fs.get_file(self._path(name), target)

    def names(self, folder: str = "") -> list[str]:
        """What is directly in a folder."""
        path = self._path(folder).rstrip("/")
        self._fs.invalidate_cache(path)
        try:
            found = self._fs.ls(path, detail=True)
        except FileNotFoundError:
            return []
        names = (
            (str(entry["name"]).rstrip("/").rsplit("/", 1)[-1] + ("/" if entry["type"] == "directory" else ""), entry)
            for entry in found
            if str(entry["name"]).rstrip("/") != path
        )
        return sorted(name for name, _ in names)

    def exists(self, name: str) -> bool:
        """Whether there is such an object."""
        self._fs.invalidate_cache(self._path(name).rsplit("/", 1)[0])
        return bool(self._fs.exists(self._path(name)))

    def make_folder(self, folder: str = "") -> None:
        """Object stores have no folders; where there are some, they are made."""
        self._fs.makedirs(self._path(folder), exist_ok=True)

    def remove(self, name: str) -> None:
        """Remove an object."""
        try:
            self._fs.rm_file(self._path(name))
        except FileNotFoundError:
            return

    def remove_tree(self, folder: str) -> None:
        """Remove all objects below."""
        path = self._path(folder)
        self._fs.invalidate_cache()
        if self._fs.exists(path):
            self._fs.rm(path, recursive=True)

    def move(self, name: str, new_name: str) -> None:
        """Copy and remove; a folder means every object below it."""
        self._fs.invalidate_cache()
        source, target = self._path(name), self._path(new_name)
        for path in self._fs.find(source):
            self._fs.cp_file(path, target + str(path).removeprefix(source))
            self._fs.rm_file(path)

    def sync(self, folder: str = "") -> None:
        """Nothing to do: a complete object stays."""
