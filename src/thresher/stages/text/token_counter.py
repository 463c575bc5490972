# SPDX-License-Identifier: Apache-2.0
"""Stage that counts the tokens of each document."""

from __future__ import annotations

from typing import Any

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.stage import ProcessingStage
from thresher.models.given_tokenizer import (
    CountsTokens,
    checked_tokenizer,
    is_remote,
    loaded_tokenizer,
    problems_of,
)
from thresher.models.tokenizer import parts_of
from thresher.stages.text.columns.not_text import with_texts

_CHUNK = 2**20
"""Number of characters that are tokenized at a time: the result takes many times their memory."""


class TokenCounter(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Write the number of tokens of each document's text into a column; the report has the total."""

    looks_at_inputs_only = True

    def __init__(
        self,
        tokenizer: str | Any,
        text_field: str = "text",
        count_field: str = "token_count",
        add_special_tokens: bool = False,
    ) -> None:
        """`tokenizer` is a tokenizer.json or its folder, a SentencePiece .model, `tiktoken:ENCODING` or
        `hf:OWNER/NAME`, or a tokenizer object. `add_special_tokens` also counts the special tokens around a text."""
        self.tokenizer = checked_tokenizer("TokenCounter.tokenizer", tokenizer)
        self.text_field = field_name("TokenCounter", "text_field", text_field)
        self.count_field = field_name("TokenCounter", "count_field", count_field)
        self.add_special_tokens = add_special_tokens
        self._tokenizer: CountsTokens | None = None

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column that holds the text."""
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the column that receives the counts."""
        return ["data"], [self.count_field]

    def check_before_run(self) -> list[str]:
        """Report a missing tokenizer."""
        return problems_of("TokenCounter.tokenizer", self.tokenizer)

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        """Download the tokenizer once per machine, if it is a remote one."""
        if is_remote(self.tokenizer):
            self._loaded()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Load the tokenizer."""
        self._tokenizer = self._loaded()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Count the tokens, and write the column."""
        if self._tokenizer is None:
            self.setup()
        assert self._tokenizer is not None
        task, texts = with_texts(task, self.text_field)
        numbers: list[int] = []
        for part in parts_of(texts, _CHUNK):
            numbers += self._tokenizer.count(part)
        self.count("tokens", sum(numbers))
        return task.replace(self.count_field, numbers)

    def _loaded(self) -> CountsTokens:
        return loaded_tokenizer("TokenCounter.tokenizer", self.tokenizer, special=self.add_special_tokens)
