# SPDX-License-Identifier: Apache-2.0
"""Base class of file readers: their parameters, and the listing of files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, ClassVar

from thresher.core.arguments.sizes import parse_size
from thresher.core.documents.batch import DocumentBatch
from thresher.core.files.filesystem import STANDARD_STREAM, FileInfo
from thresher.core.stage import SourceStage
from thresher.credentials import split_urls
from thresher.errors import UsageError
from thresher.stages.io.listing import AcceptedFiles, check_local_paths, find_files


class FileReader(SourceStage[DocumentBatch]):
    """A reader that splits files into units."""

    accepted: ClassVar[AcceptedFiles]
    takes_standard_input: ClassVar[bool] = False
    """True if `-` may be read."""

    def __init__(
        self,
        file_paths: str | list[str],
        files_per_partition: int | None = None,
        blocksize: int | str = "64MB",
        fields: list[str] | None = None,
        limit: int | None = None,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        """The input is not opened before the run starts.

        `file_paths`: a file, a folder (recursive), a glob, or a list of them, local or as URLs.
        `files_per_partition`: the number of whole files per unit, instead of splitting by `blocksize`.
        `blocksize`: bytes of a unit, the piece of input that is committed and resumed.
        `fields`: keep only these fields.
        `limit`: read only the first N records in input order.
        `storage_options`: passed to fsspec for URLs. Credentials in a URL are never written anywhere.
        """
        name = type(self).__name__
        paths = _check_paths(name, file_paths)
        given = [paths] if isinstance(paths, str) else paths
        options = _check_options(name, storage_options)
        # From here on URLs carry no credentials; these are passed in the storage options.
        public, self.storage_options = split_urls(f"{name}.file_paths", given, options, UsageError)
        self.file_paths = public[0] if isinstance(paths, str) else public
        if STANDARD_STREAM in self._paths() and not (self.takes_standard_input and self.reads_standard_input):
            what = (
                "cannot be combined with other paths"
                if self.takes_standard_input
                else "holds JSON lines, which JsonlReader reads"
            )
            raise UsageError(f"{name}.file_paths: {STANDARD_STREAM!r} is standard input, which {what}")
        self.files_per_partition = _check_count(f"{name}.files_per_partition", files_per_partition)
        self.blocksize = parse_size(blocksize, f"{name}.blocksize")
        self.fields = _check_fields(name, fields)
        self.limit = _check_count(f"{name}.limit", limit)

    @property
    def reads_standard_input(self) -> bool:
        """Return True if `-` is read instead of a path."""
        return self._paths() == [STANDARD_STREAM]

    def _paths(self) -> list[str]:
        return [self.file_paths] if isinstance(self.file_paths, str) else self.file_paths

    def input_roots(self) -> list[str]:
        """Return the given paths, except globs, which select files themselves."""
        return [path for path in self._paths() if path != STANDARD_STREAM and not any(c in path for c in "*?[")]

    def check_before_run(self) -> list[str]:
        """Refuse missing local paths; URLs are checked when their files are listed."""
        if self.reads_standard_input:
            from thresher.stages.io.jsonl.standard_input import check_standard_input

            check_standard_input()
        check_local_paths([path for path in self._paths() if path != STANDARD_STREAM])
        return []

    def known_columns(self) -> list[str] | None:
        """Return the `fields`, if given: there are no other columns."""
        return self.fields

    def files(self) -> Iterator[FileInfo]:
        """Return all files to read, in input order."""
        return find_files(self.file_paths, self.accepted, self.storage_options)


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
    raise UsageError(
        f"{name}.storage_options: the value (not shown) is not a dict; give what fsspec takes, such as {{'key': …}}"
    )
