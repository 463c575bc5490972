# SPDX-License-Identifier: Apache-2.0
"""Calls of ops that wait, run or are parked in one worker, and the credit that each may spend on outputs.

A call whose credit is used up is parked, and the next one starts. While a call is parked, no other call of its op
begins: its stage is in the middle of a generator. Worker processes, the serial executor and simulated workers share
these rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from thresher.core.unit import Unit
from thresher.credentials import print_traceback
from thresher.runtime.orders import Produced, TaskOrder
from thresher.scheduler.model import NO_LIMIT
from thresher.stage_errors import ControlSignal


class QueuedCall(msgspec.Struct, eq=False):
    """A call of an op: waiting, running or parked."""

    op: int
    """Index of the op."""
    tasks: Sequence[Any]
    """References to its tasks, each with the number `task`."""
    credit: int
    """Bytes that it may still emit; `NO_LIMIT` if it never parks."""
    is_begun: bool = False
    """True if it ever ran."""

    @property
    def is_opened(self) -> bool:
        """True if it has opened the payloads of its tasks, so that no task can be taken from it."""
        return self.is_begun

    def earn(self, credit: int) -> None:
        """Raise the credit, if there is a limit."""
        if self.credit != NO_LIMIT:
            self.credit += credit

    def spend(self, nbytes: int) -> None:
        """Charge an output to the credit; 0 left means that the call parks."""
        if self.credit != NO_LIMIT:
            # The next batch will be about as large: with less than half of that left it would be mostly debt.
            left = self.credit - nbytes
            self.credit = left if left > nbytes // 2 else 0


class Call(QueuedCall, eq=False, kw_only=True):
    """A call of a real worker."""

    unit: Unit
    """The unit of its first task."""
    order: TaskOrder | None = None
    """The order, once it was started."""
    flow: Iterator[Produced] | None = None
    """The rest of its outputs, which are made as it is advanced."""
    outputs: list[list[Any]] = []
    """Outputs that were emitted and not reported yet, for each task."""
    held: Produced | None = None
    """The output that it will emit first when it goes on."""

    @property
    def is_opened(self) -> bool:
        """True if it has opened the payloads of its tasks, so that no task can be taken from it."""
        return self.flow is not None

    def take_outputs(self) -> list[list[Any]]:
        """Return the outputs since the last call, for each task."""
        taken, self.outputs = self.outputs, [[] for _ in self.tasks]
        return taken

    def forget(self) -> None:
        """Release everything that it holds, so that leases end."""
        flow, self.flow, self.order, self.outputs, self.held = self.flow, None, None, [], None
        close = getattr(flow, "close", None)
        if close is not None:
            try:
                close()
            except ControlSignal:
                raise
            except BaseException as error:  # raised in the `finally` of a stage, and no longer of interest
                print_traceback(error)


AnyCall = TypeVar("AnyCall", bound=Call)
AnyQueued = TypeVar("AnyQueued", bound=QueuedCall)


def run_flow(
    call: AnyCall,
    flow: Iterator[Produced],
    emit: Callable[[AnyCall, Produced, bool], None],
    *,
    at_once: bool,
    keeps_last: bool = False,
    between: Callable[[AnyCall], None] | None = None,
) -> bool:
    """Emit the outputs of a flow until it ends (True) or its credit is used up (False).

    `at_once`: no stage emits gradually, so the next output is known at once. Then the only output of a task is emitted
    as its last one (the third argument of `emit`), and the task does not wait for credit after its last output.
    `keeps_last`: the last output is not emitted but kept in `held`. `between` is called between two outputs.
    """
    produced = call.held or next(flow, None)
    call.held = None
    while produced is not None:
        following = next(flow, None) if at_once else None
        is_last = at_once and following is None
        if is_last and keeps_last:
            call.held = produced
            return True
        if produced.task is not None or produced.closes:
            emit(call, produced, is_last)
            if call.credit == 0 and not is_last:
                call.held = following
                return False
        if between is not None and not is_last:
            between(call)
        produced = following if at_once else next(flow, None)
    return True


class CallQueue(Generic[AnyQueued]):
    """The calls of one worker that do not run."""

    def __init__(self) -> None:
        self.waiting: deque[AnyQueued] = deque()
        """Calls in the order in which they run."""
        self.parked: dict[int, AnyQueued] = {}
        """Calls without credit, by the number of their task."""
        self.suspended: set[int] = set()
        """Ops in the middle of a generator: parked, or waiting for its turn to resume."""

    def next(self) -> AnyQueued | None:
        """Remove and return the first call that does not enter a suspended stage a second time."""
        if not self.suspended:
            return self.waiting.popleft() if self.waiting else None
        for place, call in enumerate(self.waiting):
            if call.is_begun:
                self.suspended.discard(call.op)
            elif call.op in self.suspended:
                continue
            del self.waiting[place]
            return call
        return None

    def park(self, call: AnyQueued) -> None:
        """Put a call aside whose credit is used up."""
        self.parked[call.tasks[0].task] = call
        self.suspended.add(call.op)

    def resume(self, task: int, credit: int) -> None:
        """Let a parked call go on with new credit."""
        call = self.parked.pop(task)
        call.credit = credit
        self.waiting.append(call)

    def earn(self, task: int, credit: int, running: AnyQueued | None = None) -> None:
        """Give a call more credit, whether it is parked, waits or runs."""
        if task in self.parked:
            self.resume(task, credit)
            return
        for call in self.waiting if running is None else (*self.waiting, running):
            if call.tasks[0].task == task:
                call.earn(credit)

    def take_back(self, tasks: Sequence[int]) -> tuple[list[AnyQueued], list[Any]]:
        """Remove tasks; return the calls that are dropped with them, and the references that other calls lose."""
        gone = set(tasks)
        dropped = [self.parked.pop(task) for task in tasks if task in self.parked]
        lost: list[Any] = []
        kept: deque[AnyQueued] = deque()
        for call in self.waiting:
            staying = [task for task in call.tasks if task.task not in gone]
            if not staying:
                dropped.append(call)
                continue
            if len(staying) < len(call.tasks) and not call.is_opened:
                lost += [task for task in call.tasks if task.task in gone]
                call.tasks = staying
            kept.append(call)  # payloads that it has opened already are wasted
        self.waiting = kept
        return dropped, lost
