# SPDX-License-Identifier: Apache-2.0
"""Groups: one document for each value of some columns, with counts, sums and the like."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.sizes import parse_size
from thresher.core.documents.batch import DocumentBatch
from thresher.core.source import SourceItem
from thresher.errors import UsageError, nearest
from thresher.stages.corpus.shuffle import BLOCKSIZE, ShuffleReader, ShuffleStage, ShuffleWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from thresher.core.phases import PhaseReader, PhaseWriter
    from thresher.core.records.record_ids import Rows
    from thresher.core.source import FileFacts, ReadContext
    from thresher.core.unit import Unit

_MERGED_BY = {"count": "sum", "sum": "sum", "min": "min", "max": "max", "mean": "sum"}
"""Functions that combine partial values; `mean` has two, for a sum and a count."""
_ONE, _AS_FLOAT = "\0one", "\0float"
"""Names of columns that no document has."""
_CALL = re.compile(r"(\w+)\((.+)\)")


class GroupBy(ShuffleStage):
    """Make one document for each combination of values in some columns, with numbers over its documents."""

    def __init__(
        self,
        by: str | Sequence[str],
        aggregations: Mapping[str, str] | None = None,
        blocksize: int | str = BLOCKSIZE,
    ) -> None:
        """`by`: the column, or several.
        `aggregations`: new columns, each `count`, `sum(column)`, `min(column)`, `max(column)` or `mean(column)`;
        by default `{"count": "count"}`.
        `blocksize`: approximate size of an output file.
        """
        self.blocksize = parse_size(blocksize, "GroupBy.blocksize")
        self.by = [by] if isinstance(by, str) else list(by)
        if not self.by or not all(isinstance(name, str) and name for name in self.by):
            raise UsageError(f"GroupBy.by: {by!r} is not the name of a column, or a list of names")
        self.aggregations = dict(aggregations or {"count": "count"})
        self.calls = {name: _parsed(name, text) for name, text in self.aggregations.items()}
        if taken := set(self.by) & self.calls.keys():
            raise UsageError(f"GroupBy.aggregations: {min(taken)!r} is one of the columns in by; name it otherwise")

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that are looked at."""
        return [], list(dict.fromkeys([*self.by, *(column for _, column in self.calls.values() if column)]))

    def places(self, batch: DocumentBatch) -> Rows:
        """Return a hash of the values of `by`."""
        from thresher.stages.corpus.hashing import hash_texts

        columns = [batch.values(name) for name in self.by]
        return hash_texts(["\0".join(map(repr, values)) for values in zip(*columns, strict=True)])

    def phase_ends(self) -> tuple[PhaseWriter[Any], PhaseReader[Any]]:
        """Return the writer of the groups of a unit, and the reader that merges groups."""
        return GroupWriter(self), GroupReader(self)

    # -- groups of documents, and groups of groups ---------------------------------------------------------------------

    def first_groups(self, batch: DocumentBatch) -> pa.Table:
        """Return the groups in a batch, with partial values."""
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = {name: batch.column(name) for name in self.inputs()[1]} | {_ONE: pa.repeat(1, len(batch))}
        wanted = []
        for function, column in self.calls.values():
            if function == "count":
                wanted.append((_ONE, "sum"))
            elif function == "mean":
                columns[f"{column}{_AS_FLOAT}"] = pc.cast(columns[column], pa.float64())
                wanted += [(f"{column}{_AS_FLOAT}", "sum"), (f"{column}{_AS_FLOAT}", "count")]
            else:
                wanted.append((column, function))
        return self._renamed(pa.table(columns).group_by(self.by).aggregate(wanted), wanted)

    def merged(self, partial: pa.Table) -> pa.Table:
        """Return groups of the same key as one, with partial values."""
        wanted = [(name, how) for name, how in self._partial_names()]
        return self._renamed(partial.group_by(self.by).aggregate(wanted), wanted)

    def finished(self, partial: pa.Table) -> pa.Table:
        """Return the final values of merged groups."""
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = {name: partial[name] for name in self.by}
        for name, (function, _) in self.calls.items():
            if function == "mean":
                columns[name] = pc.divide(partial[f"{name}\0sum"], pc.cast(partial[f"{name}\0count"], pa.float64()))
            else:
                columns[name] = partial[name]
        return pa.table(columns)

    def _partial_names(self) -> list[tuple[str, str]]:
        """Return the columns of partial values, and how they are put together."""
        found = []
        for name, (function, _) in self.calls.items():
            if function == "mean":
                found += [(f"{name}\0sum", "sum"), (f"{name}\0count", "sum")]
            else:
                found.append((name, _MERGED_BY[function]))
        return found

    def _renamed(self, grouped: pa.Table, wanted: list[tuple[str, str]]) -> pa.Table:
        """Return the keys and the values of `wanted`, under their names, in a fixed order of columns."""
        import pyarrow as pa

        values = {
            new: grouped[f"{column}_{how}"]
            for (column, how), (new, _) in zip(wanted, self._partial_names(), strict=True)
        }
        return pa.table({name: grouped[name] for name in self.by} | values)


def _parsed(name: str, text: Any) -> tuple[str, str]:
    """Return function and column of an aggregation."""
    if text == "count":
        return "count", ""
    found = _CALL.fullmatch(text) if isinstance(text, str) else None
    if found is None or found[1] not in _MERGED_BY or found[1] == "count":
        legal = "count, sum(column), min(column), max(column), mean(column)"
        hint = nearest(found[1], _MERGED_BY) if found is not None else ""
        raise UsageError(f"GroupBy.aggregations: {name}: {text!r} is not one of {legal}.{hint}")
    return found[1], found[2]


class GroupWriter(ShuffleWriter):
    """Write the groups of each unit."""

    merges = True
    stage: GroupBy

    def prepare(self, batch: DocumentBatch) -> Any:
        """Return the groups in a batch."""
        return self.stage.first_groups(batch)

    def open_writer(self, local_path: str) -> Any:
        """Return the writer for one unit."""
        places = ShuffleWriter(self.stage)
        places.buffer_bytes = self.buffer_bytes
        return UnitGroups(self, places.open_writer(local_path))


class UnitGroups:
    """Gathers the groups of one unit; a `RecordWriter`."""

    def __init__(self, sink: GroupWriter, file: Any) -> None:
        self._sink = sink
        self._stage = sink.stage
        self._file = file
        self._partial: list[pa.Table] = []
        self._rows = 0
        self._records = 0
        self._merged_rows = 0

    def write(self, batch: DocumentBatch) -> None:
        """Add documents; groups are merged when they have doubled."""
        import pyarrow as pa

        self._partial.append(self._sink.take_prepared(batch))
        self._rows += self._partial[-1].num_rows
        self._records += len(batch)
        if self._rows > 2 * self._merged_rows + 10_000:
            self._partial = [self._stage.merged(pa.concat_tables(self._partial, promote_options="permissive"))]
            self._rows = self._merged_rows = self._partial[0].num_rows

    def close(self) -> FileFacts:
        """Write the groups."""
        import msgspec

        self._write_partial()
        facts: FileFacts = msgspec.structs.replace(self._file.close(), records=self._records)
        return facts

    def _write_partial(self) -> None:
        """Write the groups that are gathered."""
        import pyarrow as pa

        table = self._stage.merged(pa.concat_tables(self._partial, promote_options="permissive"))
        batch = DocumentBatch(table)
        batch.name_records(("group:", ""))
        self._file.write(batch)

    def abort(self) -> None:
        """Remove the file."""
        self._file.abort()


class GroupReader(ShuffleReader):
    """Merge the groups of all units."""

    keeps_all = False

    creates = True
    stage: GroupBy

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns of a group."""
        return [], [*self.stage.by, *self.stage.calls]

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the groups of a range of places."""
        import pyarrow as pa

        found = [item.task.to_pyarrow() for item in super().read(unit, context) if isinstance(item.task, DocumentBatch)]
        if found:
            merged = self.stage.merged(pa.concat_tables(found, promote_options="permissive"))
            batch = DocumentBatch(self.stage.finished(merged.sort_by([(name, "ascending") for name in self.stage.by])))
            batch.name_records((f"{unit.id}:r", ""))
            self._chart_sizes(batch)
            yield SourceItem(unit, batch)

    def _chart_sizes(self, batch: DocumentBatch) -> None:
        """Chart the sizes of groups, if documents are counted."""
        from thresher.stages.corpus.statistics.bins import chart_powers

        counted = next((name for name, (function, _) in self.stage.calls.items() if function == "count"), None)
        if counted is not None:
            chart_powers(self, "groups by documents, from", batch.values(counted))
