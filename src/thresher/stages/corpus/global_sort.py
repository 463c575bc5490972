# SPDX-License-Identifier: Apache-2.0
"""Global sort: all documents of the corpus in the order of a column."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.sizes import parse_size
from thresher.errors import UsageError
from thresher.stages.corpus.shuffle import BLOCKSIZE, ShuffleStage

if TYPE_CHECKING:
    from thresher.core.documents.batch import DocumentBatch
    from thresher.stages.corpus.place_ranges import Places

_WIDTH = 64
_NUMBER, _TEXT, _MISSING = b"\x01", b"\x02", b"\xff" * _WIDTH


class GlobalSort(ShuffleStage):
    """Sort all documents of the corpus by a column of numbers or texts; equal ones stay in input order."""

    place_type = f"S{_WIDTH}"

    def __init__(self, by: str, descending: bool = False, blocksize: int | str = BLOCKSIZE) -> None:
        """`by`: the column. Numbers come before texts, which are compared by their first 63 bytes, and documents
        without a value come last.
        `descending`: the largest values first.
        `blocksize`: approximate size of an output file.
        """
        if not isinstance(by, str) or not by:
            raise UsageError(f"GlobalSort.by: {by!r} is not the name of a column")
        self.by = by
        self.descending = descending
        self.blocksize = parse_size(blocksize, "GlobalSort.blocksize")

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column."""
        return [], [self.by]

    def places(self, batch: DocumentBatch) -> Places:
        """Return byte strings in the order of the values."""
        import numpy as np

        keys = [_key(value) for value in batch.values(self.by)]
        if self.descending:
            keys = [key if key == _MISSING else key.ljust(_WIDTH, b"\0").translate(_INVERTED) for key in keys]
        return np.array(keys, dtype=self.place_type)


_INVERTED = bytes(255 - number for number in range(256))


def _key(value: Any) -> bytes:
    """Return a byte string that grows with the value."""
    if isinstance(value, str):
        return (_TEXT + value.encode("utf-8", "surrogatepass"))[:_WIDTH]
    if isinstance(value, bool | int | float) and value == value:
        try:
            number = float(value)
        except OverflowError:
            number = float("inf") if value > 0 else float("-inf")
        bits = int(struct.unpack(">Q", struct.pack(">d", number + 0.0))[0])
        ordered = bits ^ (2**64 - 1) if bits >> 63 else bits | 1 << 63
        return _NUMBER + ordered.to_bytes(8, "big")
    return _MISSING
