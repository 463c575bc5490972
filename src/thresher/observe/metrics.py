# SPDX-License-Identifier: Apache-2.0
"""Metrics: a pure fold over the events and actions of a run, without a clock.

Counts are net: the contribution of a void epoch is subtracted, so that a retry never counts a record twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from thresher.core.tally import Tally
from thresher.observe.progress import DeviceSnapshot, Message, Snapshot, StageSnapshot
from thresher.observe.report import OpFigures, Rates, bottleneck, stage_snapshot
from thresher.observe.task_tracker import TaskTracker
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.model import OpSpec

MESSAGES_KEPT = 5
"""Number of messages in a snapshot."""


class Restored(msgspec.Struct, frozen=True):
    """Work that earlier attempts had committed."""

    units: int = 0
    """Committed units."""
    nbytes: int = 0
    """Their input bytes, or their weight if they have one."""
    tally: Tally | None = None
    """Their counts."""


class _UnitState(msgspec.Struct):
    """An uncommitted unit."""

    nbytes: int  # size of its input, or its weight
    epoch: int = 0  # epoch of its tally
    read_bytes: int = 0  # bytes of it that count as done, at most nbytes
    tally: Tally | None = None  # contribution of this epoch so far
    stream: bool = False  # cut into other units, never committed itself
    weighted: bool = False  # its progress is what its reader says, because its bytes say nothing


class Metrics:
    """Current figures of a run: pass every event and action to `update` in log order, and call `snapshot` at any time.

    `update` takes O(1) for each task of the item; `snapshot` is proportional to stages and workers.
    """

    def __init__(
        self, stage_names: Sequence[str], ops: Sequence[OpSpec], restored: Restored | None = None, phases: int = 1
    ) -> None:
        self._names = tuple(stage_names)
        self._restored = restored or Restored()
        self._tasks = TaskTracker(ops)
        self._ops = OpFigures(self._names, ops, self._tasks)
        self._next_op = [op.next for op in ops]
        self._total = Tally(stages={})
        self._units: dict[str, _UnitState] = {}
        self._cut_units: set[str] = set()  # also committed ones, because a rerun of the stream names them again
        self._units_done = self._units_listed = self._restored.units
        self._bytes_done = self._bytes_listed = self._restored.nbytes  # or weight, for units that have one
        self._weighted = False
        self._more_input = True
        self._phases = phases
        self._phase = 0
        self._phase_ends = False  # the units that are listed next belong to another phase
        self._before_phase = (0, 0)  # bytes done and listed when the phase began
        self._memory = ev.MemorySample(0, 0)
        self._memory_peak = 0
        self._errors = 0
        self._messages: deque[Message] = deque(maxlen=MESSAGES_KEPT)
        self._message_count = 0
        self._rates = Rates(self._bytes_done)
        self._began = False
        self._status = "running"
        self._t = 0.0
        self._handlers: dict[type, Callable[[Any, act.TaskRef | None], None]] = {
            ev.UnitsListed: self._units_were_listed,
            ev.WorkerSetupFailed: self._worker_setup_failed,
            ev.WorkerLost: self._worker_lost,
            ev.TaskEmitted: self._task_reported,
            ev.TaskParked: self._task_reported,
            ev.TaskDone: self._task_done,
            ev.TaskFailed: self._task_failed,
            ev.UnitCommitted: self._unit_committed,
            ev.CommitFailed: self._commit_failed,
            ev.MemorySample: self._memory_sampled,
            ev.StopRequested: self._stop_requested,
            act.Dispatch: self._dispatched,
            act.Requeue: self._requeued,
            act.Rescale: self._ops.rescaled,
            act.Finish: self._finished,
            act.Fail: self._failed,
        }

    def update(self, t: float, item: ev.Event | act.Action) -> None:
        """Process one event or action that happened at `t` seconds."""
        self._t = self._tasks.now_s = t
        kind = type(item)
        track = self._tasks.handlers.get(kind)
        ref = track(item) if track is not None else None
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(item, ref)
        if t >= self._rates.next_sample_t:
            self._rates.sample(t, self._bytes_done, self._total)

    def snapshot(self, t: float) -> Snapshot:
        """Return the state of the run at `t` seconds, not earlier than the last update."""
        pool = self._tasks
        listed = self._bytes_listed
        complete = not self._more_input
        ratio = self._ratio() if complete else None
        left = listed - self._bytes_done + self._bytes_of_later_phases()
        counts = self._counts()
        stages = tuple(self._stage(number, counts, t) for number in range(len(self._names)))
        return Snapshot(
            elapsed_s=t,
            stages=stages,
            units_done=self._units_done,
            units_listed=self._units_listed,
            units_resumed=self._restored.units,
            listing_complete=complete,
            bytes_done=0 if self._weighted else self._bytes_done,
            bytes_listed=0 if self._weighted else listed,
            phase=self._phase + 1,
            phases=self._phases,
            progress_ratio=ratio,
            eta_s=self._rates.seconds_for(left, self._bytes_done, t) if complete and listed else None,
            memory_bytes=self._memory.used_bytes,
            memory_limit_bytes=self._memory.limit_bytes,
            memory_peak_bytes=self._memory_peak,
            inflight_bytes=pool.payload_bytes,
            workers_busy=pool.busy_workers(),
            workers_total=pool.ready_workers(),
            workers_starting=pool.starting_workers(),
            errors=self._errors,
            quarantined=sum(stage.quarantined for stage in counts.stages.values()),
            sent=counts.sent_to_outlets(),
            messages=tuple(self._messages),
            status=self._status,
            counts=counts.totals(),
            shared=pool.states_of(None),
            devices=tuple(
                DeviceSnapshot(
                    name=device.name,
                    memory_bytes=device.used_bytes,
                    memory_total_bytes=device.total_bytes,
                    busy_ratio=device.busy_percent / 100,
                )
                for device in self._memory.devices
            ),
            errors_elsewhere=self._ops.errors_of([None]),
            bottleneck=bottleneck(stages, self._ops.pools()),
        )

    def _ratio(self) -> float:
        """Return the share of the input that is done: by bytes or weight, or by units if no unit has a size."""
        if self._phases > 1:
            done, listed = self._before_phase
            here = self._bytes_listed - listed
            return (self._phase + ((self._bytes_done - done) / here if here else 1.0)) / self._phases
        if self._bytes_listed:
            return self._bytes_done / self._bytes_listed
        return self._units_done / self._units_listed if self._units_listed else 1.0

    def _bytes_of_later_phases(self) -> int:
        """Estimate the bytes of the phases that are not listed yet: each has as many as this one."""
        return (self._phases - self._phase - 1) * (self._bytes_listed - self._before_phase[1])

    @property
    def total(self) -> Tally:
        """Return the counts of this attempt so far, committed or not; no record counts twice."""
        return self._total

    def _counts(self) -> Tally:
        """Return the counts of this attempt and of what earlier attempts had committed."""
        if self._restored.tally is None:
            return self._total
        counts = Tally(stages={})
        counts.add(self._restored.tally)
        counts.add(self._total)
        return counts

    def _stage(self, number: int, counts: Tally, t: float) -> StageSnapshot:
        mine = self._total.stage(number)
        window, overall = self._rates.window(number, mine, t), self._rates.overall(number, mine, t)
        return stage_snapshot(number, counts.stage(number), (window, overall), self._ops)

    # -- units --------------------------------------------------------------------------------------------------------

    def _units_were_listed(self, event: ev.UnitsListed, _ref: act.TaskRef | None) -> None:
        # Units without bytes join files between two phases.
        begins = any(spec.weight or spec.nbytes for spec in event.units)
        if self._phase_ends and begins and self._phase + 1 < self._phases:
            self._phase += 1
            self._before_phase = self._bytes_done, self._bytes_listed
        self._phase_ends = event.input_ends or (self._phase > 0 and event.more)
        for spec in event.units:
            work = spec.weight or spec.nbytes
            self._units[spec.unit] = _UnitState(work, stream=spec.stream, weighted=spec.weight > 0)
            self._units_listed += not spec.stream
            self._bytes_listed += work
            self._weighted |= spec.weight > 0
            self._use_ops_from(spec.entry)
        self._more_input = event.more and not (self._phases > 1 and self._phase_ends)

    def _use_ops_from(self, entry: int | None) -> None:
        """Mark an op and those downstream as used; unused ops of the plan are not shown."""
        while entry is not None and entry not in self._ops.used:
            self._ops.used.add(entry)
            entry = self._next_op[entry]

    def _dispatched(self, action: act.Dispatch, _ref: act.TaskRef | None) -> None:
        self._begin()
        for ref in action.tasks:
            state = self._units.get(ref.unit)
            if state is not None and ref.epoch > state.epoch:
                self._void(state, ref.epoch)

    def _begin(self) -> None:
        """Mark the begin of work, at the first call."""
        if not self._began:
            self._began = True
            self._rates.begin(self._t, self._bytes_done)

    def _requeued(self, action: act.Requeue, _ref: act.TaskRef | None) -> None:
        state = self._units.get(action.unit)
        if state is not None and action.epoch > state.epoch:
            self._void(state, action.epoch)
            self._tasks.unit_restarted(action.unit)

    def _void(self, state: _UnitState, epoch: int) -> None:
        """Subtract the contribution of the unit under its old epoch."""
        if state.tally is not None:
            subtract(self._total, state.tally)
        self._bytes_done -= state.read_bytes
        state.tally, state.read_bytes, state.epoch = None, 0, epoch

    def _unit_committed(self, event: ev.UnitCommitted, _ref: act.TaskRef | None) -> None:
        if event.whole:
            self._begin()
            self._total.add(_counts_of(event.tally))
        state = self._units.pop(event.unit, None)
        self._units_done += 1
        if state is not None:
            self._bytes_done += state.nbytes - state.read_bytes

    # -- tasks --------------------------------------------------------------------------------------------------------

    def _task_reported(self, event: ev.TaskEmitted | ev.TaskParked | ev.TaskDone, ref: act.TaskRef | None) -> None:
        self._count(ref, event.tally)
        for output in event.outputs:
            if output.unit and output.unit not in self._cut_units:
                self._cut_units.add(output.unit)
                self._units[output.unit] = _UnitState(0)
                self._units_listed += 1

    def _task_done(self, event: ev.TaskDone, ref: act.TaskRef | None) -> None:
        self._task_reported(event, ref)
        state = self._units.get(ref.unit) if ref is not None else None
        if state is not None and state.stream:
            self._bytes_done += state.nbytes - state.read_bytes
            state.read_bytes = state.nbytes

    def _task_failed(self, event: ev.TaskFailed, ref: act.TaskRef | None) -> None:
        self._count(ref, event.tally)
        what = "a task failed" if event.fatal else "a task failed and is retried"
        self._error(f"{what}: {event.error}: {event.message}")

    def _count(self, ref: act.TaskRef | None, tally: Any) -> None:
        """Add the tally of a task, unless its unit is committed or has restarted in the meantime."""
        if tally is None or ref is None:
            return
        if not isinstance(tally, Tally):
            tally = msgspec.convert(tally, Tally, strict=False)
        state = self._units.get(ref.unit)
        if state is not None and ref.epoch == state.epoch:
            self._total.add(tally)
            if state.tally is None:
                state.tally = Tally(stages={})
            state.tally.add(tally)
            self._note_progress(state, state.tally)

    def _note_progress(self, state: _UnitState, tally: Tally) -> None:
        """Count the bytes that the reader has read of a unit as done: it says so, or is the first stage."""
        reader = tally.stages.get(0)
        if (reader is not None or tally.input_bytes) and state.nbytes:
            taken = 0 if state.weighted or reader is None else reader.in_bytes
            read = min(state.nbytes, tally.input_bytes or taken)
            self._bytes_done += read - state.read_bytes
            state.read_bytes = read

    # -- the rest -----------------------------------------------------------------------------------------------------

    def _worker_setup_failed(self, event: ev.WorkerSetupFailed, _ref: act.TaskRef | None) -> None:
        self._error(f"worker {event.worker} could not be set up: {event.message}")

    def _worker_lost(self, event: ev.WorkerLost, _ref: act.TaskRef | None) -> None:
        self._error(f"worker {event.worker} was lost: {event.reason}")

    def _commit_failed(self, event: ev.CommitFailed, _ref: act.TaskRef | None) -> None:
        self._error(f"commit of unit {event.unit} failed: {event.message}")

    def _memory_sampled(self, event: ev.MemorySample, _ref: act.TaskRef | None) -> None:
        self._memory = event if event.devices else msgspec.structs.replace(event, devices=self._memory.devices)
        self._memory_peak = max(self._memory_peak, event.used_bytes)

    def _stop_requested(self, event: ev.StopRequested, _ref: act.TaskRef | None) -> None:
        if not event.at_once:  # the second request of the same stop
            self._add_message(f"stopping: {event.reason}" if event.reason else "stopping")

    def _finished(self, action: act.Finish, _ref: act.TaskRef | None) -> None:
        self._end(action.status)

    def _failed(self, action: act.Fail, _ref: act.TaskRef | None) -> None:
        self._add_message(action.reason)
        self._end("failed")

    def _end(self, status: str) -> None:
        """End early or not: what is not committed does not count, as in the report."""
        self._status = status
        for state in self._units.values():
            if not state.stream:
                self._void(state, state.epoch)

    def _error(self, text: str) -> None:
        self._errors += 1
        self._add_message(text)

    def _add_message(self, text: str) -> None:
        self._message_count += 1
        self._messages.append(Message(self._message_count, self._t, " ".join(text.split())))


def _counts_of(record: Any) -> Tally:
    """Return the counts in the record of a commit, which is plain data if it comes from a log."""
    if record is None:
        return Tally(stages={})
    tally = record["tally"] if isinstance(record, dict) else record.tally
    return tally if isinstance(tally, Tally) else msgspec.convert(tally, Tally, strict=False)


def subtract(total: Tally, part: Tally) -> None:
    """Subtract `part`, which was added before, from `total`."""
    total.read -= part.read
    total.written -= part.written
    total.input_bytes -= part.input_bytes
    total.handed_on -= part.handed_on
    for number, theirs in part.stages.items():
        mine = total.stage(number)
        for field in theirs.__struct_fields__:
            value = getattr(theirs, field)
            if field == "examples":
                continue
            if isinstance(value, dict):
                counts = getattr(mine, field)
                for name, n in value.items():
                    counts[name] -= n
            elif field != "split_to":  # a size, not a count
                setattr(mine, field, getattr(mine, field) - value)
