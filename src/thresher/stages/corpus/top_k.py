# SPDX-License-Identifier: Apache-2.0
"""The best documents of the corpus: exactly so many, or a share of them, by the value of a column."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from thresher.core.documents.batch import DocumentBatch
from thresher.core.files.filesystem import open_read
from thresher.errors import UsageError
from thresher.stages.corpus.global_sort import GlobalSort
from thresher.stages.corpus.shuffle import BLOCKSIZE, ShuffleReader, ShuffleWriter, as_json, from_json

if TYPE_CHECKING:
    from thresher.core.phases import PhaseFolder, PhaseReader, PhaseWriter
    from thresher.core.source import ReadContext, SourceItem
    from thresher.core.unit import Unit
    from thresher.stages.corpus.place_ranges import Places

RULE = "rank"


class TopK(GlobalSort):
    """Keep the documents with the largest values in a column, in that order; of equal ones the first of the input."""

    def __init__(
        self,
        by: str,
        k: int | None = None,
        share: float | None = None,
        smallest: bool = False,
        blocksize: int | str = BLOCKSIZE,
    ) -> None:
        """`by`: the column; documents without a value come last.
        `k`: how many documents to keep. `share`: which share of them, in place of `k`, such as 0.1.
        `smallest`: keep the smallest values.
        `blocksize`: approximate size of the files before documents are left out.
        """
        if (k is None) == (share is None):
            raise UsageError("TopK: give either k or share")
        if k is not None and (isinstance(k, bool) or not isinstance(k, int) or k < 0):
            raise UsageError(f"TopK.k: {k!r} is not a whole number of 0 or more")
        if share is not None and not 0 <= share <= 1:
            raise UsageError(f"TopK.share: {share!r} is not a share from 0 to 1")
        super().__init__(by, descending=not smallest, blocksize=blocksize)
        self.k, self.share, self.smallest = k, share, smallest

    def count_of(self, documents: int) -> int:
        """Return how many of so many documents are kept."""
        return min(documents, self.k) if self.k is not None else math.ceil(documents * (self.share or 0.0))

    def phase_ends(self) -> tuple[PhaseWriter[Any], PhaseReader[Any]]:
        """Return the writer of sorted files, and the reader that drops what comes after the best."""
        return ShuffleWriter(self), TopKReader(self)


class TopKReader(ShuffleReader):
    """Read documents in order, and drop those after the best."""

    stage: TopK

    def note(self, blocks: Any, done: PhaseFolder) -> Any:
        """Return the number of documents that are kept, the place of the last of them, and how many of that place."""
        from thresher.stages.corpus.place_ranges import kth_place
        from thresher.stages.corpus.sorted_file import read_places

        def places_of(block: Any) -> Places:
            path = done.files[int(block["file"])].path
            with contextlib.closing(open_read(path, storage_options=done.storage_options)) as file:
                return read_places(block, file, self.stage.place_type)

        k = self.stage.count_of(int(blocks["records"].sum()))
        place, ties = (kth_place(blocks, k, places_of) if k else None) or (None, 0)
        return [k, as_json(place), ties]

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the documents of a range in order; those that are dropped are noted in their batches."""
        import numpy as np

        k, last, ties = self.note_of(unit)
        last = from_json(last)
        for item in super().read(unit, context):
            batch = item.task
            assert isinstance(batch, DocumentBatch)
            if last is None:
                over = np.full(len(batch), fill_value=not k)
            else:
                places = self.stage.places(batch)
                over = np.asarray(places > last)
                equal = np.flatnonzero(places == last)
                over[equal[ties:]] = True
                ties = max(0, ties - len(equal))
            rows = np.flatnonzero(over)
            if len(rows):
                values = batch.values(self.stage.by)
                batch = batch.drop(rows, RULE, [values[row] for row in rows.tolist()], {"k": k})
            yield replace(item, task=batch)
