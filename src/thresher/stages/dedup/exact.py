# SPDX-License-Identifier: Apache-2.0
"""Exact duplicates: documents with the same text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from thresher.core.documents.batch import DocumentBatch
from thresher.stages.dedup.deduplication import Deduplication
from thresher.stages.dedup.keep import Keep, KeepWord

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class ExactDeduplication(Deduplication):
    """Keep one of all documents with the same text.

    Texts are compared by a hash of 128 bits. Empty texts are the same text.
    """

    similarity = 1.0

    def __init__(  # noqa: PLR0913 - all have a default, under the names that users know
        self,
        text_field: str = "text",
        keep: KeepWord = "first",
        keep_by: str | None = None,
        prefer: Sequence[str] = (),
        action: Literal["drop", "list"] = "drop",
        normalize: bool | str | Sequence[str] = False,
        index: str | Sequence[str] | None = None,
    ) -> None:
        """`keep`: which one stays: the `first` of the input, the `longest`, the `best` value in the column `keep_by`,
        or the preferred `source`: the first of the values in `prefer` that the column `keep_by` has, or, without
        `keep_by`, the first of the folders in `prefer` that the document's file is in.
        `action`: `drop` the others, or `list` all documents that have duplicates, in place of the documents.
        `normalize`: compare texts without differences of `unicode` (NFKC), `case`, `punctuation` or `space`; `True`: of
        all of them. What is written does not change.
        `index`: folders that `IndexWriter` has written: documents that are in them already are dropped.
        """
        super().__init__(text_field, Keep("ExactDeduplication", keep, keep_by, prefer), action, normalize, index)

    def kernels(self) -> list[str]:
        """Return the module that hashes texts."""
        return ["thresher.kernels.dedup.text_hash"]

    def keys(self, batch: DocumentBatch) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Return a hash of each text."""
        import numpy as np

        from thresher.kernels.dedup.text_hash import hash_texts

        hashes = hash_texts(self.texts(batch))
        high = np.maximum(hashes[:, :1], np.uint64(1))  # 0 would be no key
        return high, np.ascontiguousarray(hashes[:, 1:])
