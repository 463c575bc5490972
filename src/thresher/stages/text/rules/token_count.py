# SPDX-License-Identifier: Apache-2.0
"""How many tokens a document has for a language model."""

from __future__ import annotations

from thresher.errors import UsageError
from thresher.models.tokenizer import Tokenizer, check_tokenizer, load_tokenizer
from thresher.stages.text.document_filter import DocumentFilter


class TokenCountFilter(DocumentFilter):
    """Keep documents with a number of tokens between two bounds.

    A lone surrogate is counted as U+FFFD. An empty text has the tokens that the tokenizer puts around every text.
    """

    def __init__(
        self,
        tokenizer: str | None = None,
        hf_model_name: str | None = None,
        min_tokens: int = 0,
        max_tokens: int | float = float("inf"),
        add_special_tokens: bool = True,
    ) -> None:
        """Both bounds are allowed values. `tokenizer` is a tokenizer.json or the folder that holds it, a SentencePiece
        .model, `tiktoken:ENCODING` or `hf:OWNER/NAME`; `hf_model_name` is OWNER/NAME alone."""
        if tokenizer is not None and hf_model_name is not None:
            raise UsageError("TokenCountFilter: give tokenizer or hf_model_name, not both")
        named = tokenizer if hf_model_name is None else f"hf:{hf_model_name}"
        self.tokenizer = check_tokenizer("TokenCountFilter.tokenizer", named)
        self.hf_model_name = hf_model_name
        self.min_tokens = min_tokens
        self.max_tokens = max_tokens
        self.add_special_tokens = add_special_tokens
        self._tokenizer: Tokenizer | None = None

    def model_check_or_download(self) -> None:
        """Where it must be fetched, that is done once per machine."""
        if self.tokenizer.startswith(("hf:", "tiktoken:")):
            self.load_model()

    def load_model(self) -> None:
        """Load the tokenizer."""
        self._tokenizer = load_tokenizer("TokenCountFilter.tokenizer", self.tokenizer, self.add_special_tokens)

    def score_document(self, text: str) -> int:
        """The number of tokens."""
        if self._tokenizer is None:
            self.load_model()
        assert self._tokenizer is not None
        return self._tokenizer.count([text])[0]

    def keep_document(self, score: int) -> bool:
        """Whether the number lies between the bounds."""
        return self.min_tokens <= score <= self.max_tokens
