# SPDX-License-Identifier: Apache-2.0
"""Index files of numeric arrays: built once per machine, mapped into memory by every worker, and shared by all of them.

A file is a line of JSON (facts, and the position of each array) followed by the arrays. It is stored in the user's
cache folder under a name derived from its inputs, so that a changed list or setting creates a new file. Deleting it is
safe.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.errors import RunFailedError

_ALIGNED = 64
_FORMAT = "thresher-index-1"


@dataclass(frozen=True)
class ArrayIndex:
    """Named arrays, and facts about them."""

    facts: dict[str, Any]
    """Any JSON-compatible values."""
    arrays: Mapping[str, npt.NDArray[Any]]
    """The arrays by name; those mapped from a file are read-only."""


def cached_index(kind: str, key: Any, build: Callable[[], ArrayIndex]) -> ArrayIndex:
    """Return the index for the JSON-compatible key `key`; build it if its file does not exist."""
    name = hashlib.sha256(json.dumps([_FORMAT, kind, key]).encode()).hexdigest()[:32]
    path = os.path.join(cache_folder(), f"{kind}-{name}.index")
    if not os.path.exists(path):
        write_index(path, build())
    return map_index(path)


def write_index(path: str, index: ArrayIndex) -> None:
    """Write an index atomically, even if several processes do so at once."""
    layouts, offset = {}, 0
    for name, array in index.arrays.items():
        layouts[name] = [str(array.dtype), len(array), offset]
        offset += -(-array.nbytes // _ALIGNED) * _ALIGNED
    first_line = json.dumps({"format": _FORMAT, "facts": index.facts, "arrays": layouts}).encode()
    first_line += b" " * (-(len(first_line) + 1) % _ALIGNED) + b"\n"
    descriptor, beside = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".unfinished-")
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(first_line)
            for array in index.arrays.values():
                opened.write(np.ascontiguousarray(array).data)
                opened.write(b"\0" * (-array.nbytes % _ALIGNED))
            opened.flush()
            os.fsync(opened.fileno())  # a power cut must not leave a name without its contents
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def map_index(path: str) -> ArrayIndex:
    """Map the index of a file into memory."""
    with open(path, "rb") as opened:
        first_line = opened.readline()
    try:
        header = json.loads(first_line)
        if header["format"] != _FORMAT:
            raise ValueError(f"its format is {header['format']!r}")
        whole = np.memmap(path, dtype=np.uint8, mode="r")
        arrays = {name: _array(whole, len(first_line), *layout) for name, layout in header["arrays"].items()}
        return ArrayIndex(header["facts"], arrays)
    except (ValueError, KeyError, TypeError) as error:
        raise RunFailedError(f"{path} is not a valid index ({error}); delete it, and it will be rebuilt") from error


def _array(whole: npt.NDArray[np.uint8], header_bytes: int, dtype: str, length: int, offset: int) -> npt.NDArray[Any]:
    kind = np.dtype(dtype)
    start = header_bytes + offset
    part = np.asarray(whole[start : start + length * kind.itemsize])
    return part.view(kind)


def cache_folder() -> str:
    """Return a private folder of the user for files that can be rebuilt."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(home, "thresher", "indexes")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return _temporary_folder()


def _temporary_folder() -> str:
    """Return a folder for machines without a writable home; refuse one that another user has created."""
    folder = os.path.join(tempfile.gettempdir(), f"thresher-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise RunFailedError(f"{folder} does not belong to this user alone; remove it, or set XDG_CACHE_HOME")
    return folder
