# SPDX-License-Identifier: Apache-2.0
"""The units of a run as the driver sees them: listed, skipped because they are done, cut from streams, and joined at
the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from thresher.core.plan import Plan
from thresher.core.task import Task
from thresher.core.unit import Unit
from thresher.ledger.place import JOIN_PREFIX
from thresher.ledger.retries import split_retry
from thresher.runtime.lister import Lister
from thresher.scheduler.events import UnitsListed
from thresher.scheduler.model import UnitSpec

_STREAM = "-stream"


@dataclass
class _Stream:
    """A file that is cut into units as it is read."""

    unit: Unit
    """Its id ends in `-stream`; the units that are cut from it have numbers in that place."""
    open: set[str] = field(default_factory=set)
    """Units that were cut and are not committed."""
    read: bool = False
    """Whether it was read to its end."""


def stream_id(unit_id: str) -> str:
    """The id of a stream, from the id of any unit that is cut from it."""
    return unit_id.rsplit("-", 1)[0] + _STREAM


def is_input_unit(unit_id: str) -> bool:
    """Whether an id of the ledger is of a unit of the input; streams, joined files and retries have records of their
    own."""
    return not unit_id.endswith(_STREAM) and not unit_id.startswith(JOIN_PREFIX) and not split_retry(unit_id)[1]


def as_stream(unit: Unit) -> Unit:
    """A stream under an id that no unit cut from it has."""
    return msgspec.structs.replace(unit, id=stream_id(unit.id))


def units_around(tasks: Sequence[Task]) -> tuple[list[Unit], dict[str, Task]]:
    """Units for tasks that no reader reads, and the tasks by unit."""
    units = [Unit(f"task-{number:06d}", (0, number), (), "task") for number in range(len(tasks))]
    for unit, task in zip(units, tasks, strict=True):
        task._task_id = unit.id
    return units, {unit.id: task for unit, task in zip(units, tasks, strict=True)}


class WorkList:
    """Feeds the scheduler with units that are not done yet."""

    def __init__(
        self,
        plan: Plan,
        listed: Iterator[Unit],
        done: frozenset[str],
        on_listed: Callable[[Sequence[Unit], bool], None],
        joins: Callable[[], list[Unit]] | None = None,
    ) -> None:
        """`on_listed` keeps the list; `joins` gives the units that join parts once all others are committed."""
        self._plan = plan
        self._lister = Lister(listed)
        self._done = done
        self._on_listed = on_listed
        self._joins = joins
        self._units: dict[str, Unit] = {}
        self._tasks: dict[str, Task] = {}
        self._open: set[str] = set()
        self._streams: dict[str, _Stream] = {}
        self._told_all = self._told_input = False
        self._list_kept = False
        self.total = 0
        """Units of the input, as far as they are known."""
        self.resumed = 0
        """Units that an earlier attempt had committed."""
        self.resumed_bytes = 0
        """Their input."""

    @property
    def complete(self) -> bool:
        """Whether the scheduler has been told of everything."""
        return self._told_all

    def add_initial_tasks(self, tasks: dict[str, Task]) -> None:
        """What the units that no reader reads begin with."""
        self._tasks.update(tasks)

    def next_event(self) -> UnitsListed | None:
        """New units, or that there are no more; `None` when nothing changed."""
        if self._told_all:
            return None
        found = [as_stream(unit) if unit.stream else unit for unit in self._lister.take()]
        if not self._list_kept and (found or self._lister.complete):
            self._list_kept = self._lister.complete
            self._on_listed(found, self._lister.complete)
        fresh = [unit for unit in found if not self._is_done(unit)]
        if self._joins is not None and self._lister.complete and not fresh and self._nothing_open():
            fresh, self._joins = self._joins(), None
        more = not self._lister.complete or self._joins is not None
        input_ends = more and self._lister.complete
        if not fresh and more and (self._told_input or not input_ends):
            return None
        self._told_all, self._told_input = not more, self._lister.complete
        return UnitsListed(tuple(self._spec(unit) for unit in fresh), more, input_ends)

    def _nothing_open(self) -> bool:
        return not self._open and all(stream.read and not stream.open for stream in self._streams.values())

    def _is_done(self, unit: Unit) -> bool:
        if unit.stream:
            prefix = unit.id.removesuffix("stream")
            cut = sum(1 for done in self._done if done.startswith(prefix) and is_input_unit(done))
            self.total += cut
            self.resumed += cut
        else:
            self.total += 1
            self.resumed += unit.id in self._done
        if unit.id in self._done:
            self.resumed_bytes += unit.nbytes
        return unit.id in self._done

    def _spec(self, unit: Unit) -> UnitSpec:
        self._units[unit.id] = unit
        if unit.stream:
            self._streams[unit.id] = _Stream(unit)
        else:
            self._open.add(unit.id)
        nbytes = 0 if unit.id.startswith(JOIN_PREFIX) else unit.nbytes
        return UnitSpec(unit.id, unit.order, self._entry(unit), nbytes, unit.stream)

    def _entry(self, unit: Unit) -> int:
        entries = self._plan.entries
        if unit.id.startswith(JOIN_PREFIX):
            return entries["join"]
        if unit.stream:
            return entries["stream"]
        return entries["unit"] if "unit" in entries else entries["task"]

    def units_of(self, event: UnitsListed) -> tuple[list[Unit], dict[str, Task]]:
        """What the cluster must know of the units in an event."""
        ids = [spec.unit for spec in event.units]
        return [self._units[key] for key in ids], {key: self._tasks.pop(key) for key in ids if key in self._tasks}

    # -- what happens to units ----------------------------------------------------------------------------------------

    def unit(self, unit_id: str) -> Unit:
        """A unit by its id."""
        return self._units[unit_id]

    def cut(self, unit_id: str) -> None:
        """A unit was cut from its stream."""
        if unit_id in self._units or unit_id in self._done:
            return
        stream = self._streams[stream_id(unit_id)]
        stream.open.add(unit_id)
        self._units[unit_id] = stream.unit.block(int(unit_id.rsplit("-", 1)[1]))
        self.total += 1

    def stream_read(self, unit_id: str) -> Unit | None:
        """The task of a unit is done; if that was a stream and nothing of it is open, the stream is done: give it
        back."""
        stream = self._streams.get(unit_id)
        if stream is None:
            return None
        stream.read = True
        return stream.unit if not stream.open else None

    def committed(self, unit_id: str) -> Unit | None:
        """A unit was committed; if it was the last one of its stream, give the stream back."""
        self._open.discard(unit_id)
        stream = self._streams.get(stream_id(unit_id))
        if stream is None or unit_id not in stream.open:
            return None
        stream.open.discard(unit_id)
        return stream.unit if stream.read and not stream.open else None
