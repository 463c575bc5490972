# SPDX-License-Identifier: Apache-2.0
"""What a worker knows about one call of an op, from the order to the report."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from thresher.core.planning.plan import Plan
from thresher.core.unit import Unit
from thresher.credentials import print_traceback
from thresher.runtime.orders import Produced, TaskOrder, TaskReport
from thresher.runtime.payloads.payload import Payload
from thresher.runtime.processes import messages as msg
from thresher.runtime.worker.call import StageCall
from thresher.stage_errors import ControlSignal

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
    ready: StageCall | None = None
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

    def earn(self, credit: int) -> None:
        """Raise the credit, where there is a limit."""
        if self.credit != NO_LIMIT:
            self.credit += credit

    def spend(self, nbytes: int) -> None:
        """Charge an output to the credit; 0 left means that the call parks."""
        if self.credit != NO_LIMIT:
            # The next batch will be about as large: with less than half of that left it would be mostly debt.
            left = self.credit - nbytes
            self.credit = left if left > nbytes // 2 else 0

    def told(self, reports: list[TaskReport]) -> list[msg.TaskUpdate]:
        """Return what was emitted and counted since this was last asked, for each task."""
        told = [
            msg.TaskUpdate(task.task, outputs, report.tally, report.busy_s, report.quarantined)
            for task, outputs, report in zip(self.tasks, self.outputs, reports, strict=True)
        ]
        self.outputs = [[] for _ in self.tasks]
        return told

    def payloads(self) -> list[Payload]:
        """Return the payloads that were emitted and not told yet."""
        return [output.payload for outputs in self.outputs for output in outputs if output.payload is not None]

    def forget(self) -> None:
        """Let go of everything that it looked at, so that leases end."""
        flow, self.flow, self.order, self.ready, self.outputs, self.held = self.flow, None, None, None, [], None
        close = getattr(flow, "close", None)
        if close is not None:
            try:
                close()
            except ControlSignal:
                raise
            except BaseException as error:  # raised in the `finally` of a stage, and nobody asks for it any more
                print_traceback(error)


def calls_of(message: msg.Run, plan: Plan) -> Iterator[Call]:
    """The calls that an order asks for."""
    size = plan.tasks_per_call(plan.ops[message.op])
    done = frozenset(message.done)
    for start in range(0, len(message.tasks), size):
        tasks = message.tasks[start : start + size]
        # What one call for several tasks gives back cannot wait inside it, so such a call never parks.
        credit = tasks[0].credit if size == 1 else NO_LIMIT
        yield Call(message.op, tasks, message.units[tasks[0].unit], done, credit)
