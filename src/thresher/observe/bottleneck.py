# SPDX-License-Identifier: Apache-2.0
"""Name what limited the rate of a run, and what to change.

The model is that of the balancer: workers that spend `work_s` seconds on the whole input process it at the rate
`workers / work_s`, and the rate of the pipeline is that of its slowest group of workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from thresher.core.arguments.sizes import counted
from thresher.observe.figures import percent

SHARED = "shared workers"
"""Name of the workers that run every stage without dedicated ones."""
BUSY_ENOUGH = 0.6
"""Workers that were busy for a smaller share of the time did not limit the rate."""
FULL_MEMORY = 0.9
"""Share of the memory limit from which on memory may have been what limited the rate."""


class Workers(NamedTuple):
    """Workers that share their work, and the seconds of work that they had."""

    name: str
    """The stage that takes the most of it."""
    workers: int
    """Number of workers."""
    work_s: float
    """Seconds inside stages, over all of these workers."""
    dedicated: bool
    """True if they run only the stages of one op."""
    share: float
    """Share of the work that goes into the stage."""

    @property
    def rate(self) -> float:
        """Return inputs per second of these workers, where the whole input is 1."""
        return self.workers / self.work_s if self.work_s else float("inf")


class Advice(NamedTuple):
    """The stage or resource that limited the rate."""

    stage: str
    """The stage, or an empty text."""
    text: str
    """Advice in a sentence or two."""
    more_workers: int = 0
    """Workers to add."""
    gain: float = 0.0
    """Expected gain of the rate: 0.38 is 38 %."""


def groups_of(report: Mapping[str, Any], plan: Mapping[str, Any], most_workers: Sequence[int]) -> list[Workers]:
    """Return the groups of workers of a run. `most_workers`: the most workers that could run each stage at a time."""
    stages = report["stages"]
    own = {
        number: int(op["index"])
        for op in plan.get("ops", ())
        if op.get("own_workers")
        for _, number in op["steps"]
        if number < len(stages)
    }
    members: dict[int, list[int]] = {}
    for number, _ in enumerate(stages):
        members.setdefault(own.get(number, -1), []).append(number)
    found = []
    for op, numbers in members.items():
        work_s = sum(stages[number]["busy_s"] for number in numbers)
        slowest = max(numbers, key=lambda number: stages[number]["busy_s"])
        seen = max((most_workers[number] for number in numbers if number < len(most_workers)), default=0)
        workers = max(1, seen or stages[slowest]["workers"])
        share = stages[slowest]["busy_s"] / work_s if work_s else 0.0
        found.append(Workers(stages[slowest]["name"], workers, work_s, op >= 0, share))
    return found


def advise(report: Mapping[str, Any], plan: Mapping[str, Any], most_workers: Sequence[int]) -> Advice:
    """Return what limited the rate of a run, and what would make it faster."""
    groups = [group for group in groups_of(report, plan, most_workers) if group.work_s > 0]
    wall_s = report["wall_s"]
    if not groups or wall_s <= 0 or report["status"] == "nothing-to-do":
        return Advice("", "Nothing was processed in this attempt.")
    if report["units_resumed"]:
        return Advice("", "A part of the work was done by earlier attempts, so the rate of this one says little.")
    slowest = min(groups, key=lambda group: group.rate)
    busy = min(1.0, slowest.work_s / (slowest.workers * wall_s))
    who = "its workers" if slowest.dedicated else "the shared workers"
    if busy < BUSY_ENOUGH:
        return Advice(slowest.name, _idle_text(report, slowest, busy, who))
    others = [group.rate for group in groups if group is not slowest]
    more = 1
    while more < max(2, slowest.workers) and (slowest.workers + more) / slowest.work_s < min(others, default=1e300):
        more += 1
    rate = min([(slowest.workers + more) / slowest.work_s, *others])
    gain = rate / slowest.rate - 1
    kind = (
        counted(more, "more worker") if slowest.dedicated else f"{counted(more, 'more worker')} on as many more cores"
    )
    of = "" if slowest.dedicated else f", with {percent(slowest.share)} of their work"
    text = (
        f"{slowest.name} is the bottleneck{of}: {who} were busy {percent(busy)} of the time. "
        f"{kind} would give +{gain:.0%}."
    )
    return Advice(slowest.name, text, more, gain)


def _idle_text(report: Mapping[str, Any], slowest: Workers, busy: float, who: str) -> str:
    """Say why the workers that have the most work were often idle."""
    limit, peak = report["memory_limit_bytes"], report["peak_memory_bytes"]
    text = f"{slowest.name} takes the most work, but {who} were busy only {percent(busy)} of the time. "
    if limit and peak > FULL_MEMORY * limit:
        return f"{text}Memory was near its limit: a larger limit lets more batches be in flight."
    if report["units_total"] < 2 * slowest.workers:
        return f"{text}The input has {counted(report['units_total'], 'unit')}: a smaller blocksize makes more of them."
    return f"{text}Starting, listing the input and committing took the rest; a longer run spends a smaller share there."
