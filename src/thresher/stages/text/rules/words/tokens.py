# SPDX-License-Identifier: Apache-2.0
"""Rules about the tokens of a document."""

from __future__ import annotations

from typing import Any

from thresher.errors import UsageError
from thresher.models.given_tokenizer import (
    CountsTokens,
    checked_tokenizer,
    is_remote,
    loaded_tokenizer,
    problems_of,
)
from thresher.stages.text.judging.rule import DocumentFilter


class TokenCountFilter(DocumentFilter):
    """Keep documents whose number of tokens is within bounds.

    A lone surrogate is counted as U+FFFD. An empty text has the special tokens that the tokenizer adds to every text.
    """

    def __init__(
        self,
        tokenizer: str | Any = None,
        hf_model_name: str | None = None,
        min_tokens: int = 0,
        max_tokens: int | float = float("inf"),
        add_special_tokens: bool = True,
    ) -> None:
        """Both bounds are inclusive. `tokenizer` is a tokenizer.json or its folder, a SentencePiece .model,
        `tiktoken:ENCODING` or `hf:OWNER/NAME`, or a tokenizer object; `hf_model_name` is OWNER/NAME alone."""
        if tokenizer is not None and hf_model_name is not None:
            raise UsageError("TokenCountFilter: give tokenizer or hf_model_name, not both")
        named = tokenizer if hf_model_name is None else f"hf:{hf_model_name}"
        self.tokenizer = checked_tokenizer("TokenCountFilter.tokenizer", named)
        self.hf_model_name = hf_model_name
        self.min_tokens = min_tokens
        self.max_tokens = max_tokens
        self.add_special_tokens = add_special_tokens
        self._tokenizer: CountsTokens | None = None

    def check_before_run(self) -> list[str]:
        """Report a missing tokenizer."""
        return problems_of("TokenCountFilter.tokenizer", self.tokenizer)

    def model_check_or_download(self) -> None:
        """Download the tokenizer once per machine, if it is a remote one."""
        if is_remote(self.tokenizer):
            self.load_model()

    def load_model(self) -> None:
        """Load the tokenizer."""
        self._tokenizer = loaded_tokenizer(
            "TokenCountFilter.tokenizer", self.tokenizer, special=self.add_special_tokens
        )

    def score_document(self, text: str) -> int:
        """Return the number of tokens."""
        if self._tokenizer is None:
            self.load_model()
        assert self._tokenizer is not None
        return self._tokenizer.count([text])[0]

    def keep_document(self, score: int) -> bool:
        """Return True if the number of tokens is within the bounds."""
        return self.min_tokens <= score <= self.max_tokens


class TokenizerFertilityFilter(DocumentFilter):
    """Keep documents with enough characters per token; few of them mean text that the tokenizer was not trained on.

    A text without tokens, such as an empty one, has the score -1.0. A lone surrogate is counted as U+FFFD.
    """

    def __init__(self, path_to_tokenizer: str | Any, min_char_to_token_ratio: float = 2.5) -> None:
        """The bound is inclusive. The tokenizer is a SentencePiece `.model`, or any that `TokenCountFilter` accepts;
        special tokens do not count."""
        self.path_to_tokenizer = checked_tokenizer("TokenizerFertilityFilter.path_to_tokenizer", path_to_tokenizer)
        self.min_char_to_token_ratio = min_char_to_token_ratio
        self._tokenizer: CountsTokens | None = None

    def check_before_run(self) -> list[str]:
        """Report a missing tokenizer."""
        return problems_of("TokenizerFertilityFilter.path_to_tokenizer", self.path_to_tokenizer)

    def load_model(self) -> None:
        """Load the tokenizer."""
        name = "TokenizerFertilityFilter.path_to_tokenizer"
        self._tokenizer = loaded_tokenizer(name, self.path_to_tokenizer, special=False)

    def score_document(self, text: str) -> float:
        """Return the number of code points per token."""
        if self._tokenizer is None:
            self.load_model()
        assert self._tokenizer is not None
        tokens = self._tokenizer.count([text])[0]
        return len(text) / tokens if tokens else -1.0

    def keep_document(self, score: float) -> bool:
        """Return True if there are enough characters per token."""
        return score >= self.min_char_to_token_ratio
