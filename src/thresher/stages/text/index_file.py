# SPDX-License-Identifier: Apache-2.0
"""Indexes of plain numbers in files: made once per machine, mapped into memory by every worker, shared by all of them.

A file is a line of JSON (facts, and where each array is) and then the arrays. It lies in the user's own cache folder
under a name that tells what it was made of, so that a changed list or setting makes a new file. Deleting it is safe.
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
class Index:
    """Named arrays, and facts about them."""

    facts: dict[str, Any]
    """Whatever JSON can hold."""
    arrays: Mapping[str, npt.NDArray[Any]]
    """The arrays by name; those of a file are read-only."""


def cached_index(kind: str, made_of: Any, build: Callable[[], Index]) -> Index:
    """The index that `made_of` (whatever JSON can hold) leads to; it is built unless its file is there."""
    name = hashlib.sha256(json.dumps([_FORMAT, kind, made_of]).encode()).hexdigest()[:32]
    path = os.path.join(cache_folder(), f"{kind}-{name}.index")
    if not os.path.exists(path):
        write_index(path, build())
    return map_index(path)


def write_index(path: str, index: Index) -> None:
    """Write an index so that it is there whole or not at all, also when several processes do it at once."""
    places, offset = {}, 0
    for name, array in index.arrays.items():
        places[name] = [str(array.dtype), len(array), offset]
        offset += -(-array.nbytes // _ALIGNED) * _ALIGNED
    head = json.dumps({"format": _FORMAT, "facts": index.facts, "arrays": places}).encode()
    head += b" " * (-(len(head) + 1) % _ALIGNED) + b"\n"
    descriptor, beside = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".unfinished-")
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(head)
            for array in index.arrays.values():
                opened.write(np.ascontiguousarray(array).data)
                opened.write(b"\0" * (-array.nbytes % _ALIGNED))
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def map_index(path: str) -> Index:
    """The index in a file; its arrays take no memory of their own."""
    with open(path, "rb") as opened:
        head = opened.readline()
    try:
        told = json.loads(head)
        if told["format"] != _FORMAT:
            raise ValueError(f"its format is {told['format']!r}")
        whole = np.memmap(path, dtype=np.uint8, mode="r")
        arrays = {name: _array(whole, len(head), *place) for name, place in told["arrays"].items()}
        return Index(told["facts"], arrays)
    except (ValueError, KeyError, TypeError) as error:
        raise RunFailedError(
            f"{path} is no index that can be read ({error}); delete it, it will be made again"
        ) from error


def _array(whole: npt.NDArray[np.uint8], head: int, dtype: str, length: int, offset: int) -> npt.NDArray[Any]:
    kind = np.dtype(dtype)
    start = head + offset
    part = np.asarray(whole[start : start + length * kind.itemsize])
    return part.view(kind)


def cache_folder() -> str:
    """A folder that belongs to this user alone, for files that can be made again."""
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
    """For machines without a home that can be written to. Others can make such a folder too: whose is it?"""
    folder = os.path.join(tempfile.gettempdir(), f"thresher-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise RunFailedError(f"{folder} is not a folder of this user's own; remove it, or set XDG_CACHE_HOME")
    return folder
