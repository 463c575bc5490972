# SPDX-License-Identifier: Apache-2.0
"""What a worker needs of the place where its payloads lie, and of its connection to the driver."""

from __future__ import annotations

from typing import Any, Protocol

from thresher.core.task import Task
from thresher.runtime.payload import Encoded, Payload


class PayloadMissing(Exception):
    """A payload that can no longer be read: its machine is gone, or its object was lost."""


class PayloadReader(Protocol):
    """Opens payloads of any worker."""

    held_bytes: int
    """Bytes of payloads that were still looked at when `ended` was last asked."""

    def open(self, payload: Payload) -> Task:
        """The task of a payload. Raises `PayloadMissing`."""

    def give_up(self, payload: Payload) -> None:
        """A payload that came and was never opened."""

    def ended(self) -> list[tuple[int, int]]:
        """Payloads that nobody looks at any more, for whoever must be told: arena and offset."""

    def add(self, number: int, arena: Any) -> None:
        """Make the payloads of another worker readable, where that takes a step."""

    def drop(self, number: int) -> None:
        """Forget the payloads of a worker."""


class PayloadStore(Protocol):
    """Where a worker puts what it emits."""

    number: int
    """That of the worker."""

    def put(self, encoded: Encoded) -> Payload:
        """Copy a task there; the task may change or go afterwards."""

    def free(self, offset: int) -> None:
        """A payload of this worker that nobody needs any more."""

    def reader(self) -> PayloadReader:
        """Opens what this worker and others have put there."""


class Link(Protocol):
    """A worker's end of the connection to the driver."""

    closed: bool
    """The driver is gone."""

    @property
    def has_unsent(self) -> bool:
        """Whether anything waits to be sent."""

    def fileno(self) -> int:
        """Readable when a message is there."""

    def queue(self, message: Any) -> None:
        """Send with the next `flush`."""

    def flush(self) -> bool:
        """Send what is queued."""

    def receive(self, *, wait: bool = False) -> list[Any]:
        """Messages that are there; with `wait` at least one."""

    def take_fd(self) -> int:
        """The descriptor that came with a message."""
