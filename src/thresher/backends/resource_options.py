# SPDX-License-Identifier: Apache-2.0
"""Checks of executor options that limit resources: workers, memory, autoscaling and worker recycling."""

from __future__ import annotations

import math
from typing import Any

from thresher.core.arguments.options import check_count, check_positive
from thresher.core.arguments.sizes import parse_size, show_size
from thresher.core.resources import available_cpus
from thresher.errors import UsageError
from thresher.runtime.executor import WorkerPolicy
from thresher.runtime.memory.usage import available_memory, default_memory

LEAST_MEMORY = 128 * 2**20
"""The least memory of a run: Python and Arrow alone need this much."""


def checked_share(share: Any) -> float:
    """Check the option `cpu_allocation_percentage`."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise UsageError(f"cpu_allocation_percentage: {share!r} is not a share above 0 and up to 1, such as 0.95")
    return float(share)


def checked_workers(given: Any, share: Any) -> int:
    """Check the option `workers`; by default use a share of this machine's cores."""
    cores = available_cpus() * checked_share(share)
    if given is None:
        return max(1, math.floor(cores + 0.5))
    return check_count("workers", given)


def checked_memory(given: Any) -> int:
    """Check the option `memory`; by default use a share of this machine's memory."""
    if given is None:
        return max(LEAST_MEMORY, default_memory())
    memory = parse_size(given, "memory")
    if memory < LEAST_MEMORY:
        raise UsageError(f"memory: {given!r} is less than {show_size(LEAST_MEMORY)}; Python and Arrow alone need that")
    if memory > available_memory():
        raise UsageError(f"memory: {given!r} is more than there is here ({show_size(available_memory())})")
    return memory


def checked_tending(given: dict[str, Any]) -> WorkerPolicy:
    """Check the options for autoscaling and worker recycling."""
    most, tasks = given.get("max_workers_per_stage"), given.get("worker_max_tasks")
    return WorkerPolicy(
        autoscale_interval_s=check_positive(
            "autoscale_interval_s", given.get("autoscale_interval_s", WorkerPolicy.autoscale_interval_s), "seconds"
        ),
        max_workers_per_stage=0 if most is None else check_count("max_workers_per_stage", most),
        worker_max_lifetime_s=_minutes("worker_max_lifetime_m", given),
        worker_restart_interval_s=_minutes("worker_restart_interval_m", given),
        worker_max_tasks=0 if tasks is None else check_count("worker_max_tasks", tasks),
    )


def _minutes(name: str, given: dict[str, Any]) -> float:
    """Return an option given in minutes as seconds; 0 if it is not given."""
    value = given.get(name)
    return 0.0 if value is None else check_positive(name, value, "minutes") * 60
