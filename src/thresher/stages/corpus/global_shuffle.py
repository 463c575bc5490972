# SPDX-License-Identifier: Apache-2.0
"""Global shuffle: all documents of the corpus in a random order that depends on the seed alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.sizes import parse_size
from thresher.core.documents.batch import DocumentBatch
from thresher.stages.corpus.shuffle import BLOCKSIZE, ShuffleReader, ShuffleStage, ShuffleWriter

if TYPE_CHECKING:
    from thresher.core.documents.batch import DocumentBatch
    from thresher.core.phases import PhaseReader, PhaseWriter
    from thresher.core.source import ReadContext, SourceItem
    from thresher.core.unit import Unit
    from thresher.stages.corpus.place_ranges import Places

_CHART = "documents by percent of the random order, from"


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

    def phase_ends(self) -> tuple[PhaseWriter[Any], PhaseReader[Any]]:
        """Return the writer of sorted files, and the reader that charts how evenly documents are spread."""
        return ShuffleWriter(self), ShuffledReader(self)


class ShuffledReader(ShuffleReader):
    """Read documents in their random order, and chart how many are in each tenth of it."""

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the documents of a range in order."""
        import numpy as np

        tenth = 2**63 // 10 + 1
        for item in super().read(unit, context):
            assert isinstance(item.task, DocumentBatch)
            for number, n in enumerate(np.bincount(self.stage.places(item.task) // tenth).tolist()):
                self.chart(_CHART, 10 * number, n)
            yield item
