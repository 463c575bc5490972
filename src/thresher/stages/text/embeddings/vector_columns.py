# SPDX-License-Identifier: Apache-2.0
"""Vectors as a column of lists, in single or half precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    pass


Precision = Literal["float32", "float16"]
PRECISIONS = ("float32", "float16")


def vector_column(vectors: Any, precision: str, *, normalize: bool) -> Any:
    """Return an Arrow column with one list for each row; `normalize` scales rows to the length 1."""
    import numpy as np
    import pyarrow as pa

    numbers: Any = np.asarray(vectors, dtype=np.float32)
    if normalize:
        lengths = np.linalg.norm(numbers, axis=1, keepdims=True)
        numbers = numbers / np.where(lengths > 0, lengths, 1)
    flat = np.ascontiguousarray(numbers.astype(precision)).reshape(-1)
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * numbers.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))
