# SPDX-License-Identifier: Apache-2.0
"""Stage that runs a model on the token ids of documents, and writes what its outputs mean into columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.documents.batch import DocumentBatch
from thresher.core.resources import NodeInfo, Resources, WorkerMetadata
from thresher.core.stage import ProcessingStage
from thresher.core.tally import context_of
from thresher.models.inference.batches import Batches
from thresher.models.inference.text_model import TextModel
from thresher.models.token_lists import TokenLists
from thresher.stages.text.columns.without_column import without_column

if TYPE_CHECKING:
    from thresher.models.inference.batches import Numbers

MODEL_RESOURCES = Resources(cpus=0.95)
"""One thread. A whole core for each worker would leave the last core of a small machine to tokenizing alone."""
HALVED = "forward passes halved, memory ran out"


class ModelStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Run a model on token ids. A subclass says what becomes of the numbers."""

    looks_at_inputs_only = True
    deterministic = False  # sums of floats depend on what else is in a forward pass
    expensive_setup = True
    resources = MODEL_RESOURCES
    without_influence = frozenset({"model_inference_batch_size"})

    def __init__(
        self,
        model: TextModel,
        tokens_field: str,
        model_inference_batch_size: int,
        *,
        sort_by_length: bool = True,
        keep_tokens: bool = False,
    ) -> None:
        """`model_inference_batch_size`: texts of a forward pass at most. `keep_tokens`: do not drop the ids."""
        self.model = model
        self.tokens_field = tokens_field
        self.model_inference_batch_size = model_inference_batch_size
        self.sort_by_length = sort_by_length
        self.keep_tokens = keep_tokens
        self._batches: Batches | None = None

    @abstractmethod
    def finished(self, task: DocumentBatch, numbers: Numbers) -> DocumentBatch:
        """Return the documents with what the numbers of each mean."""

    def load_more(self) -> None:
        """Load what is needed beside the model, once per worker."""

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column that holds the ids."""
        return ["data"], [self.tokens_field]

    def check_before_run(self) -> list[str]:
        """Report missing folders and packages, and weights that are pickles."""
        return self.model.problems()

    def preloads(self) -> list[str]:
        """Return the runtime, where it can be imported before workers are forked."""
        return self.model.preloads()

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        """Download the model, once per machine."""
        for reference in self.model.references:
            reference.fetch()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Load the model."""
        self.load_more()
        loaded = self.model.load(worker_metadata)
        self._batches = Batches(
            loaded, self.model_inference_batch_size, sort=self.sort_by_length, on_halving=self._note_halving
        )

    def teardown(self) -> None:
        """Let go of the model."""
        self._batches = None

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Run the model on the documents of one task."""
        return self.process_batch([task])[0]

    def process_batch(self, tasks: list[DocumentBatch]) -> list[DocumentBatch]:
        """Run the model on the documents of all tasks together."""
        import numpy as np

        if self._batches is None:
            self.setup()
        assert self._batches is not None
        tasks = [self._with_tokens(task) for task in tasks]
        lists = [TokenLists.of_column(task.column(self.tokens_field)) for task in tasks]
        numbers = self._batches.run(TokenLists.joined(lists))
        ends = np.cumsum([len(task) for task in tasks]).tolist()
        return [
            self.finished(cleaned, numbers[end - len(cleaned) : end]) if len(cleaned) else cleaned
            for cleaned, end in zip(map(self._cleaned, tasks), ends, strict=True)
        ]

    def _cleaned(self, task: DocumentBatch) -> DocumentBatch:
        return task if self.keep_tokens else without_column(task, self.tokens_field)

    def _with_tokens(self, task: DocumentBatch) -> DocumentBatch:
        """Return the documents that have token ids; those that have none are set aside."""
        import pyarrow as pa

        from thresher.stages.text.columns.token_ids import is_plain, is_token_list

        if is_plain(task.column(self.tokens_field)):
            return task
        values = task.values(self.tokens_field)
        unfit = [row for row, value in enumerate(values) if not is_token_list(value, 2**32)]
        if unfit:
            message = f"field {self.tokens_field!r} is no list of token ids; leave use_existing_tokens off to make them"
            task = task.set_aside(unfit, error="no-tokens", messages=[message] * len(unfit))
            values = [value for value in values if is_token_list(value, 2**32)]
        return task.replace(self.tokens_field, pa.array(values, pa.list_(pa.uint32())), [False] * len(values))

    def _note_halving(self, items: int) -> None:
        """Report that memory ran out in a forward pass, as it is reported of calls."""
        self.count(HALVED)
        context_of(self).noted.note_splits(1, items)


def set_columns(task: DocumentBatch, columns: dict[str, Any]) -> DocumentBatch:
    """Return the documents with some columns added; a column of that name is replaced."""
    for name, values in columns.items():
        task = task.replace(name, values)
    return task


def keep_labels(
    task: DocumentBatch, labels: Sequence[str | bool], scores: Sequence[Any] | None, filter_by: Sequence[str | bool]
) -> DocumentBatch:
    """Return the documents whose label is one of `filter_by`; the rule of a drop is the label that a document has."""
    import numpy as np

    wanted = set(filter_by)
    away: dict[str | bool, list[int]] = {}
    for row, label in enumerate(labels):
        if label not in wanted:
            away.setdefault(label, []).append(row)
    # Rows are counted in the batch as it is after earlier drops.
    left = np.arange(len(task))
    for label, rows in away.items():
        places = np.searchsorted(left, rows)
        found = None if scores is None else [scores[row] for row in rows]
        task = task.drop(places.tolist(), rule=str(label), scores=found, threshold=list(filter_by))
        left = np.delete(left, places)
    return task
