# SPDX-License-Identifier: Apache-2.0
"""Counts of clusters for the report: their sizes, the largest ones, and duplicates by source and by pair of sources.

They are made while the list of clusters is written, are noted in its file, and become charts of the last phase. A
source is the folder that a document's file is in, or the file itself if all are in one folder.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from thresher.core.files.filesystem import StorageOptions, open_read

if TYPE_CHECKING:
    import pyarrow as pa

    from thresher.core.stage import ProcessingStage
    from thresher.core.unit import Piece

METADATA_KEY = "thresher.charts"
_LARGEST, _BARS = 10, 20
_MOST_PAIRS = 100_000
"""Pairs of files that are counted; with more, folders are counted in place of files."""
_PREFIX = 13
"""Characters of a record id up to its position."""
_REST = "others"

Bars = list[tuple[str | int, int]]


class ClusterSummary:
    """Counts over all clusters, from the rows that are written."""

    def __init__(self) -> None:
        self.paths: dict[str, str] = {}
        """The file of each prefix of record ids; to be filled in before the charts are made."""
        self._sizes: Counter[int] = Counter()
        self._largest: list[tuple[int, str]] = []
        self._pairs: Counter[tuple[str, str]] = Counter()

    def add(self, table: pa.Table) -> None:
        """Count some rows."""
        import numpy as np

        from thresher.stages.dedup.files.arrow_columns import arrow_column, numpy_column

        is_kept = numpy_column(table["kept"])
        kept = np.flatnonzero(is_kept)
        sizes = numpy_column(table["size"])[kept].astype(np.int64)
        for power, n in _counted(np.log2(np.maximum(sizes, 1)).astype(np.int64)):
            self._sizes[1 << power] += n
        top = kept[np.argsort(-sizes, kind="stable")[:_LARGEST]]
        names = table["cluster"].take(arrow_column(top)).to_pylist()
        some = zip(numpy_column(table["size"])[top].tolist(), names, strict=True)
        self._largest = sorted([*self._largest, *some], key=lambda one: (-one[0], one[1]))[:_LARGEST]
        self._count_pairs(table.take(arrow_column(np.flatnonzero(~is_kept))))

    def _count_pairs(self, dropped: pa.Table) -> None:
        if not dropped.num_rows:
            return
        (own, own_names), (other, other_names) = (_prefixes(dropped[name]) for name in ("id", "kept_id"))
        for pair, n in _counted(own * len(other_names) + other):
            one, another = own_names[pair // len(other_names)], other_names[pair % len(other_names)]
            self._pairs[one, another] += n
        if len(self._pairs) > _MOST_PAIRS:
            self._pairs = _summed(
                ((self._source(one), self._source(other)), n) for (one, other), n in self._pairs.items()
            )

    def _source(self, prefix: str) -> str:
        """Return the folder of a file; anything else is one already."""
        return os.path.dirname(self.paths[prefix]) if prefix in self.paths else prefix

    def charts(self) -> dict[str, Bars]:
        """Return the bars of each chart."""
        prefixes = {prefix for pair in self._pairs for prefix in pair}
        names = {prefix: self._source(prefix) for prefix in prefixes}
        folders = set(names.values())
        if len(folders) == 1:
            names = {prefix: self.paths.get(prefix, prefix) for prefix in prefixes}
        root = os.path.commonpath(folders) if folders and all(name.startswith("/") for name in folders) else ""
        shown = {
            prefix: name.removeprefix(root).lstrip("/") or os.path.basename(name) for prefix, name in names.items()
        }
        pairs = _summed(((shown[one], shown[other]), n) for (one, other), n in self._pairs.items())
        return {
            "clusters by size, from": sorted(self._sizes.items()),
            "largest clusters": [(name, size) for size, name in self._largest],
            "duplicates by source": _bars(_summed((one, n) for (one, _), n in pairs.items()).items()),
            "duplicates by source and that of the document kept": _bars(
                (f"{one} → {other}", n) for (one, other), n in pairs.items()
            ),
        }

    def metadata(self) -> dict[str, str]:
        """Return the charts as they are noted in the file of clusters."""
        return {METADATA_KEY: msgspec.json.encode(self.charts()).decode()}


def chart_clusters(stage: ProcessingStage[Any, Any], clusters: Piece, storage_options: StorageOptions) -> None:
    """Add the charts that a file of clusters notes to those of a stage."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_read(clusters.path, storage_options=storage_options) as opened:
        noted = pq.ParquetFile(pa.PythonFile(opened)).metadata.metadata[METADATA_KEY.encode()]
    for name, bars in msgspec.json.decode(noted).items():
        for bar, n in bars:
            stage.chart(name, bar, n)


def _prefixes(ids: Any) -> tuple[Any, list[str]]:
    """Return the source of each id, as an index into names: the file as ids have it, or the folder of an index."""
    import pyarrow.compute as pc

    from thresher.stages.dedup.files.arrow_columns import arrow_texts, numpy_column

    start = pc.utf8_slice_codeunits(ids, 0, _PREFIX)
    is_own = pc.equal(pc.utf8_slice_codeunits(ids, _PREFIX - 1, _PREFIX), arrow_texts([":"])[0])
    if not pc.all(is_own).as_py():
        start = pc.if_else(is_own, start, pc.replace_substring_regex(ids, "/[^/]*$", "/"))
    coded = pc.dictionary_encode(start.combine_chunks())
    return numpy_column(coded.indices).astype("int64"), [name.rstrip(":/") for name in coded.dictionary.to_pylist()]


def _counted(numbers: Any) -> Iterator[tuple[int, int]]:
    """Yield each different number, and how often it is there."""
    import numpy as np

    values, counts = np.unique(numbers, return_counts=True)
    yield from zip(values.tolist(), counts.tolist(), strict=True)


def _summed(counts: Iterable[tuple[Any, int]]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for name, n in counts:
        found[name] += n
    return found


def _bars(counts: Iterable[tuple[str, int]]) -> Bars:
    """Return the largest counts, and the sum of all others."""
    ordered = sorted(counts, key=lambda one: (-one[1], one[0]))
    rest = sum(n for _, n in ordered[_BARS:])
    return [*ordered[:_BARS], *([(_REST, rest)] if rest else [])]
