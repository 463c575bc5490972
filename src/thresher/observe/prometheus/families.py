# SPDX-License-Identifier: Apache-2.0
"""The metrics of a run as families of samples, a function of snapshots.

Label values come from rules, errors and users, so their number is limited: the first `MOST_NAMES` of each stage and
family keep their names, in order of appearance, and the rest counts as `other`. So a series never changes its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from thresher.observe.progress import (
    TIME_BOUNDS_S,
    RunInfo,
    Snapshot,
    StageSnapshot,
    TimeHistogram,
    WorkerStates,
)
from thresher.version import __version__

MOST_NAMES = 30
"""Number of values of a label that users or data decide, for each stage."""
MOST_CHARACTERS = 120
"""Length of such a value."""
OTHER = "other"
STATUSES = ("running", "finished", "stopped", "failed")

Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One value."""

    suffix: str  # after the name of the family, such as "_total"
    labels: Labels  # names and values
    value: float  # a whole number is shown as one


class Spec(NamedTuple):
    """A family without its samples."""

    name: str  # without the suffix of its samples
    kind: str  # "gauge", "counter", "histogram" or "info"
    text: str  # what it means
    unit: str = ""  # the last word of the name, if that is a unit


Family = tuple[Spec, list[Sample]]


def _specs(*specs: tuple[str, str, str, str] | tuple[str, str, str]) -> dict[str, Spec]:
    return {spec[0]: Spec(f"thresher_{spec[0]}", *spec[1:]) for spec in specs}


SPECS = _specs(
    ("run", "info", "The run: its name, its executor, the version of Thresher."),
    ("run_state", "gauge", "1 for the state that the run is in, 0 for the others."),
    ("run_seconds", "gauge", "Time since the start of this attempt.", "seconds"),
    ("phase", "gauge", "The phase that runs, from 1 on."),
    ("phases", "gauge", "Number of phases."),
    ("units", "gauge", "Units of input by state; those that an earlier attempt had done are among the done ones."),
    ("input_bytes", "gauge", "Bytes of input that are listed, and that are done.", "bytes"),
    ("progress_ratio", "gauge", "Share of the input that is done; absent while input is being listed.", "ratio"),
    ("eta_seconds", "gauge", "Remaining time at the rate of the last minute; absent if unknown.", "seconds"),
    ("records", "counter", "Records by what became of them: read + created = the sum of the others."),
    ("documents", "counter", "Records that came into a stage, and that went on."),
    ("bytes", "counter", "Bytes that came into a stage, and that went on.", "bytes"),
    ("created", "counter", "New records that a stage made."),
    ("merged", "counter", "Records that new ones replaced."),
    ("dropped", "counter", "Records that a stage dropped, by rule."),
    ("quarantined", "counter", "Records that were quarantined because they failed in a stage."),
    ("quarantine_reasons", "counter", "Records that were quarantined, by kind of error."),
    ("sent", "counter", "Records that a stage sent to an outlet."),
    ("tasks", "counter", "Calls of a stage."),
    ("retries", "counter", "Calls of a stage that were made again."),
    ("errors", "counter", "Failures of tasks, workers and commits in this attempt, retried or not."),
    ("busy_seconds", "counter", "Time in the code of a stage, over all workers.", "seconds"),
    ("task_seconds", "histogram", "Time that finished tasks ran.", "seconds"),
    ("queue_seconds", "histogram", "Time that finished tasks waited for a worker, in it, or for credit.", "seconds"),
    ("queue_tasks", "gauge", "Tasks that wait for a worker; units, for a reader."),
    ("queue_bytes", "gauge", "Bytes of the tasks that wait for a worker.", "bytes"),
    ("parked_tasks", "gauge", "Tasks that wait for credit in their workers."),
    (
        "backpressure_seconds",
        "counter",
        "Time in which tasks waited for credit, or although a worker was free.",
        "seconds",
    ),
    ("documents_per_second", "gauge", "Records that came into a stage a second, over the last seconds."),
    ("bytes_per_second", "gauge", "Bytes that came into a stage a second, over the last seconds."),
    (
        "busy_ratio",
        "gauge",
        "Share of the time of its workers that went into a stage's code, over the last seconds.",
        "ratio",
    ),
    ("bottleneck", "gauge", "1 for the stage that takes most of the time of the busiest workers, 0 for the others."),
    (
        "workers",
        "gauge",
        "Workers by state; ready = busy + idle. Shared workers have a stage only while busy.",
    ),
    ("workers_recycled", "counter", "Workers that were replaced because of age, memory, tasks or a failure of theirs."),
    ("workers_lost", "counter", "Workers that crashed, hung, could not be set up, or were on a lost node."),
    ("workers_target", "gauge", "Dedicated workers that the autoscaler wants; absent before its first decision."),
    ("autoscaler_decisions", "counter", "Decisions of the autoscaler for more and for fewer workers."),
    ("accelerators", "gauge", "Accelerators of the workers of a stage."),
    ("memory_bytes", "gauge", "Memory of the run: on a cluster, of its fullest node.", "bytes"),
    ("memory_peak_bytes", "gauge", "Largest memory so far.", "bytes"),
    ("memory_limit_bytes", "gauge", "Ceiling for the memory; absent if there is none.", "bytes"),
    ("inflight_bytes", "gauge", "Bytes of data between stages.", "bytes"),
    ("gpu_memory_bytes", "gauge", "Memory in use on an accelerator, by any process.", "bytes"),
    ("gpu_memory_limit_bytes", "gauge", "Memory of an accelerator.", "bytes"),
    ("gpu_busy_ratio", "gauge", "Share of the time in which an accelerator was busy, as NVML measures it.", "ratio"),
    ("user_value", "gauge", "Numbers that a stage counted itself, or that tasks carried to their end."),
    ("chart_value", "gauge", "Bars of the charts of a stage."),
)
"""All families, by their names without the prefix."""


class RunMetrics:
    """Makes families of the last snapshots of one or more runs: that of a pipeline and those of its outlets."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], dict[str, None]] = {}  # label values that keep their names
        self._highest: dict[tuple[str, Labels], float] = {}  # last values of counters

    def families(self, runs: Iterable[tuple[str, RunInfo, Snapshot]]) -> list[Family]:
        """Return the families of runs, each with the name of its outlet (empty for the pipeline itself)."""
        samples: dict[str, list[Sample]] = {name: [] for name in SPECS}
        for outlet, info, snapshot in runs:
            outlets: Labels = (("outlet", outlet),) if outlet else ()
            running = snapshot.status == "running"
            for name, labels, value in (*self._run(outlet, info, snapshot), *self._stages(outlet, snapshot)):
                samples[name].extend(self._samples(SPECS[name], (*labels, *outlets), value, running))
        return [(SPECS[name], found) for name, found in samples.items() if found]

    def _samples(self, spec: Spec, labels: Labels, value: float | TimeHistogram, running: bool) -> Iterator[Sample]:
        if isinstance(value, TimeHistogram):
            total = 0
            for bound, n in zip((*TIME_BOUNDS_S, float("inf")), value.counts, strict=True):
                total += n
                yield Sample("_bucket", (*labels, ("le", f"{bound:g}" if bound < float("inf") else "+Inf")), total)
            yield Sample("_sum", labels, value.sum_s)
            yield Sample("_count", labels, total)
        elif spec.kind == "counter":
            if running:  # the counts of a unit that starts again are taken back, and a counter must not
                value = max(value, self._highest.get((spec.name, labels), value))
                self._highest[spec.name, labels] = value
            yield Sample("_total", labels, value)
        else:
            yield Sample("_info" if spec.kind == "info" else "", labels, value)

    def _run(self, outlet: str, info: RunInfo, s: Snapshot) -> Iterator[tuple[str, Labels, float]]:
        yield "run", (("name", info.name), ("executor", info.executor), ("version", __version__)), 1
        for status in STATUSES:
            yield "run_state", (("state", status),), int(s.status == status)
        yield from (("run_seconds", (), s.elapsed_s), ("phase", (), s.phase), ("phases", (), s.phases))
        for state, n in (("listed", s.units_listed), ("done", s.units_done), ("resumed", s.units_resumed)):
            yield "units", (("state", state),), n
        yield "input_bytes", (("state", "listed"),), s.bytes_listed
        yield "input_bytes", (("state", "done"),), s.bytes_done
        if s.progress_ratio is not None:
            yield "progress_ratio", (), s.progress_ratio
        if s.eta_s is not None:
            yield "eta_seconds", (), s.eta_s
        for kind, n in s.counts.items():
            yield "records", (("kind", kind),), n
        yield from (("memory_bytes", (), s.memory_bytes), ("memory_peak_bytes", (), s.memory_peak_bytes))
        if s.memory_limit_bytes:
            yield "memory_limit_bytes", (), s.memory_limit_bytes
        yield "inflight_bytes", (), s.inflight_bytes
        for device in s.devices:
            labels = (("device", device.name),)
            yield "gpu_memory_bytes", labels, device.memory_bytes
            yield "gpu_memory_limit_bytes", labels, device.memory_total_bytes
            yield "gpu_busy_ratio", labels, device.busy_ratio
        yield from _worker_states("", s.shared)
        for reason, failures in self._bounded(("errors", outlet, ""), s.errors_elsewhere).items():
            yield "errors", (("stage", ""), ("reason", reason)), failures

    def _stages(self, outlet: str, s: Snapshot) -> Iterator[tuple[str, Labels, float | TimeHistogram]]:
        for stage in s.stages:
            name = (("stage", stage.name),)
            yield "bottleneck", name, int(stage.name == s.bottleneck)
            yield from _counts(name, stage)
            for family, label, counts in (
                ("dropped", "reason", stage.drop_reasons),
                ("quarantine_reasons", "reason", stage.quarantine_reasons),
                ("sent", "to", stage.sent),
                ("user_value", "name", stage.user_counts),
                ("errors", "reason", stage.errors),
            ):
                for value, n in self._bounded((family, outlet, stage.name), counts).items():
                    yield family, (*name, (label, value)), n
            yield from self._charts(outlet, stage)
            if stage.leads:
                yield from _work(name, stage)

    def _charts(self, outlet: str, stage: StageSnapshot) -> Iterator[tuple[str, Labels, float]]:
        for chart in self._names(("chart", outlet, stage.name), stage.charts):
            if chart not in stage.charts:
                continue
            parts: dict[str, dict[str, float]] = {}
            for bar in stage.charts[chart]:
                for part, n in (bar.get("parts") or {"": bar["n"]}).items():
                    parts.setdefault(part, {})[str(bar["bar"])] = n
            for part, bars in list(parts.items())[:MOST_NAMES]:
                for label, height in self._bounded(("bars", outlet, stage.name, chart), bars).items():
                    labels = (("chart", chart[:MOST_CHARACTERS]), ("bar", label), ("part", part[:MOST_CHARACTERS]))
                    yield "chart_value", (("stage", stage.name), *labels), height

    def _names(self, place: tuple[str, ...], names: Iterable[str]) -> dict[str, None]:
        """Return the names that are kept at a place, after adding new ones as far as there is room."""
        known = self._known.setdefault(place, {})
        for name in names:
            if len(known) < MOST_NAMES:
                known.setdefault(name)
        return known

    def _bounded(self, place: tuple[str, ...], counts: Mapping[str, float]) -> dict[str, float]:
        """Return counts by label value: names beyond the limit are summed up as `other`."""
        known = self._names(place, counts)
        found: dict[str, float] = {}
        for name, n in counts.items():
            label = name[:MOST_CHARACTERS] if name in known else OTHER
            found[label] = found.get(label, 0) + n
        return found


def _counts(name: Labels, stage: StageSnapshot) -> Iterator[tuple[str, Labels, float]]:
    yield "documents", (*name, ("direction", "in")), stage.in_docs
    yield "documents", (*name, ("direction", "out")), stage.out_docs
    yield "bytes", (*name, ("direction", "in")), stage.in_bytes
    yield "bytes", (*name, ("direction", "out")), stage.out_bytes
    yield "created", name, stage.created
    yield "merged", name, stage.merged
    yield "quarantined", name, stage.quarantined
    yield "tasks", name, stage.tasks
    yield "retries", name, stage.retries
    yield "busy_seconds", name, stage.busy_s
    yield "documents_per_second", name, stage.docs_per_s
    yield "bytes_per_second", name, stage.bytes_per_s
    yield "busy_ratio", name, stage.busy_ratio


def _work(name: Labels, stage: StageSnapshot) -> Iterator[tuple[str, Labels, float | TimeHistogram]]:
    """Return the figures of a stage that leads an op."""
    yield "task_seconds", name, stage.service
    yield "queue_seconds", name, stage.queue
    yield "queue_tasks", name, stage.queue_tasks
    yield "queue_bytes", name, stage.queue_bytes
    yield "parked_tasks", name, stage.parked_tasks
    yield "backpressure_seconds", name, stage.backpressure_s
    yield "workers", (*name, ("state", "busy")), stage.workers_busy
    yield "accelerators", name, stage.accelerators
    if stage.dedicated is not None:
        yield from _worker_states(stage.name, stage.dedicated)
    if stage.workers_target:
        yield "workers_target", name, stage.workers_target
        yield "autoscaler_decisions", (*name, ("direction", "up")), stage.scaled_up
        yield "autoscaler_decisions", (*name, ("direction", "down")), stage.scaled_down


def _worker_states(stage: str, states: WorkerStates) -> Iterator[tuple[str, Labels, float]]:
    """Return the workers of a pool by state. Busy ones are shown at the stage that they work on."""
    name: Labels = (("stage", stage),)
    for state, n in (("starting", states.starting), ("ready", states.ready), ("idle", states.idle)):
        yield "workers", (*name, ("state", state)), n
    yield "workers_recycled", name, states.recycled
    yield "workers_lost", name, states.lost
