# SPDX-License-Identifier: Apache-2.0
"""Base of stages that keep documents by their rank in the order of a column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from thresher.core.documents.batch import DocumentBatch
from thresher.stages.corpus.global_sort import GlobalSort, SortReader
from thresher.stages.corpus.shuffle import ShuffleWriter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.core.phases import PhaseReader, PhaseWriter
    from thresher.core.records.record_ids import Rows
    from thresher.core.source import ReadContext, SourceItem
    from thresher.core.unit import Unit
    from thresher.stages.corpus.ranks import SortedCorpus

RULE = "rank"


class RankFilter(GlobalSort):
    """Sort all documents by a column and drop some by their rank, which is exact: it is counted over all documents."""

    def plan(self, corpus: SortedCorpus) -> Any:
        """Return what `keeps` needs, as plain data."""
        raise NotImplementedError

    def keeps(self, ranks: Rows, plan: Any) -> npt.NDArray[np.bool_]:
        """Return which documents are kept, given their ranks from 0."""
        raise NotImplementedError

    def limits(self, plan: Any) -> dict[str, Any]:
        """Return what a dropped document is beyond, for its line among the dropped ones."""
        raise NotImplementedError

    def phase_ends(self) -> tuple[PhaseWriter[Any], PhaseReader[Any]]:
        """Return the writer of sorted files, and the reader that drops documents."""
        return ShuffleWriter(self), RankReader(self)


class RankReader(SortReader):
    """Read documents in order; those that are dropped are noted in their batches."""

    keeps_all = False

    stage: RankFilter

    def plan(self, corpus: SortedCorpus) -> Any:
        """Return what the stage needs."""
        return self.stage.plan(corpus)

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the documents of a range in order."""
        import numpy as np

        from thresher.stages.corpus.ranks import sorted_corpus

        edges, plan = self.note_of(unit)
        paths, blocks = self._index(unit.pieces[0].path)
        corpus = sorted_corpus(blocks, paths, self.stage.place_type, self.storage_options)
        rank = corpus.before(self.range_of(unit).start)
        for item in super(SortReader, self).read(unit, context):
            batch = item.task
            assert isinstance(batch, DocumentBatch)
            keeps = self.stage.keeps(np.arange(rank, rank + len(batch)), plan)
            rank += len(batch)
            rows = np.flatnonzero(~keeps)
            if len(rows):
                gone = batch.pick(rows)
                self.chart_batch(gone, edges, "dropped")
                batch = batch.drop(rows, RULE, gone.values(self.stage.by), self.stage.limits(plan))
            self.chart_batch(batch, edges, "kept")
            yield replace(item, task=batch)
