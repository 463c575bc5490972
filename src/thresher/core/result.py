# SPDX-License-Identifier: Apache-2.0
"""What a run gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from thresher.core.task import FileGroupTask, Task


class RunResult:
    """The output tasks of the last stage, in input order, and what happened to the records on the way."""

    def __init__(
        self, report: dict[str, Any], payloads: Sequence[Any] | None, decode: Callable[[Any], Task] | None = None
    ) -> None:
        """`payloads` are output tasks as they came from workers; behind a writer there are files instead (`None`)."""
        self._report = report
        self._payloads = payloads
        self._decode = decode

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
        """Name of the run."""
        return str(self._report["run_id"])

    @property
    def run_dir(self) -> str | None:
        """The run folder; `None` without a ledger."""
        found: str | None = self._report["run_dir"]
        return found

    @property
    def status(self) -> str:
        """`finished` or `nothing-to-do`."""
        return str(self._report["status"])

    @property
    def counts(self) -> dict[str, int]:
        """read, created, merged, written, dropped, quarantined."""
        return dict(self._report["counts"])

    @property
    def stages(self) -> list[dict[str, Any]]:
        """One entry per stage."""
        return list(self._report["stages"])

    @property
    def drop_reasons(self) -> dict[str, int]:
        """Dropped records by `Stage/Rule`."""
        return dict(self._report["drop_reasons"])

    @property
    def output_paths(self) -> list[str]:
        """Output files in input order."""
        return list(self._report["output_paths"])

    @property
    def units_total(self) -> int:
        """Units of the input."""
        return int(self._report["units_total"])

    @property
    def units_resumed(self) -> int:
        """Units that an earlier attempt had committed."""
        return int(self._report["units_resumed"])

    @property
    def wall_s(self) -> float:
        """Seconds that this attempt took."""
        return float(self._report["wall_s"])

    @property
    def peak_memory_bytes(self) -> int:
        """Most memory seen in use by the driver and all its workers."""
        return int(self._report["peak_memory_bytes"])

    def to_dict(self) -> dict[str, Any]:
        """All of it; equals `report.json`."""
        return dict(self._report)

    def __repr__(self) -> str:
        counts = self.counts
        return f"RunResult({self.status}, read {counts['read']}, written {counts['written']}, {len(self)} outputs)"
