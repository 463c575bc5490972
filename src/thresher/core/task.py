# SPDX-License-Identifier: Apache-2.0
"""Tasks: small envelopes around one piece of data. Who runs a task is not its business."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from thresher.errors import UsageError, with_article

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Payload = TypeVar("Payload", default=Any)
else:
    from typing import TypeVar

    Payload = TypeVar("Payload")

_SIZED = (bytes, bytearray, str)
"""Data whose length says what it takes."""
_SCALARS = frozenset({int, float, bool, type(None)})
"""Types that hold nothing further; every task is measured several times, so the common ones are told at once."""
_SAMPLED = 256
"""Of a longer collection this many values, spread over it, stand for all."""
_DEPTH = 4
"""Depth to which collections are measured."""


@dataclass(init=False, eq=False, repr=False)
class _TaskFields:
    """The fields of a task, from which `@dataclass` makes the constructor of a subclass."""

    dataset_name: str = ""
    """Name of the data that the task belongs to."""
    data: Any = None
    """The payload."""
    _stage_perf: list[Any] = field(default_factory=list)
    """Notes of the author's own about earlier stages; the framework keeps its times in the report."""
    _metadata: dict[str, Any] = field(default_factory=dict)
    """Another name of `metadata`."""


class Task(_TaskFields, Generic[Payload]):
    """One piece of data on its way through a pipeline. Subclass it for data of your own, as a dataclass if you like.

    `Task[dict]` is a task whose `data` is a dict. `validate` is called when a dataclass is made.
    """

    has_constant_buffers: ClassVar[bool] = False
    """True if nothing changes the buffers of the data in place, so that the caller of a run gets them without a copy.
    A subclass, which may hold more, does not inherit it."""
    counted_items: int | None = None
    """The number of records that the task was counted as when it entered the current stage, which may change it; set by
    the worker."""
    unit_lines: Any = None
    """Lines about other records that travel with the task to the files of its unit; set by the worker."""
    dataset_name: str = ""
    _data: Any = None
    _task_id: str = ""

    def __init__(
        self,
        dataset_name: str = "",
        data: Payload | None = None,
        metadata: dict[str, Any] | None = None,
        task_id: str | None = None,
        *,
        _metadata: dict[str, Any] | None = None,
        _stage_perf: list[Any] | None = None,
    ) -> None:
        """`metadata` is a small dict that goes from parent to child; `_metadata` is another name of it. `task_id` is
        accepted and ignored: ids are ours."""
        del task_id
        for found in (metadata, _metadata):
            if found is not None and not isinstance(found, Mapping):
                raise UsageError(
                    f"{type(self).__name__}: metadata is {with_article(type(found))}, not a dict; name the arguments, "
                    "such as metadata={…}"
                )
        self.dataset_name = dataset_name
        self._data = data
        self.metadata = {**(metadata or {}), **(_metadata or {})}
        if _stage_perf is not None:
            self._stage_perf = list(_stage_perf)

    def __post_init__(self) -> None:
        """Validate a task whose class is a dataclass."""
        self.validate()

    def validate(self) -> bool:
        """Return False, or raise, if the data is not what the type promises; for subclasses to define."""
        return True

    @functools.cached_property
    def metadata(self) -> dict[str, Any]:
        """Return the small dict that goes from parent to child."""
        return {}

    @property
    def _metadata(self) -> dict[str, Any]:
        return self.metadata

    @_metadata.setter
    def _metadata(self, value: dict[str, Any]) -> None:
        self.metadata = value

    @functools.cached_property
    def _stage_perf(self) -> list[Any]:  # type: ignore[override]  # a cached property can be assigned to
        return []

    @property
    def data(self) -> Any:
        """Return the payload."""
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        self._data = value

    @property
    def task_id(self) -> str:
        """The id that the framework gave: unit id and path, such as `3f2a…-000000/4`; empty before a run."""
        return self._task_id

    @property
    def num_items(self) -> int:
        """Return the number of records that the task counts for."""
        return 1

    @property
    def nbytes(self) -> int:
        """Bytes that the data takes, as far as that is cheap to know."""
        return _size_of(self.data, _DEPTH)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._task_id or 'new'}, {self.num_items} items)"


def give_id(task: Task, task_id: str) -> None:
    """Set the id of a task."""
    task._task_id = task_id


def items_before(task: Task) -> int:
    """Return how many records a task counted for when it entered the current stage."""
    return task.num_items if task.counted_items is None else task.counted_items


def exact_size(data: Any) -> int:
    """Return the bytes of a value and of everything in it, however long and deep."""
    return _size_of(data, sys.maxsize, exact=True)


def _size_of(data: Any, depth: int, *, exact: bool = False) -> int:
    """Return the bytes of a value: exact for buffers and texts, estimated for long collections unless `exact`."""
    if type(data) in _SCALARS:
        return sys.getsizeof(data)
    size = getattr(data, "nbytes", None)
    if isinstance(size, int):
        is_of_objects = exact and getattr(getattr(data, "dtype", None), "hasobject", False)
        return size + (_size_of(data.tolist(), depth, exact=True) if is_of_objects else 0)
    if isinstance(data, _SIZED):
        return len(data)
    if isinstance(data, Mapping):
        parts: Any = itertools.chain.from_iterable(data.items())
        count = 2 * len(data)
    elif isinstance(data, list | tuple | set | frozenset):
        parts, count = data, len(data)
    elif exact and hasattr(data, "__dict__") and not _tells_its_size(data):
        parts, count = vars(data).values(), len(vars(data))
    else:
        return _size_of_buffer(data)
    if not count or not depth:
        return sys.getsizeof(data)
    step = 1 if exact else -(-count // _SAMPLED) | 1  # odd, so that keys and values of a mapping take turns
    sizes = [_size_of(part, depth - 1, exact=exact) for part in itertools.islice(parts, 0, None, step)]
    return sys.getsizeof(data) + sum(sizes) * count // len(sizes)


def _tells_its_size(data: Any) -> bool:
    """Return True if a type computes what its objects take, as data frames do."""
    return any("__sizeof__" in cls.__dict__ for cls in type(data).__mro__[:-1])


def _size_of_buffer(data: Any) -> int:
    try:
        return memoryview(data).nbytes
    except TypeError:
        return sys.getsizeof(data)


class EmptyTask(Task):
    """The task that the first stage of a pipeline gets if there are no initial tasks."""

    @property
    def num_items(self) -> int:
        """Nothing is in it."""
        return 0

    @property
    def nbytes(self) -> int:
        """Nothing is in it."""
        return 0


class FileGroupTask(Task[list[str]]):
    """A list of files: `data` holds their paths."""

    def __init__(
        self,
        dataset_name: str = "",
        data: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        task_id: str | None = None,
        **fields: Any,
    ) -> None:
        """`fields` are those of `Task`, and `reader_config`, a dict for the stage that reads the files."""
        self.reader_config: dict[str, Any] = dict(fields.pop("reader_config", None) or {})
        super().__init__(dataset_name, list(data or []), metadata, task_id, **fields)

    @property
    def num_items(self) -> int:
        """The number of files."""
        return len(self.data)

    @property
    def nbytes(self) -> int:
        """The paths alone."""
        return sum(len(path) for path in self.data)


class TaskPack(Task):
    """Initial tasks that go into one call of the first stage: `data` holds them. No stage ever sees it."""

    @property
    def num_items(self) -> int:
        """Those of all tasks."""
        return sum(task.num_items for task in self._data)

    @property
    def nbytes(self) -> int:
        """Those of all tasks."""
        return sum(task.nbytes for task in self._data)


class RawChunk(Task):
    """Bytes that a source cut at record ends and that are still to be parsed by the same source stage."""

    has_constant_buffers = True

    def __init__(self, buffer: Any, offset: int, source: tuple[str, str], dataset_name: str = "") -> None:
        """`offset` is the place of the first byte in the unpacked file, `source` the file's id prefix and its path."""
        super().__init__(dataset_name, buffer)
        self.offset = offset
        self.source = source

    @property
    def raw_buffer(self) -> Any:
        """Return the bytes."""
        return self._data

    def halves(self) -> list[RawChunk]:
        """Return the chunk cut in two between records, for a parser that ran out of memory; empty if it is one record.

        By itself a chunk is not cut. A source whose chunks hold several records gives chunks of a subclass that cuts
        where records end.
        """
        return []

    @property
    def num_items(self) -> int:
        """Unknown until it is parsed."""
        return 0

    @property
    def nbytes(self) -> int:
        """Length of the buffer."""
        return memoryview(self._data).nbytes
