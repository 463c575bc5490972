# SPDX-License-Identifier: Apache-2.0
"""Places of documents by hash: of their ids, or of values. The same on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from thresher.core.records.record_ids import RecordIds, Rows

_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = np.uint64(0x9E3779B97F4A7C15)


def hash_ids(ids: RecordIds, seed: int) -> Rows:
    """Return a hash of each id and the seed."""
    of_sources = np.array([_text_hash(f"{seed}\n{prefix}") for prefix, _ in ids.sources], dtype=np.uint64)
    numbers = ids.positions.astype(np.uint64) * _STEP + of_sources[ids.which]
    if ids.suffixes is not None:
        numbers ^= np.array([_text_hash(suffix) for suffix in ids.suffixes], dtype=np.uint64)
    return as_places(mixed(numbers))


def hash_texts(texts: Sequence[str]) -> Rows:
    """Return a hash of each text."""
    return as_places(np.array([_text_hash(text) for text in texts], dtype=np.uint64))


def as_places(hashes: npt.NDArray[np.uint64]) -> Rows:
    """Return hashes as places."""
    places: Rows = (hashes >> np.uint64(1)).astype(np.int64)
    return places


def _text_hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return numbers whose bits all depend on all bits of the given ones (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        numbers = (numbers ^ (numbers >> np.uint64(30))) * _MULTIPLIERS[0]
        numbers = (numbers ^ (numbers >> np.uint64(27))) * _MULTIPLIERS[1]
        return numbers ^ (numbers >> np.uint64(31))
