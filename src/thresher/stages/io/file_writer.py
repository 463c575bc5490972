# SPDX-License-Identifier: Apache-2.0
"""What all writers of files have in common: the settings, checked before anything runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from thresher.core.batch import DocumentBatch
from thresher.core.sizes import parse_size
from thresher.core.stage import SinkStage
from thresher.core.task import FileGroupTask
from thresher.errors import UsageError, nearest

MODES = ("error", "overwrite", "append")


class FileWriter(SinkStage[DocumentBatch, FileGroupTask]):
    """A writer that makes one file per unit in a folder. Nothing is opened or made before the run."""

    def __init__(
        self,
        path: str,
        fields: list[str] | None = None,
        compression: str | None = None,
        target_file_size: int | str | None = None,
        mode: str = "error",
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        kind = type(self).__name__
        self.path = _checked_path(kind, path)
        self.fields = _checked_fields(kind, fields)
        self.compression = _checked_compression(kind, compression, self.legal_compressions())
        self.target_file_size = (
            None if target_file_size is None else parse_size(target_file_size, f"{kind}.target_file_size")
        )
        if mode not in MODES:
            raise UsageError(f"{kind}.mode: {mode!r} is not one of {', '.join(MODES)}.{nearest(str(mode), MODES)}")
        self.mode = mode
        if storage_options is not None and not isinstance(storage_options, dict):
            raise UsageError(f"{kind}.storage_options: {storage_options!r} is not a mapping of names to values")
        self.storage_options = storage_options

    @classmethod
    def legal_compressions(cls) -> Sequence[str]:
        """The compressions that this writer knows."""
        raise TypeError(f"{cls.__name__} must define legal_compressions()")


def _checked_path(kind: str, path: Any) -> str:
    try:
        text = os.fspath(path)
    except TypeError:
        raise UsageError(f"{kind}.path: {path!r} is not a path; give a folder or a URL") from None
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"{kind}.path: {path!r} is not a path; give a folder or a URL")
    return text


def _checked_fields(kind: str, fields: Any) -> list[str] | None:
    if fields is None:
        return None
    if isinstance(fields, str) or not isinstance(fields, Iterable):
        raise UsageError(f"{kind}.fields: {fields!r} is not a list of names; write [{fields!r}] for one field")
    names = list(fields)
    if not names or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{kind}.fields: {fields!r} must hold at least one name, and names are texts")
    return names


def _checked_compression(kind: str, compression: Any, legal: Sequence[str]) -> str | None:
    if compression is None:
        return None
    if compression not in legal:
        raise UsageError(
            f"{kind}.compression: {compression!r} is not one of None, {', '.join(legal)}."
            + nearest(str(compression), legal)
        )
    return str(compression)
