# SPDX-License-Identifier: Apache-2.0
"""Lists in files: one entry per line, plain or packed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from thresher.core.filesystem import open_read
from thresher.errors import InputError
from thresher.stages.io.content import BOM, SNIFF_BYTES, content_of
from thresher.stages.io.count_records import pieces_of
from thresher.stages.io.damage import DamagedInputError


def lines_of(parameter: str, path: str) -> Iterator[bytes]:
    """The lines of a file or URL, without line ends; `parameter` is who asks, for errors."""
    with contextlib.closing(open_read(path)) as opened:
        head = opened.read(SNIFF_BYTES)
        opened.seek(0)
        content = content_of(head, path)
        if content.unreadable:
            raise InputError(f"{parameter}: {path!r} holds {content.value}, and lines of UTF-8 text were needed")
        rest = b""
        if not content.packed:
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
