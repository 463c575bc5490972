# SPDX-License-Identifier: Apache-2.0
"""How much goes into one call: halved when memory runs out, remembered, and growing again slowly.

`InferenceBatcher` is for authors of stages with a model: it cuts what a call was given into forward passes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from thresher.core.out_of_memory import is_out_of_memory, release_accelerator_memory
from thresher.errors import UsageError

Item = TypeVar("Item")
Result = TypeVar("Result")

FIRST_PATIENCE = 16
"""So many calls near the limit must work before it grows; twice as many after each time that memory ran out."""
MOST_PATIENCE = 1024


class FittingSize:
    """The size that works, in whatever unit the caller counts (records, bytes, tasks)."""

    def __init__(self, most: int | None = None) -> None:
        """`most`: what a call may take as long as memory suffices; `None`: anything."""
        self._most = most
        self._patience = FIRST_PATIENCE
        self._worked = 0
        self.limit = most
        """What a call should take at most; `None`: anything."""

    def ran_out(self, size: int) -> None:
        """Memory ran out in a call of `size`: from now on at most half of it."""
        half = max(1, size // 2)
        self.limit = half if self.limit is None else min(self.limit, half)
        self._patience = min(MOST_PATIENCE, 2 * self._patience)
        self._worked = 0

    def worked(self, size: int) -> None:
        """A call of `size` worked. Many of them near the limit let it grow by a quarter."""
        if self.limit is None or self.limit == self._most or 2 * size <= self.limit:
            return
        self._worked += 1
        if self._worked >= self._patience:
            self._worked = 0
            grown = self.limit + max(1, self.limit // 4)
            self.limit = grown if self._most is None else min(grown, self._most)


def note_split(stage: Any, size: int, *, failed: bool = True) -> None:
    """Remember for the report that `stage` gets `size` records at a time, because memory ran out: just now, or before
    (not `failed`)."""
    count, smallest = stage.__dict__.get("_splits", (0, size))
    stage.__dict__["_splits"] = (count + failed, min(smallest, size))


class InferenceBatcher:
    """Feeds a model in forward passes of at most `model_inference_batch_size` items.

    A pass that runs out of memory is halved and tried again. The size that works is kept for the next call, so make one
    batcher per worker, in `setup`:

        def setup(self, worker_metadata=None):
            self.model = load_model()
            self.batcher = InferenceBatcher(self.model_inference_batch_size, stage=self)

        def process(self, batch):
            return batch.replace("score", self.batcher.run(self.model.score, batch.values("text")))

    An item that does not fit alone raises; the framework then sets that record aside and goes on with the others.
    """

    def __init__(self, model_inference_batch_size: int, *, stage: Any = None) -> None:
        """`stage`: the stage in whose line of the report splits are shown."""
        size = model_inference_batch_size
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise UsageError(f"model_inference_batch_size: {size!r} is not a whole number of 1 or more")
        self._fits = FittingSize(size)
        self._stage = stage

    @property
    def size(self) -> int:
        """Items per forward pass at present."""
        assert self._fits.limit is not None
        return self._fits.limit

    def run(self, forward: Callable[[Sequence[Item]], Sequence[Result]], items: Sequence[Item]) -> list[Result]:
        """One result per item, in order. `forward` gets a slice of `items`: a list, an array or a tensor."""
        results: list[Result] = []
        while len(results) < len(items):
            part = items[len(results) : len(results) + self.size]
            made = self._try(forward, part)
            if made is None:
                self._shrink(len(part))
            else:
                results.extend(made)
                self._fits.worked(len(part))
        return results

    def _try(self, forward: Callable[[Sequence[Item]], Sequence[Result]], part: Sequence[Item]) -> Any:
        """What the model made of `part`; `None` where memory ran out.

        The error has gone when this returns, and with it what the frames that it went through held.
        """
        try:
            made = forward(part)
        except Exception as error:  # a model may raise anything
            if len(part) == 1 or not is_out_of_memory(error):
                raise
            return None
        if len(made) != len(part):
            raise ValueError(f"the model got {len(part)} items and gave {len(made)} results; give one result per item")
        return made

    def _shrink(self, size: int) -> None:
        self._fits.ran_out(size)
        gc.collect()
        release_accelerator_memory()
        if self._stage is not None:
            note_split(self._stage, self.size)
