# SPDX-License-Identifier: Apache-2.0
"""Choice of the one of several duplicates that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from thresher.errors import UsageError, nearest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.core.documents.batch import DocumentBatch

KeepWord = Literal["first", "longest", "best", "source"]
_WORDS = ("first", "longest", "best", "source")


class Keep:
    """A choice among duplicates. Among equal ones the first of the input is kept."""

    def __init__(self, owner: str, keep: str, keep_by: str | None, prefer: Sequence[str] = ()) -> None:
        """`owner`: the name of the stage, for errors; the others are its arguments."""
        if keep not in _WORDS:
            raise UsageError(f"{owner}.keep: {keep!r} is not one of {', '.join(_WORDS)}.{nearest(str(keep), _WORDS)}")
        if (keep == "best" and keep_by is None) or (keep in ("first", "longest") and keep_by is not None):
            needs = "a column" if keep_by is None else 'keep="best" or keep="source"'
            raise UsageError(f"{owner}.keep_by: keep={keep!r} with keep_by={keep_by!r}; it needs {needs}")
        if (keep == "source") != bool(prefer) or isinstance(prefer, str):
            raise UsageError(f'{owner}.prefer: {prefer!r}; with keep="source" it is a list of values, best first')
        self.keep, self.keep_by, self.prefer = keep, keep_by, list(prefer)

    def columns(self) -> list[str]:
        """Return the columns that are looked at, besides the text."""
        return [] if self.keep_by is None else [self.keep_by]

    def ranks(self, batch: DocumentBatch, text_field: str) -> npt.NDArray[np.float64] | None:
        """Return a number for each document, the largest for the one to keep; `None` if the first one is kept."""
        import numpy as np

        if self.keep == "first":
            return None
        if self.keep == "longest":
            from thresher.stages.text.columns.text_column import text_column

            column = text_column(batch, text_field)
            return np.asarray((column.texts.ends - column.texts.starts)[column.rows].astype(np.float64))
        if self.keep_by is None:
            return self._ranks_of_files(batch)
        values = batch.values(self.keep_by)
        if self.keep == "best":
            return np.array([_number(value) for value in values], dtype=np.float64)
        places = {value: -float(place) for place, value in enumerate(self.prefer)}
        return np.array([places.get(value, -np.inf) if isinstance(value, str) else -np.inf for value in values])

    def _ranks_of_files(self, batch: DocumentBatch) -> npt.NDArray[np.float64]:
        """Return ranks by the folder or file that each document comes from."""
        import numpy as np

        assert batch.ids is not None, "documents of a run have ids"
        ranks = [
            next((-float(place) for place, name in enumerate(self.prefer) if _is_in(path, name)), -np.inf)
            for _, path in batch.ids.sources
        ]
        return np.array(ranks, dtype=np.float64)[batch.ids.which]


def _is_in(path: str, name: str) -> bool:
    """Return True if `name` is one of the folders of a path, several of them, or its file."""
    return f"/{name.strip('/')}/" in f"/{path}/"


def _number(value: Any) -> float:
    """Return a value as a number; anything but a number comes last."""
    is_number = isinstance(value, int | float) and value == value  # not a number is not equal to itself
    return float(value) if is_number else float("-inf")
