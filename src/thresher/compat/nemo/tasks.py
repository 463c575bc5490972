# SPDX-License-Identifier: Apache-2.0
"""Tasks that say what became of a task instead of holding data."""

from __future__ import annotations

from typing import Any

from thresher.core.task import Task


class SentinelTask(Task):
    """A task without data."""

    @property
    def num_items(self) -> int:
        """Nothing is in it."""
        return 0


class NoneTask(SentinelTask):
    """Returned by a stage that drops the task; the same as returning `None`."""


class FailedTask(SentinelTask):
    """Returned by a stage that could not process the task: it is retried, then quarantined, and the rest goes on."""


class TaskFailed(Exception):
    """A stage returned a `FailedTask`."""


def settled(result: Any) -> Any:
    """Return the result of a stage without sentinels; raise if one of them says that the task failed."""
    if isinstance(result, list | tuple):
        if any(isinstance(one, FailedTask) for one in result):
            raise TaskFailed("the stage returned a FailedTask")
        return [None if isinstance(one, NoneTask) else one for one in result]
    if isinstance(result, FailedTask):
        raise TaskFailed("the stage returned a FailedTask")
    return None if isinstance(result, NoneTask) else result
