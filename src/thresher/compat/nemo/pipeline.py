# SPDX-License-Identifier: Apache-2.0
"""Pipelines of scripts for NeMo Curator: ours, on the executor that the environment chooses for all scripts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from thresher.compat.nemo.client import chosen_executor
from thresher.core.pipeline import Pipeline, RunResult

_MEMORY = "resources.gpu_memory_gb"
"""The setting of stages that executors on other engines do not honour."""
_USUAL_GB = 24.0
"""Memory that a device is taken to have where none can be asked, as in NeMo Curator."""


class CompatPipeline(Pipeline):
    """A pipeline whose default executor may be chosen outside of the script."""

    def run(self, executor: Any = None, *arguments: Any, **options: Any) -> RunResult:
        """Run it like `Pipeline.run`, without an executor on that of `THRESHER_COMPAT_EXECUTOR`, if it is set.

        Where the engine counts devices and not their memory, `gpu_memory_gb` becomes a share of a device.
        """
        chosen = chosen_executor() if executor is None else executor
        if _MEMORY not in getattr(chosen, "cannot", {}):
            return super().run(chosen, *arguments, **options)
        shared = self.snapshot()
        shared.stages = [_with_share(stage) for stage in shared.stages]
        return shared.run(chosen, *arguments, **options)


def _with_share(stage: Any) -> Any:
    """Return the stage with a share of a device in place of its memory, in tenths."""
    needs = stage.resources
    if not needs.gpu_memory_gb:
        return stage
    from thresher.runtime.processes.accelerators import found_accelerators

    found = found_accelerators()
    memory_gb = found[0].memory_bytes / 10**9 if found else _USUAL_GB
    share = min(1.0, max(0.1, round(needs.gpu_memory_gb / memory_gb, 1)))
    return stage.with_(resources=replace(needs, gpu_memory_gb=0.0, gpus=share))
