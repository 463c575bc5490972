# SPDX-License-Identifier: Apache-2.0
"""Percentiles as a column: where a document stands in the order of a score, over the whole corpus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.options import check_count, field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.stages.corpus.global_sort import MISSING, GlobalSort, SortReader
from thresher.stages.corpus.shuffle import BLOCKSIZE, ShuffleWriter

if TYPE_CHECKING:
    from thresher.core.phases import PhaseReader, PhaseWriter
    from thresher.core.source import ReadContext, SourceItem
    from thresher.core.unit import Unit
    from thresher.stages.corpus.ranks import SortedCorpus


class PercentileRank(GlobalSort):
    """Write the percentile of each document in the order of a column, so that scores of any scale can be compared.

    Percentiles are exact, and equal values have the same one. Documents come sorted by the column, the smallest first;
    those without a value get none.
    """

    def __init__(
        self, by: str, rank_field: str | None = None, levels: int = 100, blocksize: int | str = BLOCKSIZE
    ) -> None:
        """`by`: the column, such as a score.
        `rank_field`: the column for the percentile; by default the name of `by` with `_percentile` behind it.
        `levels`: number of equally large levels, from 0 to `levels` - 1: 100 gives percentiles, 20 steps of 5 percent.
        `blocksize`: approximate size of an output file.
        """
        super().__init__(by, blocksize=blocksize)
        self.rank_field = field_name("PercentileRank", "rank_field", rank_field or f"{by}_percentile")
        self.levels = check_count("PercentileRank.levels", levels, 2)

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the column for the percentile."""
        return ["data"], [self.rank_field]

    def phase_ends(self) -> tuple[PhaseWriter[Any], PhaseReader[Any]]:
        """Return the writer of sorted files, and the reader that adds the column."""
        return ShuffleWriter(self), PercentileReader(self)


class PercentileReader(SortReader):
    """Read documents in order, each with its percentile."""

    keeps_all = False

    stage: PercentileRank

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the column for the percentile."""
        return self.stage.outputs()

    def plan(self, corpus: SortedCorpus) -> int:
        """Return the number of documents with a value."""
        return corpus.before(MISSING)

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the documents of a range in order."""
        import numpy as np
        import pyarrow as pa

        from thresher.stages.corpus.ranks import sorted_corpus

        _, valued = self.note_of(unit)
        paths, blocks = self._index(unit.pieces[0].path)
        corpus = sorted_corpus(blocks, paths, self.stage.place_type, self.storage_options)
        rank = below = corpus.before(self.range_of(unit).start)
        last: Any = None
        for item in super().read(unit, context):
            batch = item.task
            assert isinstance(batch, DocumentBatch)
            places = self.stage.places(batch)
            ranks = np.arange(rank, rank + len(batch))
            begins = np.append(places[:1] != last, places[1:] != places[:-1])
            # The rank of the first document with the same value, which may be in a batch before.
            firsts = np.maximum.accumulate(np.where(begins, ranks, below)) if len(batch) else ranks
            levels = firsts * self.stage.levels // max(1, valued)
            column = pa.array(levels, type=pa.int64(), mask=places == MISSING)
            if len(batch):
                rank, below, last = rank + len(batch), int(firsts[-1]), places[-1]
            yield replace(item, task=batch.replace(self.stage.rank_field, column))
