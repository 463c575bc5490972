# SPDX-License-Identifier: Apache-2.0
"""The state of a stage that the framework keeps between calls. Each worker has a context per stage and binds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thresher.core.tally import StageTally

if TYPE_CHECKING:
    from thresher.core.batching import CallSizes
    from thresher.core.stage import ProcessingStage


class StageContext:
    """The state of one stage in one worker."""

    __slots__ = ("by_unit", "noted", "sizes", "stage", "takes_lists")

    def __init__(self, stage: ProcessingStage[Any, Any], *, takes_lists: bool) -> None:
        self.stage = stage
        """The stage."""
        self.takes_lists = takes_lists
        """True if its author defined `process_batch`, which is then called for a single task too."""
        self.noted = StageTally()
        """Counts that no task is charged with yet: those of `count()`, retries, and splits of calls."""
        self.sizes: CallSizes | None = None
        """Sizes that calls handle; `None` if memory never ran out in one."""
        self.by_unit = False
        """True if a call returned another number of entries than it got tasks of several units."""

    @property
    def has_noted(self) -> bool:
        """True if `take_noted` has something to return."""
        noted = self.noted
        return bool(noted.counts or noted.retries or noted.split_to)

    def take_noted(self) -> StageTally:
        """Return what was noted since the last call."""
        taken, self.noted = self.noted, StageTally()
        return taken


def context_of(stage: ProcessingStage[Any, Any]) -> StageContext:
    """Return the context that a worker has bound; outside of a run, one that is made when it is first asked for."""
    found: StageContext | None = stage.__dict__.get("_context")
    return bind_context(stage) if found is None else found


def bind_context(stage: ProcessingStage[Any, Any]) -> StageContext:
    """Give a stage a new context, to which `count()` writes from now on."""
    from thresher.core.stage import overrides

    context = stage.__dict__["_context"] = StageContext(stage, takes_lists=overrides(stage, "process_batch"))
    return context


def hand_over_counts(inner: ProcessingStage[Any, Any], outer: ProcessingStage[Any, Any]) -> None:
    """Let what a stage has counted count for the one that calls it and that the run knows."""
    context = inner.__dict__.get("_context")
    if context is not None and context.has_noted:
        context_of(outer).noted.add(context.take_noted())


def unbind_context(stage: ProcessingStage[Any, Any]) -> None:
    """Leave a stage without a context, as it was before the run."""
    stage.__dict__.pop("_context", None)
