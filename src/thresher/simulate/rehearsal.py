# SPDX-License-Identifier: Apache-2.0
"""Rehearse a run: the scheduler in virtual time with costs from a profile, and the resulting prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from gc import get_threshold, set_threshold
from itertools import chain
from random import Random

import msgspec

from thresher.scheduler.actions import AnyAction
from thresher.scheduler.events import AnyEvent, UnitsListed
from thresher.scheduler.model import RunSpec, UnitSpec
from thresher.simulate.cluster import Deadlock, VirtualCluster
from thresher.simulate.profile import DRIVER_EVENT_S, ProfileWorkload, RunProfile, op_key

COMMITS = "commits"
"""Name of the commits among the stages."""
EVENTS_PER_UNIT = 2_000
"""A rehearsal with more events per unit than this is considered endless."""
LISTED_AT_ONCE = 1000
"""Number of units in one UnitsListed."""
LONG_NAME = 60
"""Maximum number of characters of the name of a group of stages; longer ones are shortened."""
LONE_TASK_SHARE = 0.7
"""A single task that takes this share of the time is the bottleneck."""
FULL_SHARE = 0.2
"""Share of the budget from which memory counts as the bottleneck: sources already wait at half of the budget, and
part of that is reserved."""


class Failures(msgspec.Struct, frozen=True):
    """Failures of machines."""

    per_hour: float = 0.0  # failures per hour in the whole cluster
    repair_s: float = 300.0  # time until a machine is back


class ResourceUse(msgspec.Struct, frozen=True):
    """Use of one resource."""

    name: str  # cpu, gpu, memory, driver
    capacity: float  # available amount
    used: float  # mean over the run; for memory, the peak
    share: float  # used / capacity


class StageUse(msgspec.Struct, frozen=True):
    """Work of a group of stages that runs in one call."""

    name: str  # names of its stages
    tasks: int  # number of finished tasks
    busy_s: float  # time that it occupied workers
    share: float  # share of the busy time of all workers
    workers: int  # peak number of dedicated workers; 0: shared ones
    peak_stage: str  # the slowest stage of the group


class PhaseUse(msgspec.Struct, frozen=True):
    """One phase of a run."""

    wall_s: float  # from the begin of the phase to that of the next one
    data_bytes: int  # bytes that it reads
    units: int  # number of units
    bottleneck: str  # its busiest group of stages


class Series(msgspec.Struct, frozen=True):
    """Busy workers of a group of stages over time."""

    name: str  # name of the group
    gpus: float  # accelerators that one worker holds
    cpus: float  # cores that one worker holds
    busy: tuple[float, ...]  # busy workers by bin


class Rehearsal(msgspec.Struct, frozen=True):
    """The prediction for a run."""

    status: str  # "finished", or "failed: reason"
    wall_s: float  # time of the run from start to end
    data_bytes: int  # input bytes
    docs: int  # input records
    units: int  # number of units
    nodes: int  # number of machines
    workers: int  # peak number of workers
    events: int  # events that the scheduler processed
    tasks: int  # number of finished tasks
    resources: tuple[ResourceUse, ...]  # use of each resource
    stages: tuple[StageUse, ...]  # work of each group of stages
    bottleneck: str  # human-readable description of what limits the rate
    inflight_bytes: int  # peak bytes of batches between stages
    failures_s: tuple[float, ...]  # times of machine failures
    width_s: float  # width of one bin of the series
    series: tuple[Series, ...]  # busy workers over time
    inflight: tuple[float, ...]  # bytes between stages over time
    phases: tuple[PhaseUse, ...] = ()  # what each phase takes; empty if there is one

    @property
    def docs_per_s(self) -> float:
        """Return the input records per second."""
        return self.docs / self.wall_s if self.wall_s else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Return the input bytes per second."""
        return self.data_bytes / self.wall_s if self.wall_s else 0.0


def rehearse(
    spec: RunSpec,
    units: list[UnitSpec],
    profile: RunProfile,
    failures: Failures | None = None,
    seed: int = 0,
    later: Sequence[list[UnitSpec]] = (),
) -> Rehearsal:
    """Run the units to the end in virtual time and return the prediction. `later`: the units of later phases."""
    everything = [*units, *chain.from_iterable(later)]
    cluster = VirtualCluster(spec, everything, ProfileWorkload(spec, profile, seed))
    phases = _Phases(cluster, profile, [units, *later])
    cluster.watch = phases.watch if later else None
    phases.list_next(profile.listing_s)
    if any(op.has_own_workers for op in spec.ops):
        cluster.at(0.0, cluster.tick, spec.autoscale_interval_s or 2.0)
    breaker = _FailureInjector(cluster, failures or Failures(), Random(seed + 1))
    with _rare_collections():
        try:
            cluster.run(EVENTS_PER_UNIT * (len(everything) + 1000))
        except Deadlock as error:
            cluster.ended = f"failed: {error}"
    found = _result(cluster, profile, units, tuple(breaker.times_s))
    return msgspec.structs.replace(found, phases=phases.uses()) if later else found


class _Phases:
    """Lists the units of a phase when all of the phase before are committed, and measures each phase."""

    def __init__(self, cluster: VirtualCluster, profile: RunProfile, phases: Sequence[list[UnitSpec]]) -> None:
        self._cluster = cluster
        self._profile = profile
        self._phases = phases
        self._begun: list[tuple[float, list[float]]] = []  # time, and busy time of each op until then
        self._to_list = 0

    def list_next(self, first_s: float) -> None:
        """Schedule the listing of the next phase, some units at a time."""
        cluster, units = self._cluster, self._phases[len(self._begun)]
        self._begun.append((cluster.now, list(cluster.usage.busy_s)))
        more = len(self._begun) < len(self._phases)
        last = max(0, len(units) - 1) // LISTED_AT_ONCE
        self._to_list = last + 1
        for place in range(last + 1):
            part = tuple(units[place * LISTED_AT_ONCE : (place + 1) * LISTED_AT_ONCE])
            when_s = first_s + place * LISTED_AT_ONCE * DRIVER_EVENT_S / 10
            ends = place == last
            cluster.at(when_s, cluster.report, UnitsListed(part, more=more or not ends, input_ends=more and ends))

    def watch(self, event: AnyEvent | None, _actions: Sequence[AnyAction]) -> None:
        """Begin the next phase after the last commit of this one."""
        self._to_list -= isinstance(event, UnitsListed)
        if self._to_list or self._cluster.scheduler.state.unfinished or len(self._begun) == len(self._phases):
            return
        self.list_next(self._cluster.driver_free_s)

    def uses(self) -> tuple[PhaseUse, ...]:
        """Return what each phase took."""
        end = (max(self._cluster.now, 1e-9), list(self._cluster.usage.busy_s))
        found = []
        for units, begin, until in zip(self._phases, self._begun, [*self._begun[1:], end], strict=False):
            wall_s = max(until[0] - begin[0], 1e-9)
            busy_s = [after - before for before, after in zip(begin[1], until[1], strict=True)]
            nbytes = sum(unit.nbytes for unit in units)
            found.append(PhaseUse(wall_s, nbytes, len(units), self._busiest(busy_s, wall_s)))
        return tuple(found)

    def _busiest(self, busy_s: list[float], wall_s: float) -> str:
        """Return the group of stages that kept most of its workers busy, and how many."""
        spec, usage = self._cluster.spec, self._cluster.usage
        shares = {}
        for op in spec.ops:
            workers = usage.own_workers[op.index] if op.has_own_workers else spec.shared_workers
            shares[op.index] = busy_s[op.index] / (max(1, workers) * wall_s)
        most = max(shares, key=shares.__getitem__)
        stage = _slowest_stage(self._profile, op_key(spec.ops[most]))
        group = short_name(spec.ops[most].name)
        return f"{group if stage in ('', group) else f'{stage} in {group}'} ({shares[most]:.0%} busy)"


class _FailureInjector:
    """Makes machines fail and come back."""

    def __init__(self, cluster: VirtualCluster, failures: Failures, random: Random) -> None:
        self.times_s: list[float] = []
        self._cluster = cluster
        self._failures = failures
        self._random = random
        if failures.per_hour > 0:
            self._plan_next()

    def _plan_next(self) -> None:
        wait_s = self._random.expovariate(self._failures.per_hour / 3600)
        self._cluster.at(self._cluster.now + wait_s, self._break, None)

    def _break(self, _: None) -> None:
        up = [name for name, machine in self._cluster.machines.items() if machine.alive]
        if up:
            name = self._random.choice(up)
            self.times_s.append(self._cluster.now)
            self._cluster.at(self._cluster.now + self._failures.repair_s, self._cluster.join_node, name)
            self._cluster.lose_node(name)
        self._plan_next()


def _result(
    cluster: VirtualCluster, profile: RunProfile, units: list[UnitSpec], failures: tuple[float, ...]
) -> Rehearsal:
    data_bytes = sum(unit.nbytes for unit in units)
    docs = round(profile.docs * data_bytes / profile.input_bytes) if profile.input_bytes else profile.docs
    end_s = max(cluster.now, 1e-9)
    resources = _resources(cluster, profile, end_s)
    stages = _stages(cluster, profile)
    return Rehearsal(
        status=cluster.ended or "failed",
        wall_s=end_s + profile.outside_s,
        data_bytes=data_bytes,
        docs=docs,
        units=len(units),
        nodes=len(cluster.machines),
        workers=cluster.usage.peak_workers,
        events=cluster.events,
        tasks=sum(cluster.usage.tasks[:-1]),
        resources=resources,
        stages=stages,
        bottleneck=_bottleneck(cluster, resources, stages, end_s),
        inflight_bytes=cluster.usage.peak_bytes,
        failures_s=failures,
        width_s=cluster.usage.timeline.width_s,
        series=tuple(_series(cluster, end_s)),
        inflight=tuple(cluster.usage.timeline.levels(end_s)),
    )


def short_name(group: str) -> str:
    """Return the name of a group of stages for display; a long one is shortened in the middle."""
    stages = group.split("+")
    if len(group) <= LONG_NAME or len(stages) < 4:
        return group
    return f"{stages[0]}+{stages[1]}+…{len(stages) - 3} more…+{stages[-1]}"


def _names(cluster: VirtualCluster) -> list[str]:
    """Return the names of groups of stages; two groups of one reader are distinguished by `read` and `parse`."""
    names = []
    for op in cluster.spec.ops:
        twins = [other for other in cluster.spec.ops if other.name == op.name and cluster.usage.tasks[other.index]]
        names.append(f"{op.name} ({'read' if op.source else 'parse'})" if len(twins) > 1 else op.name)
    return [*names, COMMITS]


def _resources(cluster: VirtualCluster, profile: RunProfile, end_s: float) -> tuple[ResourceUse, ...]:
    spec = cluster.spec
    cpus = sum(node.cpus for node in spec.nodes) or float(spec.shared_workers)
    gpus = sum(len(node.gpus) for node in spec.nodes)
    memory = sum(node.memory_bytes for node in spec.nodes)
    cpu_s = gpu_s = 0.0
    for op, busy_s in zip(spec.ops, cluster.usage.busy_s, strict=False):
        gpu_s += busy_s * op.gpus
        cpu_s += 0.0 if op.gpus else busy_s * op.cpus
    cpu_s += cluster.usage.busy_s[-1]
    found = [_use("cpu", cpus, cpu_s / end_s)]
    if gpus:
        found.append(_use("gpu", gpus, gpu_s / end_s))
    used_bytes = cluster.usage.peak_workers * profile.worker_bytes + cluster.usage.peak_bytes
    found.append(_use("memory", memory, used_bytes))
    found.append(_use("driver", 1.0, cluster.driver_busy_s / end_s))
    return tuple(found)


def _use(name: str, capacity: float, used: float) -> ResourceUse:
    return ResourceUse(name, capacity, used, used / capacity if capacity else 0.0)


def _stages(cluster: VirtualCluster, profile: RunProfile) -> tuple[StageUse, ...]:
    total_s = sum(cluster.usage.busy_s) or 1.0
    found = []
    for place, name in enumerate(_names(cluster)):
        if not cluster.usage.tasks[place] and not cluster.usage.busy_s[place]:
            continue
        own, inside = 0, name
        if place < len(cluster.spec.ops):
            op = cluster.spec.ops[place]
            own = cluster.usage.own_workers[place] if op.has_own_workers else 0
            inside = _slowest_stage(profile, op_key(op)) or op.name
        busy_s = cluster.usage.busy_s[place]
        found.append(StageUse(name, cluster.usage.tasks[place], busy_s, busy_s / total_s, own, inside))
    return tuple(found)


def _slowest_stage(profile: RunProfile, key: tuple[str, ...]) -> str:
    times: dict[str, float] = {}
    op = profile.ops.get(key)
    for sample in op.samples if op is not None else ():
        for stage, (stage_s, _) in sample.stages.items():
            times[stage] = times.get(stage, 0.0) + stage_s
    return max(times, key=times.__getitem__, default="")


def _bottleneck(
    cluster: VirtualCluster, resources: Sequence[ResourceUse], stages: Sequence[StageUse], end_s: float
) -> str:
    """Describe what the run waits for most of the time."""
    spec = cluster.spec
    share = {use.name: use.share for use in resources}
    pools = {short_name(op.name): _own_share(cluster, op.index, end_s) for op in spec.ops if op.has_own_workers}
    shared = [use for use in stages if not use.workers and use.name != COMMITS]
    if shared:
        shared_s = sum(use.busy_s for use in stages if not use.workers)
        most = max(shared, key=lambda use: use.busy_s)
        group = short_name(most.name)
        label = group if most.peak_stage == most.name else f"{most.peak_stage} in {group}"
        pools[label] = shared_s / (max(1, spec.shared_workers) * end_s)
    pools["the driver"] = share["driver"]
    name = max(pools, key=pools.__getitem__)
    longest_s = max(cluster.usage.longest_s)
    if pools[name] < LONE_TASK_SHARE and longest_s > LONE_TASK_SHARE * end_s:
        op = spec.ops[cluster.usage.longest_s.index(longest_s)]
        group = short_name(op.name)
        return f"one task of {group}: it alone takes {longest_s:.0f} s; smaller files or blocks would share it out"
    if pools[name] < LONE_TASK_SHARE and cluster.usage.peak_bytes > FULL_SHARE * spec.budget_bytes:
        return f"memory for batches between stages; the busiest is {name}, {pools[name]:.0%}"
    if pools[name] < LONE_TASK_SHARE / 2 and cluster.usage.tasks[0] < spec.shared_workers:
        return f"too little work for {spec.shared_workers:,} workers; the busiest is {name}, {pools[name]:.0%}"
    return f"{name} ({pools[name]:.0%} busy)"


def _own_share(cluster: VirtualCluster, op: int, end_s: float) -> float:
    workers = cluster.usage.own_workers[op]
    return cluster.usage.busy_s[op] / (workers * end_s) if workers else 0.0


def _series(cluster: VirtualCluster, end_s: float) -> Iterator[Series]:
    for place, name in enumerate(_names(cluster)):
        if cluster.usage.busy_s[place]:
            op = cluster.spec.ops[place] if place < len(cluster.spec.ops) else None
            gpus, cpus = (op.gpus, 0.0 if op.gpus else op.cpus) if op is not None else (0.0, 1.0)
            yield Series(name, gpus, cpus, tuple(cluster.usage.timeline.rates(place, end_s)))


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage rarely: a rehearsal makes many small objects without cycles."""
    before = get_threshold()
    set_threshold(200_000, 50, 100)
    try:
        yield
    finally:
        set_threshold(*before)
