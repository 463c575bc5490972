# SPDX-License-Identifier: Apache-2.0
"""The Grafana dashboard, as the content of its JSON file."""

from __future__ import annotations

from typing import Any, NamedTuple

DATASOURCE = "thresher-prometheus"
"""Identifier of the data source in the provisioning."""
UID = "thresher"
_COLUMNS = 24
_S = 'instance=~"$instance"'


class Panel(NamedTuple):
    """One panel."""

    title: str
    queries: tuple[tuple[str, str], ...]  # expression and legend
    unit: str = "short"  # of Grafana
    kind: str = "timeseries"
    width: int = 8  # of 24 columns
    height: int = 8
    text: str = ""  # what it shows


def _rows() -> tuple[tuple[str, tuple[Panel, ...]], ...]:
    """Return the rows with their panels."""
    return (("The run", _run()), ("Stages", _stages()), ("Time and queues", _times()), ("Workers", _workers()))


def _run() -> tuple[Panel, ...]:
    return (
        Panel("State", ((f"thresher_run_state{{{_S}}} == 1", "{{state}}"),), kind="stat", width=4, height=4),
        Panel("Progress", ((f"thresher_progress_ratio{{{_S}}}", "{{outlet}}"),), "percentunit", "gauge", 4, 4),
        Panel("Remaining", ((f"thresher_eta_seconds{{{_S}}}", "{{outlet}}"),), "s", "stat", 4, 4),
        Panel(
            "Bottleneck",
            ((f"thresher_bottleneck{{{_S}}} == 1", "{{stage}}"),),
            kind="stat",
            width=6,
            height=4,
            text="The stage that takes most of the time of the busiest workers; none if all have time to spare.",
        ),
        Panel(
            "Phase and units",
            (
                (f"thresher_phase{{{_S}}}", "phase"),
                (f"thresher_phases{{{_S}}}", "of"),
                (f"thresher_units{{{_S}}}", "{{state}} units"),
            ),
            kind="stat",
            width=6,
            height=4,
        ),
        Panel(
            "Records",
            ((f"thresher_records_total{{{_S}}}", "{{kind}}"),),
            text="read + created = written + dropped + quarantined + merged + sent, at the end",
        ),
        Panel(
            "Memory",
            (
                (f"thresher_memory_bytes{{{_S}}}", "used"),
                (f"thresher_memory_limit_bytes{{{_S}}}", "limit"),
                (f"thresher_memory_peak_bytes{{{_S}}}", "peak"),
                (f"thresher_inflight_bytes{{{_S}}}", "between stages"),
            ),
            "bytes",
        ),
        Panel(
            "Input",
            ((f"thresher_input_bytes{{{_S}}}", "{{state}}"),),
            "bytes",
        ),
    )


def _by_stage(direction: str) -> str:
    return f'sum by (instance, outlet, stage) (thresher_documents_total{{{_S},direction="{direction}"}})'


def _stages() -> tuple[Panel, ...]:
    return (
        Panel("Documents into each stage", ((f"thresher_documents_per_second{{{_S}}}", "{{stage}}"),), "ops"),
        Panel("Bytes into each stage", ((f"thresher_bytes_per_second{{{_S}}}", "{{stage}}"),), "Bps"),
        Panel("Busy share", ((f"thresher_busy_ratio{{{_S}}}", "{{stage}}"),), "percentunit"),
        Panel("Kept", ((f"{_by_stage('out')} / ({_by_stage('in')} > 0)", "{{stage}}"),), "percentunit"),
        Panel(
            "Dropped, by reason",
            ((f"sum by (stage, reason) (thresher_dropped_total{{{_S}}})", "{{stage}}: {{reason}}"),),
        ),
        Panel(
            "Quarantined, by error",
            ((f"sum by (stage, reason) (thresher_quarantine_reasons_total{{{_S}}})", "{{stage}}: {{reason}}"),),
        ),
        Panel("Sent to outlets", ((f"sum by (stage, to) (thresher_sent_total{{{_S}}})", "{{stage}} to {{to}}"),)),
        Panel("Own numbers of stages", ((f"thresher_user_value{{{_S}}}", "{{stage}}: {{name}}"),)),
        Panel(
            "Errors and retries",
            (
                (f"sum by (stage, reason) (thresher_errors_total{{{_S}}})", "{{stage}}: {{reason}}"),
                (f"sum by (stage) (thresher_retries_total{{{_S}}}) > 0", "{{stage}}: retries"),
            ),
        ),
    )


def _times() -> tuple[Panel, ...]:
    def quantiles(name: str) -> tuple[tuple[str, str], ...]:
        rate = f"sum by (stage, le) (rate(thresher_{name}_seconds_bucket{{{_S}}}[$__rate_interval]))"
        return tuple((f"histogram_quantile({q}, {rate})", f"{{{{stage}}}} p{q * 100:.0f}") for q in (0.5, 0.95))

    return (
        Panel("Time of a task", quantiles("task"), "s"),
        Panel("Waiting time of a task", quantiles("queue"), "s"),
        Panel("Tasks", ((f"rate(thresher_tasks_total{{{_S}}}[$__rate_interval])", "{{stage}}"),), "ops"),
        Panel("Queues", ((f"thresher_queue_tasks{{{_S}}}", "{{stage}}"),)),
        Panel("Bytes in queues", ((f"thresher_queue_bytes{{{_S}}}", "{{stage}}"),), "bytes"),
        Panel(
            "Backpressure",
            (
                (f"rate(thresher_backpressure_seconds_total{{{_S}}}[$__rate_interval])", "{{stage}}"),
                (f"thresher_parked_tasks{{{_S}}} > 0", "{{stage}}: parked tasks"),
            ),
            text="Share of the time in which tasks waited for credit, or although a worker was free.",
        ),
    )


def _workers() -> tuple[Panel, ...]:
    return (
        Panel("Workers by state", ((f"sum by (state) (thresher_workers{{{_S}}})", "{{state}}"),)),
        Panel("Busy workers", ((f'thresher_workers{{{_S},state="busy"}}', "{{stage}}"),)),
        Panel(
            "Recycled and lost workers",
            (
                (f"sum(thresher_workers_recycled_total{{{_S}}})", "recycled"),
                (f"sum(thresher_workers_lost_total{{{_S}}})", "lost"),
            ),
        ),
        Panel(
            "Autoscaler",
            (
                (f"thresher_workers_target{{{_S}}}", "{{stage}}: wanted"),
                (f"thresher_autoscaler_decisions_total{{{_S}}}", "{{stage}}: {{direction}}"),
            ),
        ),
        Panel(
            "Accelerators",
            (
                (f"thresher_gpu_busy_ratio{{{_S}}}", "{{device}} busy"),
                (
                    f"thresher_busy_ratio{{{_S}}} and on (instance, outlet, stage) thresher_accelerators > 0",
                    "{{stage}}",
                ),
            ),
            "percentunit",
            text="Devices as NVML measures them, and the busy share of the stages that hold accelerators.",
        ),
        Panel(
            "Accelerator memory",
            (
                (f"thresher_gpu_memory_bytes{{{_S}}}", "{{device}}"),
                (f"thresher_gpu_memory_limit_bytes{{{_S}}}", "{{device}} limit"),
            ),
            "bytes",
        ),
    )


def queries() -> list[str]:
    """Return every query of the dashboard."""
    return [expr for _, panels in _rows() for panel in panels for expr, _ in panel.queries]


def dashboard() -> dict[str, Any]:
    """Return the content of the dashboard's file."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in _rows():
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "gridPos": _place(0, top, _COLUMNS, 1)})
        left, top, height = 0, top + 1, 0
        for panel in row:
            if left + panel.width > _COLUMNS:
                left, top, height = 0, top + height, 0
            panels.append(_panel(len(panels) + 1, panel, _place(left, top, panel.width, panel.height)))
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return {
        "uid": UID,
        "title": "Thresher",
        "tags": ["thresher"],
        "schemaVersion": 38,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "editable": True,
        "templating": {"list": [_instances()]},
        "panels": panels,
    }


def _place(left: int, top: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _source() -> dict[str, str]:
    return {"type": "prometheus", "uid": DATASOURCE}


def _instances() -> dict[str, Any]:
    """Return the variable that chooses the runs."""
    query = "label_values(thresher_run_info, instance)"
    return {
        "name": "instance",
        "label": "run",
        "type": "query",
        "datasource": _source(),
        "definition": query,
        "query": {"query": query, "refId": "instances"},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + n), "datasource": _source(), "expr": expr, "legendFormat": legend}
        for n, (expr, legend) in enumerate(panel.queries)
    ]
    options = {"textMode": "value_and_name"} if panel.kind == "stat" else {}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _source(),
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": options,
        "targets": targets,
    }
