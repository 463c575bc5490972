# SPDX-License-Identifier: Apache-2.0
"""What the driver knows about payloads in Ray's object store: it owns them all, and lets go of each in time."""

from __future__ import annotations

from typing import Any

import ray

from thresher.backends.ray_link import Key, Lent, Parts
from thresher.runtime.payload import NOWHERE, Encoded, Payload
from thresher.runtime.payload_store import PayloadMissing


class RefBook:
    """All payloads of a run."""

    def __init__(self) -> None:
        self._last_task = 0
        self._payloads: dict[int, Payload] = {}
        self._refs: dict[Key, Any] = {}
        """Payloads to the objects that hold them."""

    def came(self, worker: int, first: int, refs: list[Any]) -> int:
        """Objects of a worker, numbered from `first` on, as it numbered them; the number of the next one."""
        self._refs.update(((worker, number), ref) for number, ref in enumerate(refs, first))
        return first + len(refs)

    def unspoken(self, worker: int, numbers: list[int]) -> None:
        """Objects of a worker that no message will speak of."""
        for number in numbers:
            self._refs.pop((worker, number), None)

    def add(self, payload: Payload) -> int:
        """Number a new task."""
        self._last_task = task = self._last_task + 1
        self._payloads[task] = payload
        return task

    def lend(self, task: int) -> tuple[Payload, Lent]:
        """The payload of a task, and the object that holds it."""
        payload = self._payloads[task]
        if payload.arena == NOWHERE:
            return payload, []
        key = (payload.arena, payload.offset)
        return payload, [(key, self._refs[key])]

    def release(self, task: int) -> None:
        """A payload that is needed no more. Unknown tasks are ignored: their result was taken."""
        payload = self._payloads.pop(task, None)
        if payload is not None and payload.arena != NOWHERE:
            self._refs.pop((payload.arena, payload.offset), None)

    def take(self, task: int) -> Payload:
        """The payload of a task as one that lies in itself; it is released."""
        payload = self.fetch(self._payloads[task])
        self.release(task)
        return payload

    def fetch(self, payload: Payload) -> Payload:
        """A payload as one that lies in itself; its object is let go. Raises `PayloadMissing`."""
        if payload.arena == NOWHERE:
            return payload
        try:
            parts: Parts = ray.get(self._refs.pop((payload.arena, payload.offset)))
        except ray.exceptions.RayError as error:
            raise PayloadMissing(f"a result of worker {payload.arena} is lost: {error}") from None
        head, *arrays = parts
        return Encoded(head, [array.data for array in arrays], payload.lengths if arrays else ()).inline()

    def made_by(self, workers: set[int]) -> list[int]:
        """Tasks whose payloads these workers made."""
        return [task for task, payload in self._payloads.items() if payload.arena in workers]

    def close(self) -> None:
        """Let go of everything."""
        self._payloads.clear()
        self._refs.clear()
