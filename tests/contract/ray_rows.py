# SPDX-License-Identifier: Apache-2.0
"""The executors on Ray in the contract suite: one small Ray for all tests of a process."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from thresher.backends.ray import RayExecutor
from thresher.backends.ray_actor_pool import RayActorPoolExecutor
from thresher.backends.ray_data import RayDataExecutor
from thresher.backends.ray_nodes import session as ray_session
from thresher.backends.xenna import XennaExecutor, set_environment
from thresher.ledger.records import JOIN_PREFIX
from thresher.observe.event_log import decode_line, read_log
from thresher.scheduler import events as ev

RAY_EXECUTORS: dict[str, Callable[[], Any]] = {
    "ray": RayExecutor,
    "ray-batch": lambda: RayExecutor(execution_mode="batch"),
    "ray-unfused": lambda: RayExecutor(fusion=False),
    "actor-pool": RayActorPoolExecutor,
    "actor-pool-unfused": lambda: RayActorPoolExecutor(fusion=False),
    "ray-data": RayDataExecutor,
    "ray-data-unfused": lambda: RayDataExecutor(fusion=False),
    "xenna": XennaExecutor,
    "xenna-unfused": lambda: XennaExecutor(fusion=False),
}
"""Made when a test wants one; where the package is missing the test is skipped."""
SLOW = ("ray-batch", "ray-unfused", "actor-pool-unfused", "ray-data-unfused", "xenna", "xenna-unfused")
"""Rows that only `make test-all` runs: variants of others, and an engine that takes its time to start."""


OWN_WARNINGS = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
"""Ray and Xenna call what they themselves, or others, have deprecated."""


def rows(slow: Collection[str]) -> list[Any]:
    """Return the parameters of a fixture; `make test` leaves out those in `slow`."""
    marks = {name: [OWN_WARNINGS, *([pytest.mark.slow] if name in slow else [])] for name in RAY_EXECUTORS}
    return [pytest.param(name, marks=marks[name]) for name in RAY_EXECUTORS]


_for_xenna = False
"""Whether the Ray that runs was started as Xenna wants it."""


def need_ray(name: str) -> None:
    """Start Ray, if nobody has; skip where what the executor needs is not installed."""
    for package in ("ray", *(["cosmos_xenna"] if name.startswith("xenna") else [])):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; executor {name!r} needs it")
    import ray

    global _for_xenna
    for_xenna = name.startswith("xenna")
    if ray.is_initialized() and for_xenna != _for_xenna:
        end_ray()
    if not ray.is_initialized():
        _for_xenna = for_xenna
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        if for_xenna:
            set_environment()
        ray.init(
            address="local",
            num_cpus=2,
            num_gpus=2,
            include_dashboard=for_xenna,  # Xenna asks it
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=200 * 2**20,
        )


def units_by_runner(run_dir: str | None) -> tuple[set[str], set[str]]:
    """The units of the input that an engine can run, and those that it has run and committed itself."""
    assert run_dir is not None
    listed, whole = set(), set()
    for line in read_log(str(Path(run_dir, "events", "001"))):
        item = decode_line(line).item
        if isinstance(item, ev.UnitsListed):
            listed |= {u.unit for u in item.units if not u.stream and not u.unit.startswith(JOIN_PREFIX)}
        elif isinstance(item, ev.UnitCommitted) and item.whole:
            whole.add(item.unit)
    return listed, whole


def end_ray() -> None:
    """End it, if it was started."""
    if importlib.util.find_spec("ray") is not None:
        ray_session.end_ray()
