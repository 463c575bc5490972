# SPDX-License-Identifier: Apache-2.0
"""Base of stages that find what is repeated in a corpus by bringing equal keys together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.core.arguments.sizes import parse_size
from thresher.core.documents.batch import DocumentBatch
from thresher.core.stage import CompositeStage

if TYPE_CHECKING:
    from thresher.core.files.filesystem import StorageOptions
    from thresher.stages.dedup.files.documents import UnitPlace

BLOCKSIZE = "32MB"


class KeyedStage(CompositeStage[DocumentBatch, DocumentBatch]):
    """Find what is repeated, in several phases."""

    text_field: str
    """The column that is compared."""
    blocksize: int = parse_size(BLOCKSIZE, "blocksize")
    """Bytes of keys that are grouped by one unit."""
    verified: float | None = None
    """True similarity that two documents must have to be duplicates; `None`: candidates are not verified."""

    def columns(self) -> list[str]:
        """Return the columns that are looked at."""
        return [self.text_field]

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that are looked at."""
        return ["data"], self.columns()

    def kernels(self) -> list[str]:
        """Return the modules of the kernels that are used."""
        return []

    def known_places(self, storage_options: StorageOptions) -> list[UnitPlace]:
        """Return the files of documents of earlier runs that the documents are compared with."""
        del storage_options
        return []
