# SPDX-License-Identifier: Apache-2.0
"""Token ids of many texts, one list for each, in two arrays: from and to Arrow columns, to padded matrices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TokenLists:
    """The token ids of texts."""

    ids: npt.NDArray[Any]
    """The ids of all texts, one behind the other."""
    offsets: Rows
    """Where each text begins in `ids`, and where the last one ends."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Rows:
        """Return the number of ids of each text."""
        return self.offsets[1:] - self.offsets[:-1]

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]], kind: npt.DTypeLike = "int64") -> TokenLists:
        """Return lists of numbers, which are of this type."""
        import numpy as np

        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        ids = np.fromiter(itertools.chain.from_iterable(lists), kind, int(lengths.sum()))
        return cls(ids, _offsets(lengths))

    @classmethod
    def of_column(cls, column: pa.ChunkedArray) -> TokenLists:
        """Return the lists of an Arrow column of lists of integers. It may hold no nulls."""
        import numpy as np
        import pyarrow as pa

        parts = []
        for chunk in column.chunks or [pa.array([], column.type)]:
            offsets = np.asarray(chunk.offsets).astype(np.int64)
            parts.append(cls(np.asarray(chunk.values[offsets[0] : offsets[-1]]), offsets - offsets[0]))
        return cls.joined(parts)

    @classmethod
    def joined(cls, parts: Sequence[TokenLists]) -> TokenLists:
        """Return the lists of all parts."""
        import numpy as np

        if len(parts) < 2:
            return parts[0] if parts else cls.of([])
        return cls(np.concatenate([part.ids for part in parts]), _offsets(np.concatenate([p.lengths for p in parts])))

    def copied(self, start: int, end: int) -> TokenLists:
        """Return the lists from `start` to `end` in memory of their own."""
        offsets = self.offsets[start : end + 1]
        return TokenLists(self.ids[offsets[0] : offsets[-1]].copy(), offsets - offsets[0])

    def as_type(self, kind: npt.DTypeLike) -> TokenLists:
        """Return the lists with ids of this type."""
        return TokenLists(self.ids.astype(kind, copy=False), self.offsets)

    def followed_by(self, end_id: int) -> TokenLists:
        """Return the lists with `end_id` after each of them."""
        import numpy as np

        ends = np.full(len(self), end_id, dtype=self.ids.dtype)
        return TokenLists(np.insert(self.ids, self.offsets[1:], ends), self.offsets + np.arange(len(self) + 1))

    def to_arrow(self) -> pa.ListArray:
        """Return the lists as an Arrow array."""
        import pyarrow as pa

        if len(self.ids) >= 2**31:
            raise ValueError(
                f"{len(self.ids):,} token ids of a batch; 2,147,483,647 fit, so take fewer texts at a time"
            )
        return pa.ListArray.from_arrays(pa.array(self.offsets.astype("int32")), pa.array(self.ids))

    def padded(self, rows: Rows, pad_id: int, *, left: bool = False) -> tuple[Rows, Rows]:
        """Return the ids of some texts as a matrix that is as wide as the longest of them, and the mask of its cells
        that hold ids. `left`: the padding stands before the ids."""
        import numpy as np

        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        width = max(1, int(lengths.max(initial=0)))
        places = np.arange(width, dtype=np.int64)
        mask = places >= width - lengths[:, None] if left else places < lengths[:, None]
        first = (starts - (width - lengths if left else 0))[:, None]
        ids = np.full(mask.shape, pad_id, dtype=np.int64)
        ids[mask] = self.ids[(first + places)[mask]]
        return ids, mask.astype(np.int64)


def _offsets(lengths: Rows) -> Rows:
    import numpy as np

    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
