# SPDX-License-Identifier: Apache-2.0
"""Token ids of many texts, one list for each, in two arrays: from Arrow columns, to padded matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Rows = npt.NDArray[np.int64]
    import pyarrow as pa


@dataclass(frozen=True)
class TokenLists:
    """The token ids of texts."""

    values: npt.NDArray[Any]
    """The ids of all texts, one behind the other."""
    starts: Rows
    """The place of the first id of each text."""
    lengths: Rows
    """The number of ids of each text."""

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> TokenLists:
        """Return lists of numbers."""
        import numpy as np

        lengths = np.array([len(one) for one in lists], dtype=np.int64)
        flat = [token for one in lists for token in one]
        return cls(np.array(flat, dtype=np.int64), np.cumsum(lengths) - lengths, lengths)

    @classmethod
    def of_columns(cls, columns: Sequence[pa.ChunkedArray]) -> TokenLists:
        """Return the lists of Arrow columns, those of the first column first. They may hold no nulls."""
        import numpy as np

        chunks = [chunk for column in columns for chunk in column.chunks]
        values, starts, lengths, before = [], [], [], 0
        for chunk in chunks:
            offsets = chunk.offsets.to_numpy().astype(np.int64)
            part = chunk.values.to_numpy(zero_copy_only=False)[offsets[0] : offsets[-1]]
            values.append(part)
            starts.append(offsets[:-1] - offsets[0] + before)
            lengths.append(np.diff(offsets))
            before += len(part)
        empty = np.zeros(0, dtype=np.int64)
        return cls(*(np.concatenate(parts) if parts else empty for parts in (values, starts, lengths)))

    def padded(self, rows: Rows, pad_id: int, *, left: bool = False) -> tuple[Rows, Rows]:
        """Return the ids of some texts as a matrix that is as wide as the longest of them, and the mask of its cells
        that hold ids. `left`: the padding stands before the ids."""
        import numpy as np

        lengths = self.lengths[rows]
        width = max(1, int(lengths.max(initial=0)))
        places = np.arange(width, dtype=np.int64)
        mask = places >= width - lengths[:, None] if left else places < lengths[:, None]
        first = (self.starts[rows] - (width - lengths if left else 0))[:, None]
        ids = np.full(mask.shape, pad_id, dtype=np.int64)
        ids[mask] = self.values[(first + places)[mask]]
        return ids, mask.astype(np.int64)
