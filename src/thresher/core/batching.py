# SPDX-License-Identifier: Apache-2.0
"""Adapt the size of a call to the available memory: halve it when memory runs out, and let it grow again slowly.

`InferenceBatcher` is for authors of stages with a model: it splits the input of a call into forward passes.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from thresher.core.tally import context_of
from thresher.errors import UsageError
from thresher.stage_errors import is_out_of_memory

Item = TypeVar("Item")
Result = TypeVar("Result")

MIN_PATIENCE = 16
"""Calls near the limit that must succeed before the limit grows. The number doubles each time memory runs out."""
MAX_PATIENCE = 1024


class FittingSize:
    """The largest size that fits in memory, in the unit of the caller (records, bytes, tasks)."""

    def __init__(self, most: int | None = None) -> None:
        """Start with the limit `most`, which is also the upper bound; `None` means no limit."""
        self._most = most
        self._patience = MIN_PATIENCE
        self._worked = 0
        self.limit = most
        """Maximum size of a call; `None` means no limit."""

    def ran_out(self, size: int) -> None:
        """Halve the limit after a call of `size` ran out of memory."""
        half = max(1, size // 2)
        self.limit = half if self.limit is None else min(self.limit, half)
        self._patience = min(MAX_PATIENCE, 2 * self._patience)
        self._worked = 0

    def worked(self, size: int) -> None:
        """Count a successful call of `size`. After enough calls near the limit, raise the limit by a quarter."""
        if self.limit is None or self.limit == self._most or 2 * size <= self.limit:
            return
        self._worked += 1
        if self._worked >= self._patience:
            self._worked = 0
            grown = self.limit + max(1, self.limit // 4)
            self.limit = grown if self._most is None else min(grown, self._most)


class CallSizes:
    """Input sizes that calls of one stage handle in one worker."""

    def __init__(self) -> None:
        self.nbytes = FittingSize()
        """Bytes of a task."""
        self.tasks = FittingSize()
        """Tasks of a group (`batch_size`)."""


class InferenceBatcher:
    """Batcher that runs a model in forward passes of at most `model_inference_batch_size` items.

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
        """Show splits in the report under `stage`."""
        size = model_inference_batch_size
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise UsageError(f"model_inference_batch_size: {size!r} is not a whole number of 1 or more")
        self._fits = FittingSize(size)
        self._stage = stage

    @property
    def size(self) -> int:
        """Return the current number of items per forward pass."""
        assert self._fits.limit is not None
        return self._fits.limit

    def run(self, forward: Callable[[Sequence[Item]], Sequence[Result]], items: Sequence[Item]) -> list[Result]:
        """Return one result per item, in order. `forward` receives a slice of `items`: a list, an array or a tensor."""
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
        """Return the model's results for `part`; `None` if memory ran out.

        The error is released on return, and with it the objects that its frames held.
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
            context_of(self._stage).noted.note_splits(1, self.size)


def release_accelerator_memory() -> None:
    """Release the memory that torch caches on an accelerator, if a stage has imported torch."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        cuda.empty_cache()
