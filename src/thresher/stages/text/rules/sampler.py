# SPDX-License-Identifier: Apache-2.0
"""Reproducible random sample of the records."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from thresher.core.documents.batch import DocumentBatch
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.core.documents.records import RecordIds


class SamplerFilter(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Keep a random sample of the records; it depends on record ids and a seed, so every run keeps the same ones.

    Each record has a number from 0 to 1 that is derived from its id and the seed, and is kept if the number is below
    `rate`: a larger rate keeps all records that a smaller one keeps. The number is the score of a dropped record.
    """

    def __init__(self, rate: float = 0.5, seed: int = 0) -> None:
        """`rate` is the share to keep, from 0 to 1; another `seed` selects another sample."""
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise UsageError(f"SamplerFilter.rate: {rate!r} is not a share from 0 to 1")
        self.rate = rate
        self.seed = seed

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Drop the records outside the sample."""
        import numpy as np

        numbers = draws(_ids_of(task), self.seed)
        dropped = np.flatnonzero(numbers >= self.rate)
        if not len(dropped):
            return task
        return task.drop(dropped, "SamplerFilter", numbers[dropped].tolist(), {"rate": self.rate})


def _ids_of(batch: DocumentBatch) -> RecordIds:
    """Return the ids of the records; records that user code has just created are named after their task."""
    import numpy as np

    from thresher.core.documents.records import RecordIds

    if batch.ids is not None:
        return batch.ids
    return RecordIds(((f"{batch.task_id}:", ""),), np.arange(batch.num_items, dtype=np.int64))


def draws(ids: RecordIds, seed: int) -> npt.NDArray[np.float64]:
    """Return a uniformly distributed number from 0 to 1 for each record, derived from its id and the seed."""
    import numpy as np

    if ids.suffixes is None:
        keys = np.array([_key(prefix, "", seed) for prefix, _ in ids.sources], dtype=np.uint64)[ids.which]
    else:
        prefixes = [ids.sources[source][0] for source in ids.which.tolist()]
        pairs = zip(prefixes, ids.suffixes, strict=True)
        keys = np.array([_key(prefix, suffix, seed) for prefix, suffix in pairs], dtype=np.uint64)
    return (_mixed(_mixed(ids.positions.astype(np.uint64)) ^ keys) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _key(prefix: str, suffix: str, seed: int) -> int:
    name = f"{seed}\n{prefix}\n{suffix}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Apply the final steps of SplitMix64: every bit of the result depends on every bit of the value."""
    import numpy as np

    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
