# SPDX-License-Identifier: Apache-2.0
"""How many characters of a document a token of a language model stands for."""

from __future__ import annotations

from thresher.models.tokenizer import Tokenizer, check_tokenizer, load_tokenizer
from thresher.stages.text.document_filter import DocumentFilter


class TokenizerFertilityFilter(DocumentFilter):
    """Keep documents with enough characters per token: what a tokenizer takes apart is not what it was made for.

    A text without tokens, such as an empty one, has the score -1.0. A lone surrogate is counted as U+FFFD.
    """

    def __init__(self, path_to_tokenizer: str, min_char_to_token_ratio: float = 2.5) -> None:
        """The bound is an allowed value. The tokenizer is a SentencePiece `.model`, or any that `TokenCountFilter`
        knows; tokens that it puts around every text do not count."""
        self.path_to_tokenizer = check_tokenizer("TokenizerFertilityFilter.path_to_tokenizer", path_to_tokenizer)
        self.min_char_to_token_ratio = min_char_to_token_ratio
        self._tokenizer: Tokenizer | None = None

    def load_model(self) -> None:
        """Load the tokenizer."""
        name = "TokenizerFertilityFilter.path_to_tokenizer"
        self._tokenizer = load_tokenizer(name, self.path_to_tokenizer, special=False)

    def score_document(self, text: str) -> float:
        """Code points per token."""
        if self._tokenizer is None:
            self.load_model()
        assert self._tokenizer is not None
        tokens = self._tokenizer.count([text])[0]
        return len(text) / tokens if tokens else -1.0

    def keep_document(self, score: float) -> bool:
        """Whether there are enough."""
        return score >= self.min_char_to_token_ratio
