# SPDX-License-Identifier: Apache-2.0
"""Lists in files: one entry per line, plain or compressed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from thresher.core.files.filesystem import file_info, is_url, local_path, open_read
from thresher.errors import InputError, RefusedError
from thresher.stages.io.compression.content import BOM, SNIFF_BYTES, content_of
from thresher.stages.io.damage import DamagedInputError
from thresher.stages.io.finished_files import pieces_of


def missing_files(parameter: str, paths: Iterable[str]) -> list[str]:
    """Return a message for each file that is not there, or at a URL that cannot be read."""
    return [f"{parameter}: {fault}" for path in paths if (fault := _fault_of(path))]


def _fault_of(path: str) -> str:
    if not is_url(path):
        return "" if os.path.isfile(os.path.expanduser(local_path(path))) else f"there is no file {path!r}"
    try:
        file_info(path)
    except RefusedError as error:
        return str(error)
    return ""


def lines_of(parameter: str, path: str) -> Iterator[bytes]:
    """Yield the lines of a file or URL, without line ends; `parameter` is named in errors."""
    with contextlib.closing(open_read(path)) as opened:
        head = opened.read(SNIFF_BYTES)
        opened.seek(0)
        content = content_of(head, path)
        if content.unreadable:
            raise InputError(f"{parameter}: {path!r} holds {content.value}; lines of UTF-8 text are needed")
        rest = b""
        if not content.compressed:
            opened.seek(len(BOM) if head.startswith(BOM) else 0)
        try:
            for piece in pieces_of(opened, content):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield line.removesuffix(b"\r")
        except DamagedInputError as error:
            raise InputError(f"{parameter}: {path!r} is damaged: {error}") from error
        if rest:
            yield rest.removesuffix(b"\r")
