# SPDX-License-Identifier: Apache-2.0
"""Whether a file of JSON lines holds a line, byte for byte."""

from __future__ import annotations

import contextlib

from thresher.core.filesystem import StorageOptions, open_read
from thresher.errors import InputError
from thresher.stages.io.content import SNIFF_BYTES, content_of
from thresher.stages.io.count_records import pieces_of
from thresher.stages.io.damage import DamagedInputError


def find_line(path: str, line: bytes, storage_options: StorageOptions = None) -> int | None:
    """The number of the line, counted from 1; `None` if it is not there, or the file cannot be read as lines."""
    try:
        with contextlib.closing(open_read(path, 0, storage_options)) as opened:
            head = opened.read(SNIFF_BYTES)
            opened.seek(0)
            content = content_of(head, path)
            if content.unreadable:
                return None
            number, rest = 0, b""
            for piece in pieces_of(opened, content):
                *lines, rest = (rest + piece).split(b"\n")
                if line in lines:
                    return number + lines.index(line) + 1
                number += len(lines)
    except (InputError, DamagedInputError):
        return None
    return None
