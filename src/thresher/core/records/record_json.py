# SPDX-License-Identifier: Apache-2.0
"""Records as JSON objects for the quarantine file and `dropped_to`, and back.

JSON has neither bytes nor arrays. Bytes become `{"$bytes": base64}`, arrays
`{"$array": base64, "dtype": ..., "shape": ...}` and floats that are no numbers `{"$float": "nan"}`, so that a record
that is retried is the one that failed.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

_BYTES, _ARRAY, _FLOAT = "$bytes", "$array", "$float"


def encode_record(record: Mapping[str, Any]) -> bytes:
    """Return a record as a JSON object on one line."""
    return json.dumps(_plain(record)).encode("ascii")


def decode_record(line: bytes) -> dict[str, Any]:
    """Return the record that `encode_record` described."""
    record: dict[str, Any] = json.loads(line, object_hook=_restored)
    return record


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: str(float(value))}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return _plain_array(value)
    try:
        return {_BYTES: base64.b64encode(memoryview(value).cast("B")).decode("ascii")}
    except TypeError:
        return str(value)


def _plain_array(value: Any) -> Any:
    """Return a number of another library by its value, and an array by its bytes."""
    import numpy as np

    array = np.asarray(value)
    if array.dtype.kind not in "biufc" or (not array.ndim and array.dtype.kind != "c"):
        return _plain(array.tolist())
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return {_ARRAY: data, "dtype": array.dtype.str, "shape": list(array.shape)}


def _restored(found: dict[str, Any]) -> Any:
    if found.keys() == {_BYTES}:
        return base64.b64decode(found[_BYTES])
    if found.keys() == {_FLOAT}:
        return float(found[_FLOAT])
    if found.keys() == {_ARRAY, "dtype", "shape"}:
        import numpy as np

        return np.frombuffer(base64.b64decode(found[_ARRAY]), dtype=found["dtype"]).reshape(found["shape"]).copy()
    return found
