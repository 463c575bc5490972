# SPDX-License-Identifier: Apache-2.0
"""Stage that writes the id of each record into a column."""

from __future__ import annotations

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError


class AddId(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Write each record's id into a column; ids depend on the input alone, not on the run, machine or executor."""

    looks_at_inputs_only = True

    def __init__(self, id_field: str, id_prefix: str | None = None, overwrite: bool = False) -> None:
        """The id is that of the record, `file12:offset`, prefixed with `<id_prefix>_` if a prefix is given.

        A record that already has the field is set aside, unless `overwrite` is set.
        """
        self.id_field = field_name("AddId", "id_field", id_field)
        if id_prefix is not None and not isinstance(id_prefix, str):
            raise UsageError(f"AddId.id_prefix: {id_prefix!r} is not a text")
        self.id_prefix = id_prefix
        self.overwrite = overwrite

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the column that receives the ids."""
        return ["data"], [self.id_field]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Add the column."""
        if not self.overwrite:
            task = self._without_taken(task)
        prefix = "" if self.id_prefix is None else f"{self.id_prefix}_"
        return task.replace(self.id_field, [prefix + own for own in _own_ids(task)])

    def _without_taken(self, batch: DocumentBatch) -> DocumentBatch:
        taken = [row for row, value in enumerate(batch.values(self.id_field)) if value is not None]
        if not taken:
            return batch
        message = f"field {self.id_field!r} is there already; choose another id_field, or set overwrite=True"
        return batch.set_aside(taken, error="id-field-exists", messages=[message] * len(taken))


def _own_ids(batch: DocumentBatch) -> list[str]:
    if batch.ids is not None:
        return batch.ids.strings()
    return [f"{batch.task_id}:{row}" for row in range(batch.num_items)]
