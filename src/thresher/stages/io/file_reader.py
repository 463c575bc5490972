# SPDX-License-Identifier: Apache-2.0
"""What readers of files have in common: their parameters, and the listing of files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, ClassVar

from thresher.core.batch import DocumentBatch
from thresher.core.filesystem import FileInfo
from thresher.core.sizes import parse_size
from thresher.core.stage import SourceStage
from thresher.errors import UsageError
from thresher.stages.io.listing import Wanted, find_files


class FileReader(SourceStage[DocumentBatch]):
    """A reader of files that cuts them into units."""

    wanted: ClassVar[Wanted]

    def __init__(
        self,
        file_paths: str | list[str],
        files_per_partition: int | None = None,
        blocksize: int | str = "64MB",
        fields: list[str] | None = None,
        limit: int | None = None,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        """Nothing is looked at before the run begins.

        `file_paths`: a file, a folder (recursive), a glob, or a list of them, local or as URLs.
        `files_per_partition`: exactly so many whole files per unit, instead of cutting by `blocksize`.
        `blocksize`: how many bytes make a unit, the piece of input that is committed and resumed.
        `fields`: keep only these. `limit`: the first N records in input order.
        `storage_options` are given to fsspec for URLs.
        """
        name = type(self).__name__
        self.file_paths = _check_paths(name, file_paths)
        self.files_per_partition = _check_count(f"{name}.files_per_partition", files_per_partition)
        self.blocksize = parse_size(blocksize, f"{name}.blocksize")
        self.fields = _check_fields(name, fields)
        self.limit = _check_count(f"{name}.limit", limit)
        self.storage_options = _check_options(name, storage_options)

    def input_roots(self) -> list[str]:
        """The paths as given; a glob says itself what it takes and what not."""
        paths = [self.file_paths] if isinstance(self.file_paths, str) else self.file_paths
        return [path for path in paths if not any(c in path for c in "*?[")]

    def known_columns(self) -> list[str] | None:
        """The fields that are kept, where they are named: there are no others."""
        return self.fields

    def files(self) -> Iterator[FileInfo]:
        """All files to read, in input order."""
        return find_files(self.file_paths, self.wanted, self.storage_options)


def _check_paths(name: str, given: Any) -> str | list[str]:
    if isinstance(given, str | os.PathLike):
        given = os.fspath(given)
        if given and isinstance(given, str):
            return given
    elif isinstance(given, list | tuple) and given:
        paths = [os.fspath(path) if isinstance(path, os.PathLike) else path for path in given]
        if all(isinstance(path, str) and path for path in paths):
            return paths
    raise UsageError(f"{name}.file_paths: {given!r} is not a path; give a file, a folder, a glob, or a list of them")


def _check_count(what: str, given: Any) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 1):
        return given
    raise UsageError(f"{what}: {given!r} is not a whole number of 1 or more; leave it out for no limit")


def _check_fields(name: str, given: Any) -> list[str] | None:
    if given is None:
        return None
    if isinstance(given, list | tuple) and given and all(isinstance(field, str) for field in given):
        return list(dict.fromkeys(given))
    raise UsageError(f"{name}.fields: {given!r} is not a list of field names; give one such as ['id', 'text']")


def _check_options(name: str, given: Any) -> dict[str, Any] | None:
    if given is None or isinstance(given, dict):
        return given
    raise UsageError(f"{name}.storage_options: {given!r} is not a dict; give what fsspec takes, such as {{'key': …}}")
