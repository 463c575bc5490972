# SPDX-License-Identifier: Apache-2.0
"""Arrow columns of numbers and texts, made of their bytes.

Arrow imports pandas before it converts Python values and NumPy arrays, which takes longer than to deduplicate 100 MB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def arrow_column(values: Any) -> Any:
    """Return a NumPy array as an Arrow array, not-a-number as null; what is one already stays as it is."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    values = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(values.dtype)
    content = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else values
    valid = None
    if values.dtype.kind == "f" and np.isnan(values).any():
        valid = pa.py_buffer(np.packbits(~np.isnan(values), bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(content)])


def arrow_table(columns: Mapping[str, Any]) -> pa.Table:
    """Return columns as a table."""
    return pa.Table.from_arrays([arrow_column(values) for values in columns.values()], names=list(columns))


def arrow_texts(texts: Sequence[str]) -> pa.Array:
    """Return texts as an Arrow array."""
    content = "".join(texts).encode()
    ends = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=ends[1:])
    if ends[-1] != len(content):  # some characters have several bytes
        np.cumsum([len(text.encode()) for text in texts], out=ends[1:])
    return pa.LargeStringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(content))


def numpy_column(column: Any) -> Any:
    """Return a column of numbers, or of true and false, as a NumPy array; nulls are what `arrow_column` made null."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not len(array):
        return np.zeros(0, dtype=array.type.to_pandas_dtype())
    content = array.buffers()[1]
    if pa.types.is_boolean(array.type):
        bits = np.unpackbits(np.frombuffer(content, dtype=np.uint8), bitorder="little")
        return bits[array.offset : array.offset + len(array)].astype(np.bool_)
    dtype = np.dtype(array.type.to_pandas_dtype())
    return np.frombuffer(content, dtype=dtype, count=len(array), offset=array.offset * dtype.itemsize)
