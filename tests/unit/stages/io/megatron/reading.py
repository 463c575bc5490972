# SPDX-License-Identifier: Apache-2.0
"""A reader of indexed data sets that shares nothing with the writer: the published layout, mapped into memory."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}


class IndexedDataset:
    """One pair of files."""

    def __init__(self, prefix: str | Path) -> None:
        index = np.memmap(f"{prefix}.idx", mode="r", dtype=np.uint8)
        assert bytes(index[:9]) == b"MMIDIDX\x00\x00"
        version, code, sequences, documents = struct.unpack("<QBQQ", bytes(index[9:34]))
        assert version == 1
        self.dtype = np.dtype(DTYPES[code])
        self.lengths = np.frombuffer(index, "<i4", sequences, 34)
        self.pointers = np.frombuffer(index, "<i8", sequences, 34 + 4 * sequences)
        self.document_indices = np.frombuffer(index, "<i8", documents, 34 + 12 * sequences)
        assert len(index) == 34 + 12 * sequences + 8 * documents
        assert self.document_indices[0] == 0
        assert self.document_indices[-1] == sequences
        self._bin = np.memmap(f"{prefix}.bin", mode="r", dtype=np.uint8)
        assert len(self._bin) == int(self.lengths.sum(dtype=np.int64)) * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> npt.NDArray[Any]:
        return np.frombuffer(self._bin, self.dtype, int(self.lengths[number]), int(self.pointers[number]))

    def to_lists(self) -> list[list[int]]:
        """All sequences."""
        return [self[number].tolist() for number in range(len(self))]


def read_folder(folder: str | Path) -> list[list[int]]:
    """The sequences of all pairs in a folder, in byte order of their names."""
    prefixes = sorted(path.with_suffix("") for path in Path(folder).glob("*.idx"))
    assert prefixes == sorted(path.with_suffix("") for path in Path(folder).glob("*.bin"))
    return [ids for prefix in prefixes for ids in IndexedDataset(prefix).to_lists()]
