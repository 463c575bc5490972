# SPDX-License-Identifier: Apache-2.0
"""Run a model on any number of texts in forward passes that are padded little and that fit into memory.

Texts are sorted by length, the longest first, so that texts of a forward pass need little padding, and memory that is
too small shows at the start. If memory runs out, a pass is halved, and so many tokens are not tried again in this
worker. Rows come back in the order of the texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from thresher.models.token_lists import TokenLists
from thresher.stage_errors import is_out_of_memory

if TYPE_CHECKING:
    import numpy.typing as npt

    from thresher.models.token_lists import Rows

    Numbers = npt.NDArray[Any]

CPU_TOKENS = 2048
"""Tokens of a forward pass on a CPU, padding included: with more, what it computes no longer fits into the caches."""


class TokenModel(Protocol):
    """A loaded model that takes token ids."""

    pad_id: int
    """The id that stands for no token."""
    pads_left: bool
    """True if it wants the padding before the ids."""
    most_tokens: int | None
    """Tokens of a forward pass beyond which it gets no faster; `None`: no such limit."""

    def forward(self, ids: Rows, mask: Rows) -> Numbers:
        """Return one row of numbers for each text."""
        ...

    def free_memory(self) -> None:
        """Give back what the runtime keeps for later, after memory ran out."""
        ...


class Batches:
    """Cuts texts into forward passes. One belongs to each worker, and remembers the size that fits."""

    def __init__(
        self, model: TokenModel, most_items: int, *, sort: bool = True, on_halving: Callable[[int], None] | None = None
    ) -> None:
        """`on_halving` is called with the number of texts of the smaller pass each time that memory ran out."""
        self.model = model
        self._most_items = most_items
        self._sort = sort
        self._on_halving = on_halving
        self.most_tokens = model.most_tokens
        """Tokens of a forward pass, padding included; lowered when memory runs out. `None`: no limit."""

    def run(self, tokens: TokenLists) -> Numbers:
        """Return one row of numbers for each text, in the order of the texts."""
        import numpy as np

        lengths = tokens.lengths
        order = np.argsort(-lengths, kind="stable") if self._sort else np.arange(len(lengths), dtype=np.int64)
        parts: list[Numbers] = []
        start = 0
        while start < len(order):
            rows = order[start : start + self._size(lengths[order[start : start + self._most_items]])]
            found = self._forward(tokens, rows)
            if found is not None:
                parts.append(found)
                start += len(rows)
        if not parts:
            return np.zeros((0, 0), dtype=np.float32)
        together = np.concatenate(parts)
        restored = np.empty_like(together)
        restored[order] = together
        return restored

    def _size(self, lengths: Rows) -> int:
        """Return how many of the next texts fit into a forward pass."""
        import numpy as np

        if self.most_tokens is None:
            return len(lengths)
        widths = np.maximum.accumulate(np.maximum(lengths, 1))
        fits = widths * np.arange(1, len(lengths) + 1) <= self.most_tokens
        return max(1, int(fits.sum()))

    def _forward(self, tokens: TokenLists, rows: Rows) -> Numbers | None:
        """Return the rows of a forward pass; `None` if it has to be smaller. One text alone that does not fit raises
        the error of the runtime."""
        ids, mask = tokens.padded(rows, self.model.pad_id, left=self.model.pads_left)
        try:
            return self.model.forward(ids, mask)
        except Exception as error:
            if len(rows) == 1 or not is_out_of_memory(error):
                raise
        # Outside of the handler, so that the traceback no longer holds the tensors of the failed pass.
        half = len(rows) // 2
        self.most_tokens = half * ids.shape[1]
        self.model.free_memory()
        if self._on_halving is not None:
            self._on_halving(half)
        return None
