# SPDX-License-Identifier: Apache-2.0
"""Measure what failing machines cost a long job, in virtual time: 1,000 nodes, 24 hours, about a million tasks.

1 % of the nodes fail in every hour, each with its workers and all that they held, and is replaced after 10 minutes. The
time to the end is compared with that of the same job on machines that never fail. Two jobs: all stages in one call on
10,000 shared workers, and a model on 8,000 accelerators between a reader and a writer, where a node that fails also
takes batches in flight and half-written units. Each seed draws other failures.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

from tables import Spread, print_table, print_target, ratios, write_results

from thresher.scheduler.model import NodeSpec, OpSpec, RunSpec, UnitSpec
from thresher.simulate.profile import CommitSample, FileSample, OpProfile, RunProfile, TaskSample, op_key
from thresher.simulate.rehearsal import Failures, Rehearsal, rehearse
from thresher.simulate.workload import SimulatedOutput

HOURS = 24
FAILING_SHARE = 0.01
"""Part of the nodes that fails in an hour."""
REPLACED_S = 600.0
CPUS, GPUS = 10, 8
"""Of one node."""
TASKS_PER_NODE = 1000
"""The slowest stage's tasks: each takes about 15 minutes."""
BATCHES = 10
"""Batches of a unit, where it is cut into some."""
BATCH_BYTES = 4 * 10**6
UNEVEN = (0.8, 1.0, 1.2)
"""Tasks are not alike: a third each takes this part of the mean time."""
MOST = 1.03


@dataclass(frozen=True, slots=True)
class Job:
    """Something to rehearse."""

    name: str  # for tables
    spec: RunSpec  # its plan and the machines
    units: list[UnitSpec]  # its input
    profile: RunProfile  # what its tasks cost


def fused_job(nodes: int) -> Job:
    """Everything in one call: a unit is one task, and nothing of it is in flight between workers."""
    tasks = nodes * TASKS_PER_NODE
    mean_s = HOURS * 3600 * nodes * CPUS / tasks
    op = OpSpec(index=0, name="curate", stages=("curate",), source=True, sink=True)
    nbytes = BATCHES * BATCH_BYTES
    samples = tuple(TaskSample(nbytes, mean_s * part) for part in UNEVEN)
    spec = _run_spec((op,), nodes, nodes * CPUS, 0)
    profile = _profile(spec, {op_key(op): OpProfile(op.name, samples, overhead_s=0.001)}, nbytes)
    return Job("all stages in one call", spec, _units(tasks, nbytes), profile)


def model_job(nodes: int) -> Job:
    """A reader, a model with accelerators of its own, a writer: a unit is ten batches."""
    tasks = nodes * TASKS_PER_NODE
    mean_s = HOURS * 3600 * nodes * GPUS / tasks
    read = OpSpec(index=0, name="read", stages=("read",), next=1, source=True, output_bytes=BATCH_BYTES)
    model = OpSpec(index=1, name="model", stages=("model",), next=2, dedicated=True, gpus=1.0, output_bytes=BATCH_BYTES)
    write = OpSpec(index=2, name="write", stages=("write",), sink=True, ordered=True)
    nbytes = BATCHES * BATCH_BYTES
    batch = SimulatedOutput(BATCH_BYTES)
    profiles = {
        op_key(read): OpProfile("read", (TaskSample(nbytes, 2.0 * BATCHES, (batch,) * BATCHES),), overhead_s=0.001),
        op_key(model): OpProfile(
            "model",
            tuple(TaskSample(BATCH_BYTES, mean_s * part, (batch,)) for part in UNEVEN),
            overhead_s=0.001,
            start_s=60.0,
            at_once=True,
        ),
        op_key(write): OpProfile("write", (TaskSample(BATCH_BYTES, 1.0),), overhead_s=0.001),
    }
    spec = _run_spec((read, model, write), nodes, nodes * (CPUS - GPUS), GPUS)
    return Job("a model on accelerators", spec, _units(tasks // BATCHES, nbytes), _profile(spec, profiles, nbytes))


JOBS = {"fused": fused_job, "model": model_job}


def _run_spec(ops: tuple[OpSpec, ...], nodes: int, workers: int, gpus: int) -> RunSpec:
    machines = (
        NodeSpec(node=f"node-{n:04d}", cpus=float(CPUS), gpus=(80 * 10**9,) * gpus, memory_bytes=256 * 10**9)
        for n in range(nodes)
    )
    return RunSpec(ops=ops, shared_workers=workers, budget_bytes=nodes * 10**10, nodes=tuple(machines))


def _units(count: int, nbytes: int) -> list[UnitSpec]:
    return [UnitSpec(f"u{n}", (n, 0), 0, nbytes) for n in range(count)]


def _profile(spec: RunSpec, ops: dict[tuple[str, ...], OpProfile], nbytes: int) -> RunProfile:
    return RunProfile(
        tuple(stage for op in spec.ops for stage in op.stages),
        ops,
        (FileSample(nbytes, 1, op_key(spec.ops[0])),),
        commits=(CommitSample(nbytes, 0.05),),
        start_s=5.0,
    )


def run(job: Job, failures: Failures, seed: int) -> Rehearsal:
    """To the end, or the benchmark fails."""
    started = time.process_time()
    found = rehearse(job.spec, job.units, job.profile, failures, seed)
    cpu_s = time.process_time() - started
    print(
        f"  {job.name}, {len(found.failures_s)} nodes failed: {found.wall_s / 3600:.3f} hours, {found.tasks:,} tasks, "
        f"rehearsed in {cpu_s:.0f} s of CPU time",
        flush=True,
    )
    if found.status != "finished":
        raise SystemExit(f"{job.name}, seed {seed}: the run did not end well: {found.status}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 nodes and a tenth of the tasks")
    parser.add_argument("--job", choices=JOBS, action="append", help="only this one; may be given several times")
    parser.add_argument("--seeds", type=int, default=3, help="how many draws of failures (default 3)")
    chosen = parser.parse_args()
    nodes = 100 if chosen.quick else 1000
    failing = Failures(per_hour=nodes * FAILING_SHARE, repair_s=REPLACED_S)
    measured: dict[str, object] = {"nodes": nodes}
    rows, losses = [], {}
    for name in chosen.job or JOBS:
        job = JOBS[name](nodes)
        whole = [run(job, Failures(), 0)]
        hit = [run(job, failing, seed) for seed in range(1, chosen.seeds + 1)]
        longer = ratios([found.wall_s for found in hit], [found.wall_s for found in whole])
        lost = Spread.of([float(len(found.failures_s)) for found in hit])
        rows.append(
            [
                job.name,
                f"{whole[0].tasks:,}",
                f"{whole[0].wall_s / 3600:.2f}",
                lost.show(0),
                longer.show(4),
            ]
        )
        losses[job.name] = longer
        measured[job.name] = {"failure_free_h": whole[0].wall_s / 3600, "ratio": longer, "node_failures": lost}
    header = ["job", "tasks", "hours without failures", "nodes failed", "time over failure-free"]
    print_table(f"{nodes:,} nodes, {FAILING_SHARE:.0%} failing each hour", header, rows)
    for name, longer in losses.items():
        print_target(f"{name}: time over failure-free", f"at most {MOST}, worst seed", longer.high, longer.high <= MOST)
    write_results("failing_nodes", measured)


if __name__ == "__main__":
    main()
