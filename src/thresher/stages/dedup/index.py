# SPDX-License-Identifier: Apache-2.0
"""An index of documents: their keys and ids, so that later documents are compared with them without reading them again.

An index is a folder of files, one for each unit, as any writer makes them. A deduplication that is given one looks for
its documents in it, and drops what is already there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from thresher.core.documents.batch import DocumentBatch
from thresher.errors import UsageError
from thresher.stages.dedup.deduplication import Deduplication
from thresher.stages.dedup.exact import ExactDeduplication
from thresher.stages.dedup.files.known_places import INDEX_EXTENSION
from thresher.stages.dedup.fuzzy import FuzzyDeduplication
from thresher.stages.io.file_writer import FileWriter
from thresher.stages.text.columns.not_text import set_aside_without_text

if TYPE_CHECKING:
    from thresher.stages.dedup.files.unit_file import Keyed, UnitWriter

_HELD_BYTES = 32 * 2**20


class IndexWriter(FileWriter):
    """Write an index of documents for later deduplications."""

    def __init__(  # noqa: PLR0913 - those of the deduplication, under the same names
        self,
        path: str,
        method: Literal["exact", "fuzzy"] = "fuzzy",
        text_field: str = "text",
        num_bands: int | None = None,
        minhashes_per_band: int | None = None,
        char_ngrams: int | None = None,
        word_ngrams: int | None = None,
        seed: int | None = None,
        threshold: float | None = None,
        mode: Literal["nemo", "datatrove"] | None = None,
        normalize: bool | str | Sequence[str] = False,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        """`path`: the folder or URL for the files. `method`: the deduplication that will use it, `exact` or `fuzzy`;
        all others but `storage_options` are its arguments, and must be the same there.
        """
        super().__init__(path, storage_options=storage_options)
        given = {
            "num_bands": num_bands,
            "minhashes_per_band": minhashes_per_band,
            "char_ngrams": char_ngrams,
            "word_ngrams": word_ngrams,
            "seed": seed,
            "threshold": threshold,
            "mode": mode,
        }
        own: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if method not in ("exact", "fuzzy"):
            raise UsageError(f"IndexWriter.method: {method!r} is neither 'exact' nor 'fuzzy'")
        if method == "exact" and own:
            raise UsageError(f"IndexWriter.{next(iter(own))}: an index for exact deduplication has no such argument")
        self.stage: Deduplication = (
            ExactDeduplication(text_field, normalize=normalize)
            if method == "exact"
            else FuzzyDeduplication(text_field, normalize=normalize, **own)
        )

    @classmethod
    def legal_compressions(cls) -> Sequence[str]:
        """Return nothing: the files are compressed anyway."""
        return ()

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column of the text."""
        return ["data"], [self.stage.text_field]

    def preloads(self) -> list[str]:
        """Return the kernels that compute keys."""
        return ["thresher.kernels.json.text", *self.stage.kernels()]

    def extension(self) -> str:
        """Return the extension of the files."""
        return INDEX_EXTENSION

    def fitting(self, batch: DocumentBatch) -> DocumentBatch:
        """Return the batch without documents that have no text."""
        import numpy as np

        from thresher.stages.text.columns.text_column import text_column

        has_text = text_column(batch, self.stage.text_field).has_text(np.arange(batch.num_items))
        lacking = np.flatnonzero(~has_text).tolist()
        return set_aside_without_text(batch, lacking, self.stage.text_field) if lacking else batch

    def open_writer(self, local_path: str) -> UnitWriter:
        """Return the writer for one unit."""
        from thresher.stages.dedup.files.unit_file import UnitWriter

        return UnitWriter(local_path, self._keyed, _HELD_BYTES, with_documents=False, scheme=self.stage.scheme())

    def _keyed(self, batch: DocumentBatch) -> Keyed:
        from thresher.stages.dedup.files.unit_file import Keyed

        return Keyed(*self.stage.keys(batch), None)
