# SPDX-License-Identifier: Apache-2.0
"""Figures of stages in the form of NeMo Curator, from the report of a run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from thresher.core.pipeline import RunResult


@dataclass
class StagePerfStats:
    """Figures of one stage."""

    stage_name: str
    process_time: float = 0.0
    actor_idle_time: float = 0.0
    input_data_size_mb: float = 0.0
    num_items_processed: int = 0
    custom_metrics: dict[str, float] = field(default_factory=dict)

    def __add__(self, other: StagePerfStats) -> StagePerfStats:
        custom = {
            name: self.custom_metrics.get(name, 0) + other.custom_metrics.get(name, 0)
            for name in {**self.custom_metrics, **other.custom_metrics}
        }
        return StagePerfStats(
            self.stage_name,
            self.process_time + other.process_time,
            self.actor_idle_time + other.actor_idle_time,
            self.input_data_size_mb + other.input_data_size_mb,
            self.num_items_processed + other.num_items_processed,
            custom,
        )

    def __radd__(self, other: Any) -> StagePerfStats:
        return self if other == 0 else self + other

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dict."""
        return asdict(self)

    def items(self) -> list[tuple[str, float]]:
        """Return all figures by name; those of the stage itself are named `custom.NAME`."""
        own = [(name, value) for name, value in asdict(self).items() if name not in ("stage_name", "custom_metrics")]
        return own + [(f"custom.{name}", value) for name, value in self.custom_metrics.items()]


class StageTimer:
    """Measure calls of a stage in a script of one's own; a run measures its stages itself."""

    def __init__(self, stage: Any) -> None:
        self.stats = StagePerfStats(stage.name)

    @contextlib.contextmanager
    def time_process(self, num_items: int = 1) -> Iterator[None]:
        """Add the time of a block."""
        started = time.perf_counter()
        yield
        self.stats += StagePerfStats(self.stats.stage_name, time.perf_counter() - started, 0.0, 0.0, num_items)

    def log_stats(self, *, verbose: bool = False) -> tuple[str, StagePerfStats]:
        """Return name and figures, and begin anew."""
        del verbose
        found, self.stats = self.stats, StagePerfStats(self.stats.stage_name)
        return found.stage_name, found


def stage_stats(run: RunResult) -> list[StagePerfStats]:
    """Return the figures of all stages of a run."""
    return [
        StagePerfStats(
            stage["name"],
            process_time=float(stage["busy_s"]),
            input_data_size_mb=stage["in_bytes"] / 1e6,
            num_items_processed=int(stage["in_docs"]),
            custom_metrics=dict(stage.get("user_counts") or {}),
        )
        for stage in run.stages
    ]


class TaskPerfUtils:
    """Figures of the stages of one run, or of several by name. A figure is the sum over all workers."""

    @staticmethod
    def collect_stage_metrics(tasks: Any) -> dict[str, dict[str, Any]]:
        """Return the figures of each stage, by name."""
        import numpy as np

        return {
            (f"{name}_{one.stage_name}" if name else one.stage_name): {
                metric: np.asarray([value], dtype=float) for metric, value in one.items()
            }
            for name, run in _runs(tasks).items()
            for one in stage_stats(run)
        }

    @staticmethod
    def aggregate_task_metrics(tasks: Any, prefix: str | None = None) -> dict[str, float]:
        """Return sum, mean and standard deviation of each figure, as `stage_metric_sum` and so on."""
        head = f"{prefix}_" if prefix else ""
        return {
            f"{head}{stage}_{metric}_{kind}": float(getattr(values, kind)())
            for stage, metrics in TaskPerfUtils.collect_stage_metrics(tasks).items()
            for metric, values in metrics.items()
            for kind in ("sum", "mean", "std")
        }

    @staticmethod
    def get_aggregated_stage_stat(tasks: Any, stage_prefix: str, stat: str) -> float:
        """Return the sum of a figure over the stages whose names begin with a prefix."""
        found = TaskPerfUtils.collect_stage_metrics(tasks)
        return sum(
            float(metrics[stat].sum())
            for stage, metrics in found.items()
            if stage.startswith(stage_prefix) and stat in metrics
        )


def _runs(given: Any) -> dict[str, RunResult]:
    """Return the runs that are asked about, by name."""
    if given is None:
        return {}
    if isinstance(given, RunResult):
        return {"": given}
    if isinstance(getattr(given, "run", None), RunResult):  # the result of a workflow
        return {"": given.run}
    if isinstance(given, Mapping):
        return {str(name): run for name, value in given.items() for run in _runs(value).values()}
    raise TypeError(
        f"{type(given).__name__} holds no figures; give what Pipeline.run() or the run() of a workflow returned: "
        "figures belong to a run, and not to its tasks"
    )
