# SPDX-License-Identifier: Apache-2.0
"""Alert rules for Prometheus, as the content of a rules file."""

from __future__ import annotations

from typing import Any

_RUN = "job, instance, outlet"
"""Labels of one run."""
_RUNNING = f'and on ({_RUN}) (thresher_run_state{{state="running"}} == 1)'

STALLED_FOR = "10m"
MEMORY_SHARE = 0.9
ERROR_SHARE = 0.02
"""Below the share at which a run stops by default."""
ERRORS_FROM = 1000
"""Number of records from which a share means something, as for `max_errors`."""
IDLE_SHARE = 0.5
LOST_WORKERS = 5


def alert_rules() -> dict[str, Any]:
    """Return the content of the rules file."""
    read = f'sum by ({_RUN}) (thresher_records_total{{kind=~"read|created"}})'
    quarantined = f'sum by ({_RUN}) (thresher_records_total{{kind="quarantined"}})'
    rules = [
        _rule(
            "ThresherStalled",
            f"sum by ({_RUN}) (thresher_documents_per_second) == 0 {_RUNNING}",
            STALLED_FOR,
            "critical",
            f"No stage has taken a document for {STALLED_FOR}.",
            "Look at workers, queues and errors; `thresher top` shows the last messages.",
        ),
        _rule(
            "ThresherMemoryNearLimit",
            f"thresher_memory_bytes / thresher_memory_limit_bytes > {MEMORY_SHARE} {_RUNNING}",
            "2m",
            "warning",
            "Memory is at {{ $value | humanizePercentage }} of its limit.",
            "New input waits above this share, and idle workers are stopped. Give more memory or fewer workers.",
        ),
        _rule(
            "ThresherErrorShare",
            f"{quarantined} / {read} > {ERROR_SHARE} and {read} >= {ERRORS_FROM} {_RUNNING}",
            "1m",
            "warning",
            "{{ $value | humanizePercentage }} of the records are in quarantine.",
            "`thresher quarantine RUN` shows why. The run stops at its max_errors, 5% by default.",
        ),
        _rule(
            "ThresherAcceleratorIdle",
            f"thresher_busy_ratio < {IDLE_SHARE} and on ({_RUN}, stage) (thresher_accelerators > 0) {_RUNNING}",
            "10m",
            "warning",
            "Workers of {{ $labels.stage }} hold accelerators and are {{ $value | humanizePercentage }} busy.",
            "Its input is too slow: look at the bottleneck before it, or give it fewer accelerators.",
        ),
        _rule(
            "ThresherDeviceIdle",
            f"thresher_gpu_busy_ratio < {IDLE_SHARE} {_RUNNING}",
            "10m",
            "warning",
            "The device {{ $labels.device }} is busy {{ $value | humanizePercentage }} of the time.",
            "Larger batches (batch_size) or several workers on one device may use it better.",
        ),
        _rule(
            "ThresherWorkersLost",
            f"sum by ({_RUN}) (increase(thresher_workers_lost_total[10m])) > {LOST_WORKERS} {_RUNNING}",
            "0m",
            "warning",
            "{{ $value | humanize }} workers were lost in ten minutes.",
            "Look at the messages of the run: memory, crashes of a library, lost nodes.",
        ),
    ]
    return {"groups": [{"name": "thresher", "rules": rules}]}


def _rule(name: str, expr: str, lasts: str, severity: str, *texts: str) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": expr,
        "for": lasts,
        "labels": {"severity": severity},
        "annotations": dict(zip(("summary", "description"), texts, strict=True)),
    }
