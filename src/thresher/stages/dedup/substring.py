# SPDX-License-Identifier: Apache-2.0
"""Stretches of text that occur earlier in the corpus are removed, wherever they begin.

Five phases: documents and anchors are written unit by unit; anchors that occur more than once are marked; the stretches
around these are hashed; stretches that occur more than once are marked; documents are read again and cut. See
`thresher.kernels.dedup.substrings` for anchors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from thresher.core.arguments.options import field_name
from thresher.core.arguments.sizes import parse_size
from thresher.core.documents.batch import DocumentBatch
from thresher.errors import UsageError
from thresher.stages.dedup.clustering.groups import KeyGroupReader
from thresher.stages.dedup.keyed_stage import BLOCKSIZE
from thresher.stages.dedup.passages.marks import MarkingStage, MarkWriter, PartsWriter, UnitMarks
from thresher.stages.dedup.passages.substring_phases import CutReader, StretchGroups, StretchReader, StretchWriter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts.text_counts import Texts
    from thresher.stages.dedup.passages.parts import Cuts

SHORTEST = 16
_GRAM_SHARE = 3
_RULE = "repeated-text"


class SubstringDeduplication(MarkingStage):
    """Remove stretches of text that occur earlier in the corpus, wherever they begin.

    A byte goes if it is part of a stretch of `min_length` bytes of one document that also begins earlier in the corpus:
    in a document before, or before in the same one. Characters are never cut apart.
    """

    def __init__(
        self,
        min_length: int = 200,
        keep: Literal["first", "none"] = "first",
        min_document_length: int = 1,
        text_field: str = "text",
        blocksize: int | str = BLOCKSIZE,
    ) -> None:
        """`min_length`: shorter stretches, in bytes of UTF-8, stay.
        `keep`: the `first` occurrence stays, or `none`.
        `min_document_length`: a document that has fewer characters left is dropped, if something was removed from it.
        `blocksize`: bytes of hashes that are compared by one unit.
        """
        if keep not in ("first", "none"):
            raise UsageError(f"SubstringDeduplication.keep: {keep!r} is neither 'first' nor 'none'")
        self.min_length = self.whole("min_length", min_length, SHORTEST)
        self.keep = keep
        self.min_document_length = self.whole("min_document_length", min_document_length, 0)
        self.text_field = field_name("SubstringDeduplication", "text_field", text_field)
        self.blocksize = parse_size(blocksize, "SubstringDeduplication.blocksize")

    @property
    def gram(self) -> int:
        """Return the length of an anchor. Longer ones are more; shorter ones occur more often by chance."""
        return self.min_length // _GRAM_SHARE

    def kernels(self) -> list[str]:
        """Return the kernels that find anchors and hash stretches."""
        return ["thresher.kernels.dedup.substrings"]

    def decompose(self) -> list[Any]:
        """Return the writers and readers of the five phases."""
        return [
            PartsWriter(self).with_(name=f"{self.name}-anchors"),
            KeyGroupReader(self).with_(name=f"{self.name}-anchor-groups"),
            MarkWriter(with_first=True).with_(name=f"{self.name}-anchor-marks"),
            StretchReader(self).with_(name=f"{self.name}-stretches"),
            StretchWriter().with_(name=f"{self.name}-keys"),
            StretchGroups(self).with_(name=f"{self.name}-groups"),
            MarkWriter(with_first=self.keep == "none").with_(name=f"{self.name}-marks"),
            CutReader(self).with_(name=self.name),
        ]

    def texts(self, batch: DocumentBatch) -> Texts:
        """Return the texts of a batch."""
        from thresher.stages.dedup.passages.parts import texts_of

        return texts_of(batch, self.text_field)

    def keys(self, batch: DocumentBatch) -> npt.NDArray[np.uint64]:
        """Return the hashes of all anchors."""
        from thresher.kernels.dedup.substrings import find_anchors

        return find_anchors(self.texts(batch), self.min_length, self.gram).keys

    def without(self, batch: DocumentBatch, marks: UnitMarks) -> tuple[DocumentBatch, int]:
        """Return a batch without the stretches that are marked, and the number of cuts."""
        from thresher.stages.dedup.passages.parts import without_cuts

        texts = self.texts(batch)
        starts = marks.take_numbers(int((texts.ends - texts.starts).sum()))
        if not len(starts):
            return batch, 0
        cuts = stretch_cuts(texts, starts, self.min_length)
        if not len(cuts):
            return batch, 0
        return without_cuts(batch, self.text_field, texts, cuts, (_RULE, self.min_document_length)), len(cuts)


def stretch_cuts(texts: Texts, starts: npt.NDArray[np.int64], length: int) -> Cuts:
    """Return what to cut from texts so that stretches of `length` bytes go.

    `starts` are sorted positions in the joined texts. A character of which only a part is in a stretch stays.
    """
    import numpy as np

    lengths = texts.ends - texts.starts
    begins = np.cumsum(lengths) - lengths  # where each text begins in the joined texts
    rows = np.searchsorted(begins, starts, side="right") - 1
    is_new = np.ones(len(starts), dtype=np.bool_)
    is_new[1:] = (rows[1:] != rows[:-1]) | (starts[1:] > starts[:-1] + length)
    is_last = np.append(is_new[1:], values=True)
    rows = rows[is_new]
    shift = (texts.starts - begins)[rows]
    first, end = starts[is_new] + shift, starts[is_last] + shift + length
    for _ in range(3):  # the most continuation bytes that a character has
        first = first + _continues(texts, first, rows)
        end = end - _continues(texts, end, rows)
    cuts: Cuts = np.column_stack((rows, first, end))[first < end].astype(np.int64)
    return cuts


def _continues(texts: Texts, positions: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return 1 for positions inside of a character, otherwise 0."""
    inside = positions < texts.ends[rows]
    found: npt.NDArray[np.int64] = (inside & (texts.data[positions] & 0xC0 == 0x80)).astype("int64")
    return found
