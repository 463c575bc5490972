# SPDX-License-Identifier: Apache-2.0
"""Writers whose units are several files: a pair of files, and a folder with a file for each record."""

from __future__ import annotations

import hashlib
import os
import shutil
from typing import Any

from thresher import DocumentBatch
from thresher.core.source import FileFacts
from thresher.core.stage import SinkStage
from thresher.core.task import FileGroupTask
from thresher.stages.io.file_writer import LocalFile


class PairFiles:
    """The records as JSON lines, and beside them the length of each."""

    def __init__(self, path: str) -> None:
        self._files = {suffix: LocalFile(f"{path}{suffix}") for suffix in (".data", ".index")}
        self._records = 0

    def write(self, batch: DocumentBatch) -> None:
        for line in batch.json_lines():
            self._files[".data"].append(bytes(line) + b"\n")
            self._files[".index"].append(b"%d\n" % len(line))
        self._records += len(batch)

    def close(self) -> list[FileFacts]:
        data, index = (file.close(self._records) for file in self._files.values())
        return [
            FileFacts(data.nbytes, data.records, data.sha256, suffix=".data"),
            FileFacts(index.nbytes, 0, index.sha256, suffix=".index"),
        ]

    def abort(self) -> None:
        for file in self._files.values():
            file.abort()


class Pairs(SinkStage[DocumentBatch, FileGroupTask]):
    """Writes two files per unit."""

    name = "pairs"

    def __init__(self, path: str, mode: str = "error", storage_options: dict[str, Any] | None = None) -> None:
        self.path, self.mode, self.storage_options = path, mode, storage_options

    def extension(self) -> str:
        return ""

    def suffixes(self) -> tuple[str, ...]:
        return (".data", ".index")

    def open_writer(self, local_path: str) -> PairFiles:
        return PairFiles(local_path)


class FolderOfFiles:
    """A file for each record."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._facts: list[FileFacts] = []
        os.makedirs(path)

    def write(self, batch: DocumentBatch) -> None:
        for line in batch.json_lines():
            suffix = f"/{len(self._facts) % 2}/{len(self._facts)}.txt"
            os.makedirs(os.path.dirname(self._path + suffix), exist_ok=True)
            file = LocalFile(self._path + suffix)
            file.append(bytes(line))
            done = file.close(1)
            self._facts.append(FileFacts(done.nbytes, 1, done.sha256, suffix=suffix))

    def close(self) -> list[FileFacts]:
        return self._facts

    def abort(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


class Folders(Pairs):
    """Writes a folder per unit."""

    name = "folders"

    def suffixes(self) -> tuple[str, ...]:
        return ("/",)

    def open_writer(self, local_path: str) -> Any:
        return FolderOfFiles(local_path)


WRITERS = {"pairs": Pairs, "folders": Folders}


def written(files: dict[str, bytes]) -> list[bytes]:
    """The records in output files, by their relative paths; sorted."""
    data = {name: content for name, content in files.items() if not name.startswith(("_", "."))}
    for name in data:
        if name.endswith(".data"):
            lengths = b"".join(b"%d\n" % len(line) for line in data[name].splitlines())
            assert data[name.replace(".data", ".index")] == lengths
    found = [line for name in data if name.endswith(".data") for line in data[name].splitlines()]
    return sorted(found + [content for name, content in data.items() if name.endswith(".txt")])


def digest(content: bytes) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(content).hexdigest()
