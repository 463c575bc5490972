# SPDX-License-Identifier: Apache-2.0
"""Counts of n-grams of words over a whole corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.sizes import parse_size
from thresher.core.documents.batch import DocumentBatch
from thresher.core.source import SourceItem
from thresher.core.stage import CompositeStage
from thresher.errors import UsageError
from thresher.stages.corpus.group_by import GroupBy, GroupReader, GroupWriter, UnitGroups
from thresher.stages.corpus.reduce import ReduceStage
from thresher.stages.corpus.shuffle import BLOCKSIZE, ShuffleWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from thresher.core.phases import PhaseReader, PhaseWriter
    from thresher.core.source import ReadContext
    from thresher.core.unit import Unit

_BARS = 20


class NGramCounts(CompositeStage[DocumentBatch, DocumentBatch]):
    """Count n-grams of words and make one document of each of the most frequent ones: `ngram` and `count`.

    Counts are exact. Memory is bounded: what a unit has counted goes to a file when it is larger than the room of a
    writer, each n-gram is summed up in one range of the next phase, and of each range only `top` n-grams go on.
    """

    def __init__(
        self,
        n: int = 2,
        top: int = 1000,
        min_count: int = 1,
        text_field: str = "text",
        lowercase: bool = False,
        blocksize: int | str = BLOCKSIZE,
    ) -> None:
        """`n`: words of an n-gram; words are separated by white space.
        `top`: how many n-grams are listed, the most frequent first, equal ones in alphabetical order.
        `min_count`: rarer ones are left out.
        `text_field`: the column of the text.
        `lowercase`: count words of upper and lower case together.
        `blocksize`: approximate size of a range of n-grams that is summed up at a time.
        """
        for name, value in (("n", n), ("top", top), ("min_count", min_count)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"NGramCounts.{name}: {value!r} is not a whole number of 1 or more")
        self.n, self.top, self.min_count = n, top, min_count
        self.text_field, self.lowercase = text_field, lowercase
        self.blocksize = parse_size(blocksize, "NGramCounts.blocksize")

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column of the text."""
        return ["data"], [self.text_field]

    def decompose(self) -> list[Any]:
        """Return the stage that sums up n-grams, and the one that merges the most frequent ones of all ranges."""
        return [NGramGroups(self).with_(name=self.name), MostFrequent(self.top).with_(name=f"{self.name}-top")]


class NGramGroups(GroupBy):
    """Sum up the n-grams of all documents by a keyed shuffle; of each range the most frequent ones go on."""

    def __init__(self, counts: NGramCounts) -> None:
        self.counts = counts
        super().__init__("ngram", {"count": "count"}, counts.blocksize)

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column of the text."""
        return [], [self.counts.text_field]

    def first_groups(self, batch: DocumentBatch) -> pa.Table:
        """Return the n-grams of a batch."""
        import pyarrow as pa

        found: Counter[str] = Counter()
        for text in batch.values(self.counts.text_field):
            if isinstance(text, str):
                found.update(self._ngrams(text))
        if not found:
            found[""] = 0  # a file of a phase has at least one row; the reader leaves this one out
        encoded = [ngram.encode("utf-8", "replace").decode() for ngram in found]
        return pa.table({"ngram": pa.array(encoded, pa.string()), "count": pa.array(found.values(), pa.int64())})

    def _ngrams(self, text: str) -> Iterator[str]:
        words = (text.lower() if self.counts.lowercase else text).split()
        if self.counts.n == 1:
            return iter(words)
        return map(" ".join, zip(*(words[start:] for start in range(self.counts.n)), strict=False))

    def phase_ends(self) -> tuple[PhaseWriter[Any], PhaseReader[Any]]:
        """Return the writer of the n-grams of a unit, and the reader that sums them up."""
        return NGramWriter(self), NGramReader(self)


class NGramWriter(GroupWriter):
    """Write the n-grams of each unit."""

    def open_writer(self, local_path: str) -> Any:
        """Return the writer for one unit."""
        places = ShuffleWriter(self.stage)
        places.buffer_bytes = self.buffer_bytes
        return UnitNGrams(self, places.open_writer(local_path))


class UnitNGrams(UnitGroups):
    """Gathers the n-grams of one unit, and writes them out when they take more than the room of the writer."""

    def write(self, batch: DocumentBatch) -> None:
        """Add documents."""
        super().write(batch)
        if sum(table.nbytes for table in self._partial) > self._sink.buffer_bytes:
            self._write_partial()
            self._partial, self._rows, self._merged_rows = [self._sink.stage.first_groups(batch.take([]))], 0, 0


class NGramReader(GroupReader):
    """Sum up the n-grams of a range."""

    stage: NGramGroups

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the most frequent n-grams of a range; no other range has the same ones."""
        import pyarrow.compute as pc

        counts = self.stage.counts
        for item in super().read(unit, context):
            assert isinstance(item.task, DocumentBatch)
            table = item.task.to_pyarrow()
            table = table.filter(pc.greater(table["count"], 0))
            self.count("distinct n-grams", table.num_rows)
            self.count("n-grams", pc.sum(table["count"]).as_py() or 0)
            frequent = table.filter(pc.greater_equal(table["count"], counts.min_count))
            batch = DocumentBatch(most_frequent(frequent, counts.top))
            batch.name_records((f"{unit.id}:r", ""))
            yield SourceItem(unit, batch)

    def _chart_sizes(self, batch: DocumentBatch) -> None:
        """Chart how often n-grams occur."""
        from thresher.stages.corpus.statistics.bins import chart_powers

        chart_powers(self, "distinct n-grams by occurrences, from", [n for n in batch.values("count") if n])


def most_frequent(table: pa.Table, top: int) -> pa.Table:
    """Return the rows with the largest counts, equal ones in the order of the n-grams."""
    return table.sort_by([("count", "descending"), ("ngram", "ascending")]).slice(0, top)


class MostFrequent(ReduceStage):
    """Keep the most frequent n-grams of all ranges; a state has at most so many."""

    def __init__(self, top: int) -> None:
        self.top = top

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the columns of an n-gram."""
        return [], ["ngram", "count"]

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns of an n-gram."""
        return [], ["ngram", "count"]

    def initial(self) -> list[Any]:
        """Return no n-grams."""
        return []

    def accumulate(self, state: list[Any], batch: DocumentBatch) -> list[Any]:
        """Add n-grams."""
        rows = zip(batch.values("ngram"), batch.values("count"), strict=True)
        return self.merge(state, [[ngram, n] for ngram, n in rows if n])

    def merge(self, state: list[Any], other: list[Any]) -> list[Any]:
        """Return the most frequent n-grams of both."""
        return sorted([*state, *other], key=lambda row: (-row[1], row[0].encode()))[: self.top]

    def finish(self, state: list[Any]) -> DocumentBatch:
        """Return the n-grams, the most frequent first."""
        for ngram, n in state[:_BARS]:
            self.chart("most frequent n-grams", ngram, n)
        return DocumentBatch([{"ngram": ngram, "count": n} for ngram, n in state])
