# SPDX-License-Identifier: Apache-2.0
"""Stage that adds a vector of each text, by a sentence encoder or by a table of vectors for tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from thresher.core.arguments.options import check_choice, field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.stage import ProcessingStage
from thresher.errors import refusals
from thresher.models.embedder import (
    EMBEDDERS,
    StaticEmbedder,
    check_embedder,
    is_static,
    load_embedder,
    static_embedder,
)
from thresher.models.inference.text_model import EncoderModel, TextModel, folder_of
from thresher.models.loading.folder import ModelFolder
from thresher.models.loading.reference import ModelReference
from thresher.stages.text.columns.not_text import with_texts
from thresher.stages.text.embeddings.vector_columns import PRECISIONS, vector_column
from thresher.stages.text.models.composite import Stage, TextModelStage, model_stage
from thresher.stages.text.models.model_stage import ModelStage

if TYPE_CHECKING:
    from thresher.models.inference.batches import Numbers

POOLINGS = ("auto", "mean", "cls", "last")


class RunEncoder(ModelStage):
    """Run a sentence encoder on token ids."""

    def __init__(  # noqa: PLR0913  # each is a part of its own, and given by name
        self,
        model: TextModel,
        *,
        tokens_field: str,
        model_inference_batch_size: int,
        sort_by_length: bool,
        keep_tokens: bool,
        embedding_field: str,
        precision: str,
        normalize: bool | None,
    ) -> None:
        super().__init__(
            model, tokens_field, model_inference_batch_size, sort_by_length=sort_by_length, keep_tokens=keep_tokens
        )
        self.embedding_field = embedding_field
        self.precision = precision
        self.normalize = normalize
        self._normalizes = False

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the column that receives the vectors."""
        return ["data"], [self.embedding_field]

    def load_more(self) -> None:
        """Read whether vectors are scaled, if the constructor did not say so."""
        asked = self.normalize
        self._normalizes = normalizes(folder_of(self.model.references[0])) if asked is None else asked

    def finished(self, task: DocumentBatch, numbers: Numbers) -> DocumentBatch:
        """Return the documents with their vectors."""
        column = vector_column(numbers, self.precision, normalize=self._normalizes)
        return task.replace(self.embedding_field, column, [True] * len(task))


def normalizes(folder: ModelFolder) -> bool:
    """Return True if the files of sentence-transformers name a step that scales vectors to the length 1."""
    path = folder.file("modules.json")
    if path is None:
        return False
    with open(path, encoding="utf-8") as file:
        return ".Normalize" in file.read()


class StaticEmbeddings(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Add the mean of the vectors of a text's tokens."""

    looks_at_inputs_only = True

    def __init__(
        self, model: ModelReference, text_field: str, embedding_field: str, precision: str, normalize: bool | None
    ) -> None:
        self.model = model
        self.text_field = text_field
        self.embedding_field = embedding_field
        self.precision = precision
        self.normalize = bool(normalize)
        self._embedder: StaticEmbedder | None = None

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column that holds the text."""
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the column that receives the vectors."""
        return ["data"], [self.embedding_field]

    def check_before_run(self) -> list[str]:
        """Report a missing folder or package."""
        return refusals(lambda: check_embedder("EmbeddingCreatorStage", self.model.name))

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        """Download the table, once per machine."""
        if self.model.name not in EMBEDDERS:
            self.model.fetch()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Load the table."""
        if self.model.name in EMBEDDERS:
            self._embedder = load_embedder("EmbeddingCreatorStage", self.model.name)
        else:
            self._embedder = static_embedder(self.model)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Add the vectors."""
        if self._embedder is None:
            self.setup()
        assert self._embedder is not None
        task, texts = with_texts(task, self.text_field)
        column = vector_column(self._embedder.embed(texts), self.precision, normalize=self.normalize)
        return task.replace(self.embedding_field, column, [True] * len(texts))


@model_stage
class EmbeddingCreatorStage(TextModelStage):
    """Add a vector of each text, by a sentence encoder or a table of vectors for tokens."""

    field_docs = """
        `embedding_field`: column for the vectors, lists of `precision` (`float32` or `float16`).
        `pooling`: `mean`, `cls` (the first token) or `last` (the last one); `auto`: as the files of the model say.
        `normalize`: scale vectors to the length 1; null: as the files of the model say.
        `kind`: `transformer` or `static` (`wordllama`, or the layout of model2vec); `auto`: a local folder tells."""

    model: str = "sentence-transformers/all-MiniLM-L6-v2"
    embedding_field: str = "embeddings"
    pooling: Literal["auto", "mean", "cls", "last"] = "auto"
    normalize: bool | None = None
    precision: Literal["float32", "float16"] = "float32"
    kind: Literal["auto", "transformer", "static"] = "auto"
    model_inference_batch_size: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        field_name("EmbeddingCreatorStage", "embedding_field", self.embedding_field)
        check_choice("EmbeddingCreatorStage.pooling", self.pooling, POOLINGS)
        check_choice("EmbeddingCreatorStage.precision", self.precision, PRECISIONS)
        check_choice("EmbeddingCreatorStage.kind", self.kind, ("auto", "transformer", "static"))

    def decompose(self) -> list[Stage]:
        """Return the stages of a transformer, or the one that looks vectors up."""
        reference = self.reference("model", self.model)
        if self.kind == "transformer" or (self.kind == "auto" and not is_static(reference)):
            return super().decompose()
        static = StaticEmbeddings(reference, self.text_field, self.embedding_field, self.precision, self.normalize)
        return [self.with_settings(static)]

    def runner(self) -> Stage:
        """Return the stage that runs the encoder."""
        return RunEncoder(
            EncoderModel(self.reference("model", self.model), self.runtime, self.pooling),
            tokens_field=self.tokens_field,
            model_inference_batch_size=self.model_inference_batch_size,
            sort_by_length=self.sort_by_length,
            keep_tokens=self.keep_tokens,
            embedding_field=self.embedding_field,
            precision=self.precision,
            normalize=self.normalize,
        )
