# SPDX-License-Identifier: Apache-2.0
"""Lines, paragraphs and sentences that occur earlier in the corpus are removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from thresher.core.arguments.options import field_name
from thresher.core.arguments.sizes import parse_size
from thresher.core.documents.batch import DocumentBatch
from thresher.errors import UsageError
from thresher.stages.dedup.clustering.groups import KeyGroupReader
from thresher.stages.dedup.keyed_stage import BLOCKSIZE
from thresher.stages.dedup.passages.lines_split import UNITS
from thresher.stages.dedup.passages.marks import MarkedReader, MarkingStage, MarkWriter, PartsWriter, UnitMarks

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts.text_counts import Texts
    from thresher.kernels.dedup.passages import Passages

_SENTENCES = 3


class LineDeduplication(MarkingStage):
    """Remove lines, paragraphs or sentences that occur earlier in the corpus; the first occurrence stays.

    They are compared by a hash of 128 bits, without the white space around them. Documents stay in their order.
    """

    def __init__(
        self,
        unit: Literal["line", "paragraph", "sentence"] = "line",
        min_length: int = 20,
        span: int | None = None,
        min_document_length: int = 1,
        text_field: str = "text",
        blocksize: int | str = BLOCKSIZE,
    ) -> None:
        """`unit`: what is compared and removed.
        `min_length`: shorter ones, in characters, stay.
        `span`: so many in a row are compared and removed together; by default 3 sentences, 1 line or paragraph.
        `min_document_length`: a document that has fewer characters left is dropped, if something was removed from it.
        `blocksize`: bytes of hashes that are compared by one unit.
        """
        if unit not in UNITS:
            raise UsageError(f"LineDeduplication.unit: {unit!r} is none of {', '.join(UNITS)}")
        self.unit = unit
        self.min_length = self.whole("min_length", min_length, 0)
        self.span = self.whole("span", (_SENTENCES if unit == "sentence" else 1) if span is None else span, 1)
        self.min_document_length = self.whole("min_document_length", min_document_length, 0)
        self.text_field = field_name("LineDeduplication", "text_field", text_field)
        self.blocksize = parse_size(blocksize, "LineDeduplication.blocksize")

    def kernels(self) -> list[str]:
        """Return the kernels that find and hash passages."""
        return ["thresher.kernels.dedup.passages"]

    def decompose(self) -> list[Any]:
        """Return the writers and readers of the three phases."""
        return [
            PartsWriter(self).with_(name=f"{self.name}-keys"),
            KeyGroupReader(self).with_(name=f"{self.name}-groups"),
            MarkWriter().with_(name=f"{self.name}-marks"),
            MarkedReader(self).with_(name=self.name),
        ]

    def keys(self, batch: DocumentBatch) -> npt.NDArray[np.uint64]:
        """Return the hashes of all runs of `span` passages."""
        from thresher.kernels.dedup.passages import find_windows

        return find_windows(self._passages(self._texts(batch)), self.span, self.min_length).keys

    def _texts(self, batch: DocumentBatch) -> Texts:
        from thresher.stages.dedup.passages.parts import texts_of

        return texts_of(batch, self.text_field)

    def _passages(self, texts: Texts) -> Passages:
        from thresher.kernels.dedup.passages import find_passages

        return find_passages(texts, UNITS.index(self.unit))

    def without(self, batch: DocumentBatch, marks: UnitMarks) -> tuple[DocumentBatch, int]:
        """Return a batch without the passages that are marked, and their number."""
        import numpy as np

        from thresher.kernels.dedup.passages import cuts_without, find_windows
        from thresher.stages.dedup.passages.parts import without_cuts

        texts = self._texts(batch)
        passages = self._passages(texts)
        windows = find_windows(passages, self.span, self.min_length)
        marked = windows.firsts[marks.take(len(windows.firsts))]
        if not len(marked):
            return batch, 0
        removed = np.zeros(len(passages.found), dtype=np.bool_)
        for offset in range(self.span):
            removed[marked + offset] = True
        cuts = cuts_without(texts, passages, removed)
        rule = f"repeated-{self.unit}s"
        made = without_cuts(batch, self.text_field, texts, cuts, (rule, self.min_document_length))
        return made, int(removed.sum())
