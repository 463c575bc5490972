# SPDX-License-Identifier: Apache-2.0
"""Base of stages that find whole documents that are duplicates, and keep one of each cluster.

Four phases: documents and their keys are written unit by unit (`documents`); documents that share a key are joined by
edges (`groups`); connected documents are clusters (`clusters`); documents are read again, in the order of the input,
and duplicates are dropped (`removal`). Only keys, edges and ids are ever brought together. Texts are looked at a second
time if candidates are verified, which is a phase of its own before the clusters (`verification`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.errors import UsageError
from thresher.stages.dedup.clustering.clusters import ClusterWriter, EdgeReader
from thresher.stages.dedup.clustering.groups import EdgeWriter, KeyGroupReader
from thresher.stages.dedup.clustering.removal import ClusterReader, RemovalReader
from thresher.stages.dedup.files.documents import DocumentsWriter, KeysWriter
from thresher.stages.dedup.files.known_places import index_paths, known_places
from thresher.stages.dedup.keep import Keep
from thresher.stages.dedup.keyed_stage import KeyedStage
from thresher.stages.dedup.normalization import chosen_steps, normalized

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.core.files.filesystem import StorageOptions
    from thresher.kernels.counts.text_counts import Texts
    from thresher.stages.dedup.files.documents import UnitPlace


class Deduplication(KeyedStage):
    """Keep one document of each cluster of duplicates."""

    similarity: ClassVar[float] = float("nan")
    """Similarity of all documents of a cluster, where it is known without verification."""

    def __init__(
        self,
        text_field: str,
        keep: Keep,
        action: str,
        normalize: bool | str | Sequence[str] = False,
        index: str | Sequence[str] | None = None,
    ) -> None:
        """`action`: `drop` duplicates, or `list` them: one document for each document in a cluster goes on.
        `normalize`: what is done with texts before they are compared. `index`: folders of indexes.
        """
        name = type(self).__name__
        if action not in ("drop", "list"):
            raise UsageError(f"{name}.action: {action!r} is neither 'drop' nor 'list'")
        self.text_field = field_name(name, "text_field", text_field)
        self.keep = keep
        self.action = action
        self.normalize = chosen_steps(name, normalize)
        self.index = index_paths(name, index)

    def scheme(self) -> dict[str, Any]:
        """Return how keys are made; documents with other keys cannot be compared."""
        return {"method": type(self).__name__, "normalize": self.normalize}

    def known_places(self, storage_options: StorageOptions) -> list[UnitPlace]:
        """Return the files of the indexes."""
        return known_places(type(self).__name__, self.index, self.scheme(), storage_options) if self.index else []

    def texts(self, batch: DocumentBatch, normalize: bool = True) -> Texts:
        """Return the text of each document as it is compared, or before it is normalised for that."""
        from thresher.kernels.counts.text_counts import Texts
        from thresher.stages.text.columns.text_column import text_column

        column = text_column(batch, self.text_field)
        texts = Texts(column.texts.data, column.texts.starts[column.rows], column.texts.ends[column.rows])
        return self.normalized(texts) if normalize else texts

    def normalized(self, texts: Texts) -> Texts:
        """Return texts as they are compared."""
        return normalized(texts, self.normalize) if self.normalize else texts

    def keys(self, batch: DocumentBatch) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64] | None]:
        """Return the keys of each document, one row per document, and 64 further bits of each if they are needed.

        Documents that share a key are duplicates. A key that is 0 is none.
        """
        raise TypeError(f"{type(self).__name__} must define keys(batch)")

    def columns(self) -> list[str]:
        """Return the columns that are looked at."""
        return [*super().columns(), *self.keep.columns()]

    def verification(self) -> list[Any]:
        """Return the reader and the writer of the phase that verifies candidates, if there is one."""
        return []

    def decompose(self) -> list[Any]:
        """Return the writers and readers of the phases."""
        removes = self.action == "drop"
        first = DocumentsWriter(self) if removes else KeysWriter(self)
        last = RemovalReader(self) if removes else ClusterReader()
        return [
            first.with_(name=f"{self.name}-keys"),
            KeyGroupReader(self).with_(name=f"{self.name}-groups"),
            EdgeWriter().with_(name=f"{self.name}-edges"),
            *self.verification(),
            EdgeReader(self).with_(name=f"{self.name}-graph"),
            ClusterWriter(self).with_(name=f"{self.name}-clusters"),
            last.with_(name=self.name),
        ]
