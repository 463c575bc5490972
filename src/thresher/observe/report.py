# SPDX-License-Identifier: Apache-2.0
"""From counts to figures: those of a stage at one moment, with its rates and what its tasks and workers do, and the
report of a run, a plain dict that is the content of report.json and `RunResult.to_dict()`."""

from __future__ import annotations

import os
import sys
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from thresher.core.tally import StageTally, Tally, counts_add_up
from thresher.observe.progress import StageSnapshot
from thresher.observe.task_tracker import TaskTracker, Times
from thresher.scheduler import actions as act
from thresher.scheduler.model import OpSpec

__all__ = [
    "OpFigures",
    "Rates",
    "RunFacts",
    "bottleneck",
    "build_report",
    "package_versions",
    "stage_snapshot",
]

_VERSIONS_OF = ("thresher", "pyarrow", "numpy", "msgspec", "tokenizers", "onnxruntime", "torch", "transformers")
SAMPLE_S = 0.5
"""Time between samples."""
WINDOW_S = 5.0
"""Window for the rates of stages."""
PACE_S = 60.0
"""Window for the remaining time: longer, so that it does not jump with every commit."""
SPARE = 0.5
"""Workers that are busy for a smaller share of the time have time to spare: no stage of theirs is a bottleneck."""


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a report besides counts."""

    run_id: str
    """The id of the run."""
    run_dir: str | None
    """Its folder; `None` for a run without a ledger."""
    name: str
    """The name of the pipeline."""
    status: str
    """`finished` or `nothing-to-do`; in the report of a run that ended early also `failed` or `stopped`."""
    executor: str
    """The name of the executor."""
    stage_names: tuple[str, ...]
    """Names of the stages, in plan order."""
    stage_workers: tuple[int, ...] = ()
    """Maximum number of workers that could run each stage, in plan order."""
    output_paths: tuple[str, ...] = ()
    """Finished output files, in input order."""
    has_writer: bool = True
    """False if the pipeline has no writer."""
    dropped_to: str | None = None
    """Folder of dropped records, if requested."""
    units_total: int = 0
    """Number of units of the run."""
    units_resumed: int = 0
    """Units that an earlier attempt had committed."""
    wall_s: float = 0.0
    """Seconds of this attempt."""
    peak_memory_bytes: int = 0
    """Largest memory sample of this attempt."""
    memory_limit_bytes: int = 0
    """Memory limit; 0: none."""
    error: str | None = None
    """Reason of an early end; `None` if there was none."""
    slowest_units: tuple[dict[str, Any], ...] = ()
    """The units that took the longest: `unit`, `busy_s`, `read`, `written`."""


def build_report(facts: RunFacts, tally: Tally, versions: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the report of a run. `tally` is the sum over its committed units, restored ones included."""
    totals = tally.totals()
    stages = [
        _stage_entry(name, tally.stages.get(number) or StageTally(), _at(facts.stage_workers, number))
        for number, name in enumerate(facts.stage_names)
    ]
    return {
        "run_id": facts.run_id,
        "run_dir": facts.run_dir,
        "name": facts.name,
        "status": facts.status,
        "error": facts.error,
        "executor": facts.executor,
        "counts": totals,
        "counts_add_up": counts_add_up(totals),
        "unknown_losses": sum(stage.unknown_losses for stage in tally.stages.values()),
        "extra_values": dict(sorted(tally.extras.items())),
        "stages": stages,
        "drop_reasons": _by_reason(facts.stage_names, tally, "reasons"),
        "quarantine_reasons": _by_reason(facts.stage_names, tally, "errors"),
        "quarantine_examples": _examples(facts.stage_names, tally),
        "slowest_units": list(facts.slowest_units),
        "warnings": [*tally.common_failures(facts.stage_names), *_missing_fields(facts.stage_names, tally)],
        "output_paths": list(facts.output_paths),
        "has_writer": facts.has_writer,
        "dropped_to": facts.dropped_to,
        "units_total": facts.units_total,
        "units_resumed": facts.units_resumed,
        "wall_s": round(facts.wall_s, 3),
        "peak_memory_bytes": facts.peak_memory_bytes,
        "memory_limit_bytes": facts.memory_limit_bytes,
        "versions": package_versions() if versions is None else versions,
    }


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that made the output, from installed metadata, without importing them."""
    found = {"python": sys.version.split()[0]}
    for package in _VERSIONS_OF:
        version = _version_of(package)
        if version is not None:
            found[package] = version
    return found


def _version_of(package: str) -> str | None:
    """Return the version of an installed package from the name of its `.dist-info` folder: importing
    `importlib.metadata` takes longer than a small run."""
    for folder in sys.path:
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in entries:
            if entry.startswith(f"{package}-") and entry.endswith(".dist-info"):
                return entry.removeprefix(f"{package}-").removesuffix(".dist-info")
    return None


def _stage_entry(name: str, tally: StageTally, workers: int) -> dict[str, Any]:
    return {
        "name": name,
        "in_docs": tally.in_docs,
        "out_docs": tally.out_docs,
        "in_bytes": tally.in_bytes,
        "out_bytes": tally.out_bytes,
        "created": tally.created,
        "merged": tally.merged,
        "dropped": tally.dropped,
        "quarantined": tally.quarantined,
        "tasks": tally.tasks,
        "retries": tally.retries,
        "splits": tally.splits,
        "split_to": tally.split_to or None,
        "busy_s": round(tally.busy_s, 6),
        "workers": workers,
        "user_counts": tally.own_counts(),
        **({"sent": dict(sorted(tally.sent.items()))} if tally.sent else {}),
        **({"charts": charts} if (charts := tally.charts()) else {}),
    }


def _by_reason(names: tuple[str, ...], tally: Tally, field: str) -> dict[str, int]:
    """Return `{"Stage/Rule": n}`, the most frequent first, ties by name, so that reports are deterministic."""
    found = {
        f"{name}/{reason}": n
        for number, name in enumerate(names)
        if number in tally.stages
        for reason, n in getattr(tally.stages[number], field).items()
        if n
    }
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _examples(names: tuple[str, ...], tally: Tally) -> dict[str, str]:
    """Return one quarantined record for each `Stage/error`: its id, and what was wrong."""
    stages = sorted(tally.stages.items())
    return {f"{names[number]}/{error}": text for number, stage in stages for error, text in stage.examples.items()}


def _missing_fields(names: tuple[str, ...], tally: Tally) -> list[str]:
    return [
        f"{names[number]}: no record has the field {field!r}.{hint}"
        for number, stage in sorted(tally.stages.items())
        for field, hint in stage.missing_fields().items()
    ]


def _at(numbers: tuple[int, ...], place: int) -> int:
    return numbers[place] if place < len(numbers) else 0


# -- the figures of a stage at one moment -----------------------------------------------------------------------------


class OpFigures:
    """Ops of each stage, and the decisions about their workers."""

    def __init__(self, names: tuple[str, ...], ops: Sequence[OpSpec], tasks: TaskTracker) -> None:
        self.names = names
        """Names of the stages, in plan order."""
        self.tasks = tasks
        """Tasks and workers of all ops."""
        self.used: set[int] = set()
        """Ops that units of this run pass through; the others of the plan are not shown."""
        numbers = {name: number for number, name in enumerate(names)}
        self._stages = [tuple(numbers[name] for name in op.stages if name in numbers) for op in ops]
        self._targets: dict[int, int] = {}
        self._up: Counter[int] = Counter()
        self._down: Counter[int] = Counter()

    def rescaled(self, action: act.Rescale, _ref: act.TaskRef | None) -> None:
        """Count a decision of the autoscaler."""
        self._targets[action.op] = action.workers
        (self._up if action.workers > action.before else self._down)[action.op] += 1

    def led_by(self, number: int) -> list[int]:
        """Return the used ops whose first stage this is."""
        return [op for op in sorted(self.used) if self._stages[op][:1] == (number,)]

    def containing(self, number: int) -> list[int]:
        """Return the used ops that run this stage."""
        return [op for op in sorted(self.used) if number in self._stages[op]]

    def pools(self) -> dict[int | None, set[int]]:
        """Return the stages that run in each pool of workers: an op's dedicated ones, or `None` for the shared ones."""
        found: dict[int | None, set[int]] = {}
        for op in sorted(self.used):
            found.setdefault(op if self.tasks.has_workers(op) else None, set()).update(self._stages[op])
        return found

    def errors_of(self, ops: Sequence[int | None]) -> dict[str, int]:
        """Return the failures in some ops, by reason."""
        found: Counter[str] = Counter()
        for (op, reason), n in self.tasks.errors.items():
            if op in ops:
                found[reason] += n
        return dict(sorted(found.items()))

    def decisions(self, ops: Sequence[int]) -> tuple[int, int, int]:
        """Return the number of workers that the autoscaler wants for some ops, and its decisions for more and fewer."""
        target = sum(self._targets.get(op, 0) for op in ops)
        return target, sum(self._up[op] for op in ops), sum(self._down[op] for op in ops)


def stage_snapshot(number: int, tally: StageTally, speeds: tuple[Speed, Speed], figures: OpFigures) -> StageSnapshot:
    """Return the figures of a stage. `speeds`: its rates over the window, and since work began."""
    window, overall = speeds
    tasks, ops = figures.tasks, figures.led_by(number)
    lost_docs = tally.dropped + tally.quarantined
    base = tally.in_docs or tally.out_docs + lost_docs
    own = [op for op in ops if tasks.has_workers(op)]
    target, up, down = figures.decisions(ops)
    return StageSnapshot(
        name=figures.names[number],
        leads=bool(ops),
        in_docs=tally.in_docs,
        out_docs=tally.out_docs,
        in_bytes=tally.in_bytes,
        out_bytes=tally.out_bytes,
        dropped=tally.dropped,
        quarantined=tally.quarantined,
        kept_ratio=1 - lost_docs / base if base else None,
        docs_per_s=window.docs_per_s,
        bytes_per_s=window.bytes_per_s,
        docs_per_s_overall=overall.docs_per_s,
        bytes_per_s_overall=overall.bytes_per_s,
        busy_ratio=min(1.0, window.busy_s_per_s / max(1, tasks.workers_for(figures.containing(number)))),
        queue_tasks=sum(tasks.queue_tasks[op] for op in ops),
        queue_bytes=sum(tasks.queue_bytes[op] for op in ops),
        workers_busy=sum(tasks.busy_in(op) for op in ops),
        workers_total=tasks.workers_for(ops),
        created=tally.created,
        merged=tally.merged,
        tasks=tally.tasks,
        retries=tally.retries,
        busy_s=tally.busy_s,
        drop_reasons=_without_zeros(tally.reasons),
        quarantine_reasons=_without_zeros(tally.errors),
        sent=_without_zeros(tally.sent),
        user_counts=tally.own_counts(),
        charts=tally.charts(),
        errors=figures.errors_of(ops),
        service=Times.merged(tasks.service[op] for op in ops),
        queue=Times.merged(tasks.queue[op] for op in ops),
        backpressure_s=sum(tasks.backpressure_s[op] for op in ops),
        parked_tasks=sum(1 for op in tasks.parked.values() if op in ops),
        dedicated=tasks.states_of(own[0]) if own else None,
        workers_target=target,
        scaled_up=up,
        scaled_down=down,
        accelerators=tasks.devices_of(own),
    )


def bottleneck(stages: Sequence[StageSnapshot], pools: dict[int | None, set[int]]) -> str | None:
    """Return the stage that takes most of the time of the busiest pool of workers; `None` if all have time to spare."""
    busy = {pool: sum(stages[number].busy_ratio for number in members) for pool, members in pools.items() if members}
    if not busy or max(busy.values()) < SPARE:
        return None
    members = pools[max(busy, key=lambda pool: busy[pool])]
    return max((stages[number] for number in sorted(members)), key=lambda stage: stage.busy_ratio).name


def _without_zeros(counts: dict[str, int]) -> dict[str, int]:
    return {name: n for name, n in sorted(counts.items()) if n}


# -- rates ------------------------------------------------------------------------------------------------------------


class Speed(NamedTuple):
    """Rates of a stage."""

    docs_per_s: float = 0.0  # records
    bytes_per_s: float = 0.0  # bytes
    busy_s_per_s: float = 0.0  # seconds of its own code per second: 2.0 is two busy workers


class _Counters(NamedTuple):
    docs: int
    nbytes: int
    busy_s: float


class _Sample(NamedTuple):
    t: float
    bytes_done: int
    stages: dict[int, _Counters]


def _counters(tally: StageTally) -> _Counters:
    # A reader that is the first stage may have no input counts.
    return _Counters(tally.in_docs or tally.out_docs, tally.in_bytes or tally.out_bytes, tally.busy_s)


_NOTHING = _Counters(0, 0, 0.0)


class Rates:
    """Samples of the last minute."""

    def __init__(self, bytes_done: int) -> None:
        self.next_sample_t = 0.0
        self._begin: _Sample | None = None
        self._samples: deque[_Sample] = deque([_Sample(0.0, bytes_done, {})])

    def begin(self, t: float, bytes_done: int) -> None:
        """Mark the begin of work at the first call: the time before was spent on setup."""
        if self._begin is None:
            self._begin = _Sample(t, bytes_done, {})
            self._samples = deque([self._begin])

    def sample(self, t: float, bytes_done: int, total: Tally) -> None:
        """Store a sample of all counters."""
        self.next_sample_t = t + SAMPLE_S
        stages = {number: _counters(tally) for number, tally in total.stages.items()}
        self._samples.append(_Sample(t, bytes_done, stages))
        while len(self._samples) > 2 and self._samples[1].t <= t - PACE_S:
            self._samples.popleft()

    def window(self, number: int, tally: StageTally, t: float) -> Speed:
        """Return the rates of a stage over the last few seconds."""
        return _speed(self._sample_before(t - WINDOW_S), number, tally, t)

    def overall(self, number: int, tally: StageTally, t: float) -> Speed:
        """Return the rates of a stage since work began."""
        return _speed(self._begin, number, tally, t) if self._begin is not None else Speed()

    def seconds_for(self, left_bytes: int, bytes_done: int, t: float) -> float | None:
        """Return the time for `left_bytes` at the rate of the last minute; `None` if there is no rate yet."""
        first = self._sample_before(t - PACE_S)
        moved = bytes_done - first.bytes_done
        if left_bytes <= 0:
            return 0.0
        return left_bytes * (t - first.t) / moved if moved > 0 else None

    def _sample_before(self, t: float) -> _Sample:
        """Return the latest sample at or before `t`, else the oldest sample."""
        for sample in reversed(self._samples):
            if sample.t <= t:
                return sample
        return self._samples[0]


def _speed(since: _Sample, number: int, tally: StageTally, t: float) -> Speed:
    now, then, seconds = _counters(tally), since.stages.get(number, _NOTHING), t - since.t
    if seconds <= 0:
        return Speed()
    # The counts of a unit that restarts are subtracted; a negative rate would be meaningless.
    return Speed(
        max(0.0, (now.docs - then.docs) / seconds),
        max(0.0, (now.nbytes - then.nbytes) / seconds),
        max(0.0, (now.busy_s - then.busy_s) / seconds),
    )
