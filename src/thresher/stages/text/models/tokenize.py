# SPDX-License-Identifier: Apache-2.0
"""Stage that writes the token ids of each text, for a model stage that follows."""

from __future__ import annotations

from typing import Any, Literal

from thresher.core.arguments.options import check_choice, check_count, field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError, refusals
from thresher.models.inference.text_model import folder_of
from thresher.models.inference.token_ids import IdTokenizer, check_tokenizers
from thresher.models.loading.reference import ModelReference
from thresher.stages.text.columns.not_text import with_texts

Crop = Literal["start", "center"]
TEXT = "{text}"
"""The place of the text in a prompt."""


class Tokenize(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Write the token ids of each document as a model stage reads them; for ids to train on take TokenEncoder."""

    looks_at_inputs_only = True
    without_influence = frozenset({"tokens_per_task", "fans_out"})

    def __init__(  # noqa: PLR0913  # the names that users know from other tools
        self,
        model: str,
        text_field: str = "text",
        tokens_field: str = "input_ids",
        max_chars: int | None = None,
        max_length: int | None = None,
        crop: Crop = "start",
        prompt: str | None = None,
        sha256: dict[str, str] | None = None,
        allow_pickle: bool = False,
        cache_dir: str | None = None,
        storage_options: dict[str, Any] | None = None,
        tokens_per_task: int | None = None,
    ) -> None:
        """`model`: a folder, a URL, or `owner/name` of the Hugging Face Hub, with a tokenizer.json.
        `tokens_field`: the column for the ids, lists of unsigned integers of 16 or 32 bits.
        `max_chars`: use so many characters of a text, from its start or its `center` (`crop`).
        `max_length`: tokens at most, special ones included; null: as many as the model takes.
        `prompt`: a text around `{text}`.
        `sha256`: checksums of files of the model by name. `cache_dir`: where remote models are kept.
        `allow_pickle`: also fetch pickled weights, for the stage that loads them.
        `tokens_per_task`: hand documents on in tasks of about so many tokens, for a slow model with several workers.
        """
        self.model = ModelReference(model, "Tokenize.model", sha256 or {}, allow_pickle, cache_dir, storage_options)
        self.text_field = field_name("Tokenize", "text_field", text_field)
        self.tokens_field = field_name("Tokenize", "tokens_field", tokens_field)
        self.max_chars = None if max_chars is None else check_count("Tokenize.max_chars", max_chars)
        self.max_length = None if max_length is None else check_count("Tokenize.max_length", max_length)
        self.crop = check_choice("Tokenize.crop", crop, ("start", "center"))
        if prompt is not None and TEXT not in prompt:
            raise UsageError(f"Tokenize.prompt: {prompt[:60]!r} has no {TEXT}, where the text of a document belongs")
        self.prompt = prompt
        self.tokens_per_task = (
            None if tokens_per_task is None else check_count("Tokenize.tokens_per_task", tokens_per_task)
        )
        self.fans_out = tokens_per_task is not None
        self._tokenizer: IdTokenizer | None = None

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column that holds the text."""
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the column that receives the ids."""
        return ["data"], [self.tokens_field]

    def check_before_run(self) -> list[str]:
        """Report a missing folder or package."""
        return [*self.model.problems(), *refusals(lambda: check_tokenizers("Tokenize"))]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        """Download the model, once per machine."""
        self.model.fetch()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Load the tokenizer."""
        self._tokenizer = IdTokenizer(folder_of(self.model), self.max_length)

    def process(self, task: DocumentBatch) -> DocumentBatch | list[DocumentBatch]:
        """Write the ids of the texts."""
        if self._tokenizer is None:
            self.setup()
        assert self._tokenizer is not None
        task, texts = with_texts(task, self.text_field)
        lists = self._tokenizer.encode([self._prepared(text) for text in texts])
        task = task.replace(self.tokens_field, lists.to_arrow(), [True] * len(texts))
        return task if self.tokens_per_task is None else _in_parts(task, lists.offsets[1:], self.tokens_per_task)

    def _prepared(self, text: str) -> str:
        """Return the part of a text that the model sees, in its prompt."""
        if self.max_chars is not None and len(text) > self.max_chars:
            start = (len(text) - self.max_chars) // 2 if self.crop == "center" else 0
            text = text[start : start + self.max_chars]
        return text if self.prompt is None else self.prompt.replace(TEXT, text)


def _in_parts(task: DocumentBatch, ends: Any, tokens: int) -> DocumentBatch | list[DocumentBatch]:
    """Return the documents in parts of about so many tokens; the first part notes what was set aside. `ends`: where the
    tokens of each document end."""
    if not len(task) or ends[-1] <= tokens:
        return task
    part_of = ((ends - 1) // tokens).tolist()
    rows: dict[int, list[int]] = {}
    for row, part in enumerate(part_of):
        rows.setdefault(part, []).append(row)
    first, *others = rows.values()
    return [task.take(first), *map(task.pick, others)]
