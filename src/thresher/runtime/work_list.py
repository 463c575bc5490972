# SPDX-License-Identifier: Apache-2.0
"""The units of a run: listing, skipping of committed units, cutting of streams, and the phases after the first."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from thresher.core.planning.plan import Plan
from thresher.core.task import Task, TaskPack, give_id
from thresher.core.unit import STREAM, Unit, stream_id
from thresher.credentials import traceback_of
from thresher.errors import RunFailedError
from thresher.ledger.records import JOIN_PREFIX, split_retry
from thresher.scheduler.events import UnitsListed
from thresher.scheduler.model import UnitSpec
from thresher.stage_errors import ControlSignal

FIRST_SLICE_S = 0.05
BATCH_UNITS = 1000


@dataclass
class _Stream:
    """A file that is cut into units while it is read."""

    unit: Unit
    """The file as a unit: its id ends in `-stream`, where the units cut from it have numbers."""
    open: set[str] = field(default_factory=set)
    """Units that were cut and are not committed."""
    read: bool = False
    """True if the file was read to its end."""
    cut: int = 0
    """Number of the last unit that was cut, plus one."""


def begin_listing(plan: Plan) -> Iterator[Unit]:
    """Return the units of the input; list the first one at once, so that nothing is created if there is no input."""
    if plan.source is None:
        return iter(())
    units: Iterator[Unit] = plan.source.list_units()
    first = list(itertools.islice(units, 1))
    return itertools.chain(first, units)


def is_input_unit(unit_id: str) -> bool:
    """Return True if an id of the ledger belongs to an input unit; streams, joined files and retries have their own
    records."""
    return not unit_id.endswith(STREAM) and not unit_id.startswith(JOIN_PREFIX) and not split_retry(unit_id)[1]


def as_stream(unit: Unit) -> Unit:
    """Return the stream under an id that differs from all units cut from it."""
    return msgspec.structs.replace(unit, id=stream_id(unit.id))


def units_for_tasks(tasks: Sequence[Task], size: int = 1) -> tuple[list[Unit], dict[str, Task]]:
    """Return units for tasks that no reader reads, each of `size` tasks, and the task or pack of tasks of each unit."""
    units, given = [], {}
    for number in range(0, len(tasks), size):
        unit = Unit(f"task-{number:06d}", (0, number), (), "task")
        some = list(tasks[number : number + size])
        units.append(unit)
        given[unit.id] = some[0] if size == 1 else TaskPack(data=some)
        for number_in_unit, task in enumerate(some):
            give_id(task, unit.id if size == 1 else f"{unit.id}/{number_in_unit}")
    return units, given


class WorkList:
    """The units that are not committed yet, as a source of events for the scheduler."""

    def __init__(
        self,
        plan: Plan,
        listed: Iterator[Unit],
        done: frozenset[str],
        on_listed: Callable[[Sequence[Unit], bool], None],
        later: Sequence[Callable[[], list[Unit]]] = (),
        on_open: Callable[[Unit], None] = lambda unit: None,
    ) -> None:
        """`on_listed` stores the list; `on_open` is called with every unit, stream and block that is not committed yet.

        `later` are the phases after the first: each function returns units that are not committed yet, and is called
        when all units before are committed, until it returns none.
        """
        self._on_open = on_open
        self._plan = plan
        self._lister = Lister(listed)
        self._done = done
        self._done_of_file = Counter(unit.rsplit("-", 1)[0] for unit in done if is_input_unit(unit))
        self._on_listed = on_listed
        self._later = list(later)
        self._units: dict[str, Unit] = {}
        self._tasks: dict[str, Task] = {}
        self._open: set[str] = set()
        self._streams: dict[str, _Stream] = {}
        self._passed_input = False
        self._list_stored = False
        self.complete = False
        """True if all units were passed to the scheduler."""
        self.total = 0
        """Number of input units known so far."""
        self.resumed = 0
        """Number of units that an earlier attempt committed."""

    @property
    def listed(self) -> bool:
        """True if the input was listed to its end."""
        return self._lister.complete

    def first_open(self) -> tuple[int, int] | None:
        """Return the input order of the first unit that is not committed; `None` if all known ones are."""
        orders = [self._units[unit].order for unit in self._open]
        for stream in self._streams.values():
            orders += [self._units[unit].order for unit in stream.open]
            if not stream.read:
                orders.append((stream.unit.order[0], stream.cut))
        return min(orders, default=None)

    def add_initial_tasks(self, tasks: dict[str, Task]) -> None:
        """Add the initial tasks of units that no reader reads."""
        self._tasks.update(tasks)

    def next_event(self) -> UnitsListed | None:
        """Return an event with new units or the end of the list; `None` if nothing changed."""
        if self.complete:
            return None
        found = [as_stream(unit) if unit.stream else unit for unit in self._lister.take()]
        if not self._list_stored and (found or self._lister.complete):
            self._list_stored = self._lister.complete
            self._on_listed(found, self._lister.complete)
        fresh = [unit for unit in found if not self._is_done(unit)]
        if self._later and self._lister.complete and not fresh and self._nothing_open():
            fresh = self._next_phase()
        more = not self._lister.complete or bool(self._later)
        input_ends = more and self._lister.complete
        if not fresh and more and (self._passed_input or not input_ends):
            return None
        self.complete, self._passed_input = not more, self._lister.complete
        return UnitsListed(tuple(self._spec(unit) for unit in fresh), more, input_ends)

    def _next_phase(self) -> list[Unit]:
        """Return the units of the first phase that has some left."""
        while self._later:
            units = self._later[0]()
            if units:
                return units
            del self._later[0]
        return []

    def _nothing_open(self) -> bool:
        return not self._open and all(stream.read and not stream.open for stream in self._streams.values())

    def _is_done(self, unit: Unit) -> bool:
        if unit.stream:
            cut = self._done_of_file[unit.id.removesuffix(STREAM)]
            self.total += cut
            self.resumed += cut
        else:
            self.total += 1
            self.resumed += unit.id in self._done
        return unit.id in self._done

    def _spec(self, unit: Unit) -> UnitSpec:
        self._units[unit.id] = unit
        self._on_open(unit)
        if unit.stream:
            self._streams[unit.id] = _Stream(unit)
        else:
            self._open.add(unit.id)
        nbytes = 0 if unit.id.startswith(JOIN_PREFIX) else unit.nbytes
        return UnitSpec(unit.id, unit.order, self._entry(unit), nbytes, unit.stream, unit.weight)

    def _entry(self, unit: Unit) -> int:
        entries = self._plan.entries
        if unit.id.startswith(JOIN_PREFIX):
            return entries[f"join-{unit.phase + 1}" if unit.phase < len(self._plan.phase_writers) else "join"]
        if unit.phase:
            return entries[f"phase-{unit.phase + 1}"]
        if unit.stream:
            return entries["stream"]
        return entries["unit"] if "unit" in entries else entries["task"]

    def units_of(self, event: UnitsListed) -> tuple[list[Unit], dict[str, Task]]:
        """Return the units in an event and their initial tasks."""
        ids = [spec.unit for spec in event.units]
        return [self._units[key] for key in ids], {key: self._tasks.pop(key) for key in ids if key in self._tasks}

    # -- progress of units --------------------------------------------------------------------------------------------

    def unit(self, unit_id: str) -> Unit:
        """Return a unit by its id."""
        return self._units[unit_id]

    def cut(self, unit_id: str) -> None:
        """Register a unit that was cut from its stream."""
        if unit_id in self._units or unit_id in self._done:
            return
        stream = self._streams[stream_id(unit_id)]
        stream.open.add(unit_id)
        block = self._units[unit_id] = stream.unit.block(int(unit_id.rsplit("-", 1)[1]))
        stream.cut = max(stream.cut, block.order[1] + 1)
        self._on_open(block)
        self.total += 1

    def stream_read(self, unit_id: str) -> Unit | None:
        """Mark a stream as read to its end; return it if all its units are committed."""
        stream = self._streams[unit_id]
        stream.read = True
        return stream.unit if not stream.open else None

    def committed(self, unit_id: str) -> tuple[Unit, Unit | None]:
        """Mark a unit as committed; return it, and its stream if that was the last open unit of it."""
        unit = self._units[unit_id]
        self._open.discard(unit_id)
        stream = self._streams.get(stream_id(unit_id)) if self._streams else None
        if stream is None or unit_id not in stream.open:
            return unit, None
        stream.open.discard(unit_id)
        return unit, stream.unit if stream.read and not stream.open else None


def _guarded(units: Iterator[Unit]) -> Iterator[Unit]:
    """Yield the units. An exception of a reader must not look like Ctrl-C or an exit of the program."""
    try:
        yield from units
    except (ControlSignal, Exception, GeneratorExit):
        raise
    except BaseException as error:
        raise RunFailedError(f"listing the input failed:\n{traceback_of(error)}") from None


class Lister:
    """Background listing of units, returned in batches."""

    def __init__(self, units: Iterator[Unit]) -> None:
        self._units = _guarded(units)
        self._found: queue.SimpleQueue[list[Unit] | BaseException | None] = queue.SimpleQueue()
        self._started = False
        self.complete = False

    def take(self) -> list[Unit]:
        """Return the units found since the last call; set `complete` at the end, and raise what the listing raised."""
        if self.complete:
            return []
        if not self._started:
            return self._first_slice()
        taken: list[Unit] = []
        while not self._found.empty():
            found = self._found.get()
            if isinstance(found, BaseException):
                raise found
            if found is None:
                self.complete = True
                break
            taken.extend(found)
        return taken

    def _first_slice(self) -> list[Unit]:
        """List a small input without a thread, so that its first task starts at once."""
        self._started = True
        taken = []
        until = time.monotonic() + FIRST_SLICE_S
        for unit in self._units:
            taken.append(unit)
            if time.monotonic() > until:
                threading.Thread(target=self._rest, name="thresher-lister", daemon=True).start()
                return taken
        self.complete = True
        return taken

    def _rest(self) -> None:
        batch: list[Unit] = []
        try:
            for unit in self._units:
                batch.append(unit)
                if len(batch) >= BATCH_UNITS or self._found.empty():
                    self._found.put(batch)
                    batch = []
        except BaseException as error:  # passed to the driver, which raises it
            self._found.put(error)
            return
        self._found.put(batch)
        self._found.put(None)
