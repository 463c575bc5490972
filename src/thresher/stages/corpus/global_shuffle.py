# SPDX-License-Identifier: Apache-2.0
"""Global shuffle: all documents of the corpus in a random order that depends on the seed alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.core.arguments.sizes import parse_size
from thresher.stages.corpus.shuffle import BLOCKSIZE, ShuffleStage

if TYPE_CHECKING:
    from thresher.core.documents.batch import DocumentBatch
    from thresher.stages.corpus.place_ranges import Places


class GlobalShuffle(ShuffleStage):
    """Put all documents of the corpus in a random order, the same for the same seed and input."""

    def __init__(self, seed: int = 0, blocksize: int | str = BLOCKSIZE) -> None:
        """`seed`: another seed gives another order.
        `blocksize`: approximate size of an output file.
        """
        self.seed = seed
        self.blocksize = parse_size(blocksize, "GlobalShuffle.blocksize")

    def places(self, batch: DocumentBatch) -> Places:
        """Return a number for each document that depends on its id and the seed."""
        from thresher.stages.corpus.hashing import hash_ids

        assert batch.ids is not None, "documents of a run have ids"
        return hash_ids(batch.ids, self.seed)
