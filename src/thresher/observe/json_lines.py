# SPDX-License-Identifier: Apache-2.0
"""Show progress as structured logs: one JSON object a line, at the times of the log lines."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

from thresher.observe.lines import LineProgress
from thresher.observe.progress import RunInfo, Snapshot, write_text

_WARNING = "warning: "
_REPORTED = ("run_id", "run_dir", "status", "counts", "units_total", "units_resumed", "wall_s", "peak_memory_bytes")
"""What the end says of the report."""
_OF_RUN = (
    *("elapsed_s", "progress_ratio", "eta_s", "phase", "phases", "units_done", "units_listed", "listing_complete"),
    *("bytes_done", "bytes_listed", "counts", "quarantined", "errors", "workers_busy", "workers_total"),
    *("memory_bytes", "memory_limit_bytes", "bottleneck"),
)
_OF_STAGE = (
    *("name", "in_docs", "out_docs", "in_bytes", "out_bytes", "dropped", "quarantined", "docs_per_s", "bytes_per_s"),
    *("busy_ratio", "queue_tasks", "queue_bytes", "workers_busy", "workers_total"),
)
"""What a progress line has of a snapshot, under the names of metrics.json."""


def log_line(event: str, level: str, now_s: float, **more: Any) -> str:
    """Return one line of a structured log. It is ASCII, so that no text can control a terminal or end the line."""
    t = datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"time": t, "level": level, "event": event, **more}, default=str) + "\n"


class JsonProgress(LineProgress):
    """Writes start, progress, messages and end as JSON lines to a stream."""

    def __init__(self, stream: TextIO, interval_s: float, clock: Callable[[], float] = time.time) -> None:
        super().__init__(stream, interval_s, color=False)
        self._clock = clock
        self._runs = False

    def start(self, info: RunInfo) -> None:
        """Write what is known before the run."""
        self._runs = True
        self._line(
            "start",
            name=info.name,
            executor=info.executor,
            run_dir=info.run_dir,
            workers=info.workers,
            units_resumed=info.units_resumed,
            **({"outlet": info.outlet} if info.outlet else {}),
        )

    def message(self, text: str) -> None:
        """Write a message."""
        is_warning = text.startswith(_WARNING)
        self._line("message", "warning" if is_warning else "info", text=text.removeprefix(_WARNING))

    def finish(self, report: dict[str, Any] | None) -> None:
        """Write the end, if there is a report."""
        if report is not None:
            self._runs = False
            error = {"error": report["error"]} if report.get("error") else {}
            self._line("end", _level(report["status"]), **{key: report[key] for key in _REPORTED}, **error)

    def close(self) -> None:
        """Write the end of a run that has no report."""
        if self._runs:
            self._runs = False
            self._line("end", "error", status="failed")

    def _show(self, snapshot: Snapshot) -> None:
        """Write a progress line."""
        stages = [{key: _brief(getattr(stage, key)) for key in _OF_STAGE} for stage in snapshot.stages]
        facts = {key: _brief(getattr(snapshot, key)) for key in _OF_RUN}
        self._line("progress", **facts, stages=stages)

    def _line(self, event: str, level: str = "info", **more: Any) -> None:
        write_text(self._stream, log_line(event, level, self._clock(), **more))


def _level(status: str) -> str:
    return {"failed": "error", "stopped": "warning"}.get(status, "info")


def _brief(value: Any) -> Any:
    """Return a number without the digits that no reader of a log needs."""
    return round(value, 4) if isinstance(value, float) else value
