# SPDX-License-Identifier: Apache-2.0
"""Removal of documents that a list names, such as one that a deduplication made."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.files.filesystem import open_read
from thresher.core.resources import WorkerMetadata
from thresher.core.stage import ProcessingStage
from thresher.errors import refusals
from thresher.stages.io.listing import AcceptedFiles, check_local_paths, find_files

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

RULE = "listed"
_LISTS = AcceptedFiles("RemoveListed", (".parquet",))
_KEPT = "kept"


class RemoveListed(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Drop the documents whose ids are in Parquet files.

    A list with a column `kept`, as deduplication makes it, names documents that stay as well. A worker holds 8 bytes
    for each id.
    """

    looks_at_inputs_only = True

    def __init__(
        self,
        ids_to_remove_path: str,
        id_field: str | None = None,
        duplicate_id_field: str = "id",
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        """`ids_to_remove_path`: a Parquet file, or a folder of them, with a column `duplicate_id_field`.
        `id_field`: the column of the documents to compare; by default their record ids, made of file and position.
        """
        self.ids_to_remove_path = ids_to_remove_path
        self.id_field = None if id_field is None else field_name("RemoveListed", "id_field", id_field)
        self.duplicate_id_field = field_name("RemoveListed", "duplicate_id_field", duplicate_id_field)
        self.storage_options = storage_options
        self._hashes: npt.NDArray[np.uint64] | None = None

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column of the ids, if they are in one."""
        return ["data"], [] if self.id_field is None else [self.id_field]

    def check_before_run(self) -> list[str]:
        """Report a list that is not there."""
        return refusals(lambda: check_local_paths([self.ids_to_remove_path]))

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Load the ids."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet as pq

        hashes = [np.zeros(0, dtype=np.uint64)]
        for info in find_files(self.ids_to_remove_path, _LISTS, self.storage_options):
            with open_read(info.path, storage_options=self.storage_options) as opened:
                file = pq.ParquetFile(pa.PythonFile(opened))
                columns = [self.duplicate_id_field, *([_KEPT] if _KEPT in file.schema_arrow.names else [])]
                for batch in file.iter_batches(columns=columns):
                    rows = batch.to_pydict()
                    kept = rows.get(_KEPT, [False] * batch.num_rows)
                    ids = [one for one, stays in zip(rows[self.duplicate_id_field], kept, strict=True) if not stays]
                    hashes.append(_hashed(ids))
        self._hashes = np.sort(np.concatenate(hashes))

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Drop the documents that are listed."""
        import numpy as np

        if self._hashes is None:
            self.setup()
        assert self._hashes is not None
        assert task.ids is not None, "documents of a run have ids"
        ids: Sequence[Any] = task.ids.strings() if self.id_field is None else task.values(self.id_field)
        hashes = _hashed(ids)
        if not len(self._hashes):
            return task
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        listed: list[int] = np.flatnonzero(self._hashes[places] == hashes).tolist()
        return task.drop(listed, RULE, [ids[row] for row in listed]) if listed else task


def _hashed(ids: Sequence[Any]) -> npt.NDArray[np.uint64]:
    """Return a hash of each id; a number and its text are the same id."""
    import numpy as np

    digests = b"".join(
        hashlib.blake2b(str(one).encode("utf-8", "surrogatepass"), digest_size=8).digest() for one in ids
    )
    return np.frombuffer(digests, dtype=np.uint64)
