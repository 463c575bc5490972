# SPDX-License-Identifier: Apache-2.0
"""Chart who used which accelerator, from the lines of an event log, in bounded memory."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from thresher.scheduler.model import LOCAL_NODE

MOST_BINS = 240
"""Bins of a chart; when there would be more, two become one."""
MOST_LANES = 64
"""Workers that are drawn."""
_OF_WORKER = re.compile(rb'"(?:StartWorker|StopWorker|WorkerLost)"')
"""Kinds of lines about workers: few, so they are decoded."""
_OF_TASK = re.compile(
    rb'"t":([0-9.]+),"(?:action|event)":"(Dispatch|TaskDone|TaskFailed|TaskParked|Resume|Requeue)",'
    rb'(?:"task":-?[0-9]+,)?"worker":([0-9]+)'
)
"""Pattern of a line about a task: time, kind, worker. There are millions, so they are not decoded."""


class _Item(msgspec.Struct):
    """Part of a line that the chart needs."""

    t: float = 0.0
    action: str = ""
    worker: int = -1
    op: int | None = None
    node: str = LOCAL_NODE
    devices: tuple[int, ...] = ()


_items = msgspec.json.Decoder(_Item)


class Lane:
    """One worker on its accelerators."""

    def __init__(self, name: str, op: int, t: float) -> None:
        self.name = name
        self.op = op
        self.busy: dict[int, float] = {}
        """Busy seconds by bin."""
        self.held = 0
        self.since = t
        self.start = t
        self.end: float | None = None


class Gantt:
    """Busy time of every worker with accelerators, in bins whose width doubles as the run goes on."""

    def __init__(self) -> None:
        self.lanes: dict[int, Lane] = {}
        self.width_s = 0.25
        self.t = 0.0
        self.more = 0
        """Workers beyond those that are drawn."""

    def take(self, line: bytes) -> None:
        """Process one line of the log; lines about anything else are skipped before they are decoded."""
        found = _OF_TASK.search(line, 0, 160) if self.lanes else None
        if found is not None:
            lane = self.lanes.get(int(found[3]))
            if lane is not None:
                self._task(lane, float(found[1]), found[2], line.count(b'"task":'))
        elif _OF_WORKER.search(line, 0, 80):
            self._worker(_items.decode(line))

    def _worker(self, item: _Item) -> None:
        if item.action == "StartWorker" and item.devices and item.op is not None:
            if len(self.lanes) >= MOST_LANES:
                self.more += 1
                return
            where = "+".join(f"{item.node}/{device}" for device in item.devices)
            self.lanes[item.worker] = Lane(f"{where} · worker {item.worker}", item.op, item.t)
        elif item.worker in self.lanes:
            lane = self.lanes[item.worker]
            self._advance(lane, item.t)
            lane.held, lane.end = 0, item.t

    def _task(self, lane: Lane, t: float, kind: bytes, tasks: int) -> None:
        self._advance(lane, t)
        if kind == b"Dispatch":
            lane.held += tasks
        elif kind == b"Resume":
            lane.held += 1
        elif kind == b"Requeue":  # rare; a task that still runs is seen again with its next event
            lane.held = 0
        else:
            lane.held = max(0, lane.held - 1)

    def _advance(self, lane: Lane, t: float) -> None:
        """Add the time since the last event of a worker to its bins, if it held a task."""
        self.t = max(self.t, t)
        while self.t >= MOST_BINS * self.width_s:
            self._widen()
        if lane.held:
            begin = lane.since
            while begin < t:
                place = int(begin / self.width_s)
                end = min(t, (place + 1) * self.width_s)
                lane.busy[place] = lane.busy.get(place, 0.0) + end - begin
                begin = end if end > begin else t
        lane.since = t

    def _widen(self) -> None:
        self.width_s *= 2
        for lane in self.lanes.values():
            joined: dict[int, float] = {}
            for place, busy_s in lane.busy.items():
                joined[place // 2] = joined.get(place // 2, 0.0) + busy_s
            lane.busy = joined

    def as_json(self) -> dict[str, Any]:
        """Return the chart: for each worker the share of each bin in which it was busy."""
        lanes = [
            {
                "name": lane.name,
                "op": lane.op,
                "start": round(lane.start, 2),
                "end": None if lane.end is None else round(lane.end, 2),
                "busy": [[place, round(min(1.0, s / self.width_s), 3)] for place, s in sorted(lane.busy.items())],
            }
            for lane in self.lanes.values()
        ]
        return {"width_s": self.width_s, "t": round(self.t, 2), "lanes": lanes, "more": self.more}
