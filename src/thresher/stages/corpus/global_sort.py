# SPDX-License-Identifier: Apache-2.0
"""Global sort: all documents of the corpus in the order of a column."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.sizes import parse_size
from thresher.errors import UsageError
from thresher.stages.corpus.shuffle import BLOCKSIZE, ShuffleReader, ShuffleStage, ShuffleWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from thresher.core.documents.batch import DocumentBatch
    from thresher.core.phases import PhaseFolder, PhaseReader, PhaseWriter
    from thresher.core.source import ReadContext, SourceItem
    from thresher.core.unit import Unit
    from thresher.stages.corpus.place_ranges import Places
    from thresher.stages.corpus.ranks import SortedCorpus

_WIDTH = 64
_NUMBER, _TEXT = b"\x01", b"\x02"
MISSING = b"\xff" * _WIDTH
"""Place of documents without a value."""


class GlobalSort(ShuffleStage):
    """Sort all documents of the corpus by a column of numbers or texts; equal ones stay in input order."""

    place_type = f"S{_WIDTH}"

    def __init__(self, by: str, descending: bool = False, blocksize: int | str = BLOCKSIZE) -> None:
        """`by`: the column. Numbers come before texts, which are compared by their first 63 bytes, and documents
        without a value come last.
        `descending`: the largest values first.
        `blocksize`: approximate size of an output file.
        """
        if not isinstance(by, str) or not by:
            raise UsageError(f"GlobalSort.by: {by!r} is not the name of a column")
        self.by = by
        self.descending = descending
        self.blocksize = parse_size(blocksize, "GlobalSort.blocksize")

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column."""
        return [], [self.by]

    def places(self, batch: DocumentBatch) -> Places:
        """Return byte strings in the order of the values."""
        import numpy as np

        keys = [_key(value) for value in batch.values(self.by)]
        if self.descending:
            keys = [key if key == MISSING else key.ljust(_WIDTH, b"\0").translate(_INVERTED) for key in keys]
        return np.array(keys, dtype=self.place_type)

    def place_of(self, value: Any) -> bytes:
        """Return the place of a value in an ascending order."""
        return _key(value)

    def phase_ends(self) -> tuple[PhaseWriter[Any], PhaseReader[Any]]:
        """Return the writer of sorted files, and the reader that charts the column."""
        return ShuffleWriter(self), SortReader(self)


class SortReader(ShuffleReader):
    """Read documents in the order of a column, and chart its values."""

    stage: GlobalSort

    def note(self, blocks: Any, done: PhaseFolder) -> Any:
        """Return where the classes of the chart begin, and what `plan` returns."""
        from thresher.stages.corpus.ranks import sorted_corpus

        corpus = sorted_corpus(blocks, [file.path for file in done.files], self.stage.place_type, done.storage_options)
        return [self._edges(corpus), self.plan(corpus)]

    def plan(self, corpus: SortedCorpus) -> Any:
        """Return what each unit has to know of all documents, as plain data."""

    def _edges(self, corpus: SortedCorpus) -> list[float]:
        """Return classes from about the 2nd to the 98th percentile; none if the values there are no numbers."""
        from thresher.stages.corpus.statistics.bins import edges_of

        valued = corpus.before(MISSING)
        if not valued:
            return []
        ranks = (0, valued // 50, valued - 1 - valued // 50, valued - 1)
        found = [_number(corpus.place_at(rank), self.stage.descending) for rank in ranks]
        numbers = sorted(number for number in found if number is not None)
        return edges_of(*numbers[:3]) if len(numbers) == len(ranks) else []

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the documents of a range in order."""
        edges, _ = self.note_of(unit)
        for item in super().read(unit, context):
            self.chart_batch(item.task, edges)
            yield item

    def chart_batch(self, batch: Any, edges: Sequence[float], part: str = "") -> None:
        """Add the documents of a batch to the chart."""
        from thresher.stages.corpus.statistics.bins import chart_values

        chart_values(self, f"documents by {self.stage.by}, from", batch.values(self.stage.by), edges, part)


_INVERTED = bytes(255 - number for number in range(256))


def _key(value: Any) -> bytes:
    """Return a byte string that grows with the value."""
    if isinstance(value, str):
        return (_TEXT + value.encode("utf-8", "surrogatepass"))[:_WIDTH]
    if isinstance(value, bool | int | float) and value == value:
        try:
            number = float(value)
        except OverflowError:
            number = float("inf") if value > 0 else float("-inf")
        bits = int(struct.unpack(">Q", struct.pack(">d", number + 0.0))[0])
        ordered = bits ^ (2**64 - 1) if bits >> 63 else bits | 1 << 63
        return _NUMBER + ordered.to_bytes(8, "big")
    return MISSING


def _number(place: Any, descending: bool) -> float | None:
    """Return the number that `_key` made a byte string of; `None` for other values."""
    key = bytes(place).ljust(_WIDTH, b"\0")
    key = key.translate(_INVERTED) if descending and key != MISSING else key
    if key[:1] != _NUMBER:
        return None
    ordered = int.from_bytes(key[1:9], "big")
    bits = ordered ^ 1 << 63 if ordered >> 63 else ordered ^ (2**64 - 1)
    return float(struct.unpack(">d", bits.to_bytes(8, "big"))[0])
