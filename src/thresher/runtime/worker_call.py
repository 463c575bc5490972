# SPDX-License-Identifier: Apache-2.0
"""What a worker knows about one call of an op, from the order to the report."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import msgspec

from thresher.core.plan import Op
from thresher.core.unit import Unit
from thresher.runtime import messages as msg
from thresher.runtime.orders import Produced, TaskOrder
from thresher.runtime.ready_call import ReadyCall

NO_LIMIT = -1
"""Credit of a call that never parks."""


class Call(msgspec.Struct, eq=False):
    """One call of an op: waiting, running or parked."""

    op: int
    tasks: list[msg.TaskIn]
    unit: Unit
    done: frozenset[str]
    credit: int
    opened: int = 0
    """How many of its payloads were opened; the leases of those end by themselves."""
    order: TaskOrder | None = None
    flow: Iterator[Produced] | None = None
    ready: ReadyCall | None = None
    """The call of its stage, where that can be made apart from all the rest."""
    is_begun: bool = False
    """Whether its flow was ever advanced."""
    outputs: list[list[msg.Output]] = []
    """What was emitted and not told yet, for each task."""
    told_at: float = 0.0
    emitted: bool = False
    """Whether anything was told of it."""
    held: Produced | None = None
    """What a parked call will emit first."""

    def forget(self) -> None:
        """Let go of everything that it looked at, so that leases end."""
        flow, self.flow, self.order, self.ready, self.outputs, self.held = self.flow, None, None, None, [], None
        close = getattr(flow, "close", None)
        if close is not None:
            try:
                close()
            except Exception:  # what a stage does in its `finally` may raise anything, and nobody asks for it any more
                traceback.print_exc()


def calls_of(message: msg.Run, op: Op) -> Iterator[Call]:
    """The calls that an order asks for."""
    size = 1 if op.reads or op.writes else op.batch_size
    done = frozenset(message.done)
    for start in range(0, len(message.tasks), size):
        tasks = message.tasks[start : start + size]
        # What one call for several tasks gives back cannot wait inside it, so such a call never parks.
        credit = tasks[0].credit if size == 1 else NO_LIMIT
        yield Call(message.op, tasks, message.units[tasks[0].unit], done, credit)
