# SPDX-License-Identifier: Apache-2.0
"""The bytes of a packed file from front to back, with a look ahead."""

from __future__ import annotations

from typing import BinaryIO

_READ_BYTES = 2**20


class Feed:
    """Reads a file in large steps, gives bytes in small ones, and knows where it is."""

    def __init__(self, opened: BinaryIO, position: int = 0) -> None:
        """`opened` stands at byte `position`."""
        self.position = position
        self._opened = opened
        self._held = b""
        self._used = 0

    def peek(self, count: int) -> bytes:
        """The next `count` bytes, fewer at the end of the file; they stay unread."""
        while len(self._held) - self._used < count:
            more = self._opened.read(_READ_BYTES)
            if not more:
                break
            self._held, self._used = self._held[self._used :] + more, 0
        return self._held[self._used : self._used + count]

    def take(self, count: int) -> bytes:
        """The next `count` bytes, fewer at the end of the file."""
        taken = self.peek(count)
        self.position += len(taken)
        self._used += len(taken)
        return taken

    def give_back(self, count: int) -> None:
        """The last `count` bytes of what was just taken are unread again."""
        self.position -= count
        self._used -= count

    def go_to(self, position: int) -> None:
        """Go on from another place."""
        self._opened.seek(position)
        self.position, self._held, self._used = position, b"", 0
