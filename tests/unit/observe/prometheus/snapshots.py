# SPDX-License-Identifier: Apache-2.0
"""Snapshots to make metrics of."""

from __future__ import annotations

from msgspec.structs import replace

from thresher.observe.progress import (
    TIME_BOUNDS_S,
    DeviceSnapshot,
    RunInfo,
    Snapshot,
    StageSnapshot,
    TimeHistogram,
    WorkerStates,
)

INFO = RunInfo(name="a run", executor="local")
READER = StageSnapshot(
    name="Reader",
    leads=True,
    in_docs=100,
    out_docs=90,
    in_bytes=1000,
    out_bytes=900,
    tasks=3,
    quarantined=10,
    quarantine_reasons={"not-json": 10},
    errors={"OSError": 2},
    service=TimeHistogram((1, 0, 2, *(0,) * (len(TIME_BOUNDS_S) - 2)), 0.0125),
)
RULE = StageSnapshot(name='Rule "1"\n', leads=False, in_docs=90, dropped=40, drop_reasons={"A": 30, "B": 10})
SCORER = StageSnapshot(
    name="Scorer",
    leads=True,
    dedicated=WorkerStates(starting=1, ready=3, busy=2, recycled=4, lost=5),
    workers_busy=2,
    workers_target=4,
    scaled_up=2,
    scaled_down=1,
    accelerators=2,
    sent={"short": 7},
    user_counts={"languages": 5},
    charts={"kept": [{"bar": "en", "n": 3}, {"bar": 0.5, "n": 4, "parts": {"kept": 1, "dropped": 3}}]},
)
SNAPSHOT = Snapshot(
    elapsed_s=12.5,
    stages=(READER, RULE, SCORER),
    units_done=2,
    units_listed=5,
    progress_ratio=0.4,
    eta_s=18.75,
    memory_bytes=500,
    memory_limit_bytes=1000,
    counts={"read": 100, "written": 50, "dropped": 40, "quarantined": 10},
    shared=WorkerStates(starting=1, ready=2, busy=1),
    devices=(DeviceSnapshot(name="local/0", memory_bytes=10, memory_total_bytes=80, busy_ratio=0.25),),
    bottleneck="Scorer",
)


def with_stage(stage: StageSnapshot, **more: object) -> Snapshot:
    """A snapshot of one stage."""
    return replace(SNAPSHOT, stages=(stage,), **more)
