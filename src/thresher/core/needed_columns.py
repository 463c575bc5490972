# SPDX-License-Identifier: Apache-2.0
"""Which columns of the input a run can make any difference with: a reader may leave the others on the disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thresher.core.stage import ProcessingStage, SinkStage, SourceStage

Stage = ProcessingStage[Any, Any]


def needed_columns(stages: Sequence[Stage]) -> list[str] | None:
    """Columns that the writer keeps, or that a stage reads or makes; `None`: all of them may be needed.

    Every stage must promise that it looks at no other column than it says (`looks_at_inputs_only`), and the writer must
    keep only some.
    """
    first, *between, last = stages
    if not isinstance(first, SourceStage) or not isinstance(last, SinkStage) or last.fields is None:
        return None
    if not all(stage.looks_at_inputs_only for stage in between):
        return None
    columns = list(last.fields)
    for stage in between:
        # What a stage makes counts too: whether there was such a column before may matter to it, and to the order.
        columns += [*stage.inputs()[1], *stage.outputs()[1]]
    return list(dict.fromkeys(columns))


def read_less(stages: Sequence[Stage]) -> list[Stage]:
    """The same stages; a reader to which columns make a difference reads those that are needed."""
    needed = needed_columns(stages) if len(stages) > 1 else None
    first = stages[0]
    if needed is None or not isinstance(first, SourceStage):
        return list(stages)
    return [first.reading_only(needed), *stages[1:]]
