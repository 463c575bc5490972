# SPDX-License-Identifier: Apache-2.0
"""Data frames that a batch of documents hands out: what user code writes to them in place counts if the batch itself is
returned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from thresher.core.records.record_task import RecordTask

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class LentFrames(RecordTask):
    """The part of a batch that hands out data frames and takes back what was written to them."""

    _before: Any
    """The batch as it was before a user set its `data`."""
    _lent: tuple[Any, ...] = ()
    """Data frames that `to_pandas` handed out: what is written to them counts if the batch itself is returned."""
    lends_frame = False
    """True during a call of a stage that `takes_frames`: `data` and `to_pandas` hand out one data frame."""

    def to_pyarrow(self) -> pa.Table:
        """Return all columns as an Arrow table."""
        raise NotImplementedError

    def to_pandas(self) -> pd.DataFrame:
        """Return all columns as a data frame with the index 0..n-1; nested values are Python objects.

        What is written to it in place counts if a stage returns this batch.
        """
        from thresher.core.documents.frames import to_frame

        if self.lends_frame and self._lent:
            lent: pd.DataFrame = self._lent[-1]
            return lent
        frame = to_frame(self.to_pyarrow())
        self._lent = (*self._lent, frame)
        return frame

    def lend_frames(self) -> None:
        """Hand out one data frame until `absorb_writes`."""
        self.lends_frame = True

    def restored(self) -> Self:
        """Return the batch as it was given, without what was written to data frames that it handed out."""
        batch = self.as_given()
        batch._lent = ()
        return batch

    def absorb_writes(self) -> bool:
        """Take over what a user wrote in place to a data frame of the batch; of several frames that changed, the last.
        Return True if nobody has set other data."""
        self.__dict__.pop("lends_frame", None)
        if self._lent:
            from thresher.core.documents.frames import changed_frame

            lent, self._lent = self._lent, ()
            changed = changed_frame(lent, self.to_pyarrow())
            if changed is not None:
                self.data = changed
        return self._before is None
