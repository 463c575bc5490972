# SPDX-License-Identifier: Apache-2.0
"""Pipelines of scripts for NeMo Curator: ours, on the executor that the environment chooses for all scripts."""

from __future__ import annotations

from typing import Any

from thresher.compat.nemo.client import chosen_executor
from thresher.core.pipeline import Pipeline, RunResult


class CompatPipeline(Pipeline):
    """A pipeline whose default executor may be chosen outside of the script."""

    def run(self, executor: Any = None, *arguments: Any, **options: Any) -> RunResult:
        """Run it like `Pipeline.run`, without an executor on that of `THRESHER_COMPAT_EXECUTOR`, if it is set."""
        return super().run(chosen_executor() if executor is None else executor, *arguments, **options)
