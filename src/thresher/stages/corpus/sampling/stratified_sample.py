# SPDX-License-Identifier: Apache-2.0
"""Stratified samples: an exact number or share of the documents of each value of a column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.sizes import parse_size
from thresher.core.documents.batch import DocumentBatch
from thresher.errors import UsageError
from thresher.stages.corpus.join import ByKey
from thresher.stages.corpus.sampling.quota import check_quota, quota_of
from thresher.stages.corpus.shuffle import BLOCKSIZE, ShuffleReader, ShuffleWriter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.core.phases import PhaseReader, PhaseWriter
    from thresher.core.source import ReadContext, SourceItem
    from thresher.core.unit import Unit
    from thresher.stages.corpus.place_ranges import Places

RULE = "stratum"
_CHARTED_SHARE = 0.01
"""A value with a smaller share of all documents has no bar of its own."""
_LABEL = 60


class StratifiedSample(ByKey):
    """Keep exactly a number, or a share, of the documents of each value of a column, chosen at random.

    Documents of a value come together, in input order.
    """

    def __init__(
        self,
        by: str,
        number: int | Mapping[str, int] | None = None,
        share: float | Mapping[str, float] | None = None,
        seed: int = 0,
        blocksize: int | str = BLOCKSIZE,
    ) -> None:
        """`by`: the column; documents without a value are a group, too.
        `number`: how many documents of each value; a smaller group is kept whole. `share`: which share, in place of
        `number`, rounded to whole documents. Both may be given by value, such as `{de: 1000, en: 500}`; values that
        are not named are kept whole.
        `seed`: another seed selects other documents.
        `blocksize`: approximate size of the files before documents are left out.
        """
        if not isinstance(by, str) or not by:
            raise UsageError(f"StratifiedSample.by: {by!r} is not the name of a column")
        if (number is None) == (share is None):
            raise UsageError("StratifiedSample: give either number or share")
        for n in number.values() if isinstance(number, Mapping) else [number]:
            if share is None:
                check_quota("StratifiedSample.number", n, None)
        for part in share.values() if isinstance(share, Mapping) else [share]:
            if number is None:
                check_quota("StratifiedSample.share", None, part)
        super().__init__(by, parse_size(blocksize, "StratifiedSample.blocksize"))
        self.number, self.share, self.seed = number, share, seed

    def quota(self, value: Any, documents: int) -> int:
        """Return how many of the documents of a value are kept."""
        key = "" if value is None else str(value)
        if self.share is not None:
            return quota_of(documents, None, _of(self.share, key, 1.0))
        return quota_of(documents, _of(self.number, key, documents), None)

    def phase_ends(self) -> tuple[PhaseWriter[Any], PhaseReader[Any]]:
        """Return the writer that brings documents of a value together, and the reader that drops."""
        return ShuffleWriter(self), StratumReader(self)


def _of(given: Any, key: str, usual: Any) -> Any:
    return {str(name): value for name, value in given.items()}.get(key, usual) if isinstance(given, Mapping) else given


class StratumReader(ShuffleReader):
    """Read documents value by value; those that are dropped are noted in their batches."""

    keeps_all = False

    stage: StratifiedSample

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the documents of a range of values."""
        import numpy as np

        from thresher.stages.corpus.ranks import sorted_corpus

        paths, blocks = self._index(unit.pieces[0].path)
        corpus = sorted_corpus(blocks, paths, self.stage.place_type, self.storage_options)
        places, sizes = corpus.sizes(self.range_of(unit))
        least = _CHARTED_SHARE * len(corpus)
        seen = np.zeros(len(places), dtype=np.int64)
        for item in super().read(unit, context):
            batch = item.task
            assert isinstance(batch, DocumentBatch)
            keeps = self._keeps(batch, (places, sizes, seen), least)
            rows = np.flatnonzero(~keeps)
            yield replace(item, task=batch.drop(rows, RULE) if len(rows) else batch)

    def _keeps(
        self,
        batch: DocumentBatch,
        groups: tuple[Places, npt.NDArray[np.int64], npt.NDArray[np.int64]],
        least: float,
    ) -> npt.NDArray[np.bool_]:
        """Return which documents are kept. `groups`: the places of the values, the documents of each, and how many of
        them came already."""
        import numpy as np

        from thresher.stages.corpus.sampling.permutation import drawn

        places, sizes, seen = groups
        which = np.searchsorted(places, self.stage.places(batch))
        values = batch.values(self.stage.by)
        keeps = np.zeros(len(batch), dtype=bool)
        starts = np.flatnonzero(np.diff(which, prepend=-1))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(batch)], strict=True):
            group, value = int(which[start]), values[start]
            size = int(sizes[group])
            ranks = np.arange(seen[group], seen[group] + end - start)
            seed = self.stage.seed ^ int.from_bytes(bytes(places[group])[:7], "big")
            keeps[start:end] = drawn(ranks, size, self.stage.quota(value, size), seed)
            seen[group] += end - start
            bar = "other values" if size < least else "no value" if value is None else str(value)[:_LABEL]
            kept = int(keeps[start:end].sum())
            self.chart(f"documents by {self.stage.by}", bar, kept, "kept")
            self.chart(f"documents by {self.stage.by}", bar, end - start - kept, "dropped")
        return keeps
