# SPDX-License-Identifier: Apache-2.0
"""The result of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.task import FileGroupTask, Task
from thresher.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class RunResult:
    """Output tasks of the last stage, in input order, with the counts of the run."""

    def __init__(
        self, report: dict[str, Any], payloads: Sequence[Any] | None, decode: Callable[[Any], Task] | None = None
    ) -> None:
        """Wrap a report. `payloads` are the output tasks of a pipeline without a writer; `None` if the output is in
        files."""
        self._report = report
        self._payloads = payloads
        self._decode = decode
        self.outlets: dict[str, RunResult] = {}
        """Results of the outlets of the pipeline, by name."""

    def __len__(self) -> int:
        return len(self.output_paths) if self._payloads is None else len(self._payloads)

    def __iter__(self) -> Iterator[Task]:
        if self._payloads is None:
            for path in self.output_paths:
                yield FileGroupTask(self._report.get("name", ""), [path])
            return
        for payload in self._payloads:
            yield payload if self._decode is None else self._decode(payload)

    def __getitem__(self, index: int) -> Task:
        return list(self)[index]

    def __bool__(self) -> bool:
        return True

    @property
    def run_id(self) -> str:
        """Return the run id."""
        return str(self._report["run_id"])

    @property
    def run_dir(self) -> str | None:
        """Return the run folder; `None` without a ledger."""
        found: str | None = self._report["run_dir"]
        return found

    @property
    def status(self) -> str:
        """Return `finished` or `nothing-to-do`."""
        return str(self._report["status"])

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of records read, created, merged, written, dropped and quarantined."""
        return dict(self._report["counts"])

    @property
    def unknown_losses(self) -> int:
        """Return the number of places where the input is truncated or damaged and the number of lost records is
        unknown. Each counts as one quarantined record."""
        return int(self._report["unknown_losses"])

    @property
    def stages(self) -> list[dict[str, Any]]:
        """Return one entry per stage."""
        return list(self._report["stages"])

    @property
    def drop_reasons(self) -> dict[str, int]:
        """Return the number of dropped records by `Stage/Rule`."""
        return dict(self._report["drop_reasons"])

    @property
    def output_paths(self) -> list[str]:
        """Return the output files in input order."""
        return list(self._report["output_paths"])

    @property
    def units_total(self) -> int:
        """Return the number of input units."""
        return int(self._report["units_total"])

    @property
    def units_resumed(self) -> int:
        """Return the number of units that an earlier attempt had committed."""
        return int(self._report["units_resumed"])

    @property
    def wall_s(self) -> float:
        """Return the seconds that this attempt took."""
        return float(self._report["wall_s"])

    @property
    def peak_memory_bytes(self) -> int:
        """Return the peak memory of the driver and all its workers."""
        return int(self._report["peak_memory_bytes"])

    def to_dict(self) -> dict[str, Any]:
        """Return the whole report, equal to `report.json`; with the reports of outlets, if the pipeline has some."""
        outlets = {name: result.to_dict() for name, result in self.outlets.items()}
        return {**self._report, **({"outlets": outlets} if outlets else {})}

    def to_arrow(self) -> pa.Table:
        """Return all documents of the result as one Arrow table, with nulls where a document lacks a column.

        The result of a pipeline without a writer is in memory. The output of a writer is in files, which may be larger
        than memory: raise a `UsageError` that names them.
        """
        from thresher.core.documents.batch import DocumentBatch

        if self._payloads is None:
            shown = ", ".join(self.output_paths[:3]) + (", …" if len(self.output_paths) > 3 else "")
            raise UsageError(
                f"the documents of this run were written to files ({shown or 'none'}); read those with pyarrow.dataset "
                "or pandas, or leave the writer out to have the documents as the result"
            )
        tasks = list(self)
        others = sorted({type(task).__name__ for task in tasks if not isinstance(task, DocumentBatch)})
        if others:
            raise UsageError(f"the result holds {', '.join(others)}, and only documents can be put into a table")
        from thresher.core.documents.frames import join_tables

        return join_tables([task.to_pyarrow() for task in tasks if isinstance(task, DocumentBatch)])

    def to_pandas(self) -> pd.DataFrame:
        """Return the same as a pandas data frame with the index 0..n-1; nested values are Python objects."""
        from thresher.core.documents.frames import to_frame

        return to_frame(self.to_arrow())

    def __repr__(self) -> str:
        counts = self.counts
        left = "written" if self._report.get("has_writer", True) else "passed"
        return f"RunResult({self.status}, read {counts['read']}, {left} {counts['written']}, {len(self)} outputs)"
