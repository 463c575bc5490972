# SPDX-License-Identifier: Apache-2.0
"""Tasks: small envelopes around one piece of data. Who runs a task is not its business."""

from __future__ import annotations

import sys
from typing import Any

_SIZED = (bytes, bytearray, str, memoryview)
"""Data whose length says what it takes."""


class Task:
    """One piece of data on its way through a pipeline. Subclass it for data of your own."""

    def __init__(
        self,
        dataset_name: str = "",
        data: Any = None,
        metadata: dict[str, Any] | None = None,
        task_id: str | None = None,
    ) -> None:
        """`metadata` is a small dict that goes from parent to child. `task_id` is accepted and ignored: ids are
        ours."""
        del task_id
        self.dataset_name = dataset_name
        self._data = data
        self.metadata: dict[str, Any] = dict(metadata or {})
        self._task_id = ""

    @property
    def data(self) -> Any:
        """What the task carries."""
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
        """How many records the task counts for."""
        return 1

    @property
    def nbytes(self) -> int:
        """Bytes that the data takes, as far as that is cheap to know."""
        size = getattr(self._data, "nbytes", None)
        if isinstance(size, int):
            return size
        if isinstance(self._data, _SIZED):
            return len(self._data)
        return sys.getsizeof(self._data)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._task_id or 'new'}, {self.num_items} items)"


class EmptyTask(Task):
    """What the first stage of a pipeline gets when there are no initial tasks."""

    @property
    def num_items(self) -> int:
        """Nothing is in it."""
        return 0

    @property
    def nbytes(self) -> int:
        """Nothing is in it."""
        return 0


class FileGroupTask(Task):
    """A list of files: `data` holds their paths."""

    def __init__(
        self,
        dataset_name: str = "",
        data: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        task_id: str | None = None,
    ) -> None:
        super().__init__(dataset_name, list(data or []), metadata, task_id)

    @property
    def num_items(self) -> int:
        """The number of files."""
        return len(self._data)

    @property
    def nbytes(self) -> int:
        """The paths alone."""
        return sum(len(path) for path in self._data)


class RawChunk(Task):
    """Bytes that a source cut at record ends and that are still to be parsed by the same source stage."""

    def __init__(self, buffer: Any, offset: int, source: tuple[str, str], dataset_name: str = "") -> None:
        """`offset` is the place of the first byte in the unpacked file, `source` the file's id prefix and its path."""
        super().__init__(dataset_name, buffer)
        self.offset = offset
        self.source = source

    @property
    def num_items(self) -> int:
        """Unknown until it is parsed."""
        return 0

    @property
    def nbytes(self) -> int:
        """Length of the buffer."""
        return memoryview(self._data).nbytes
