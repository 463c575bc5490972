# SPDX-License-Identifier: Apache-2.0
"""The demo's pipeline in Python, with a custom rule and a custom modifier.

Run it from anywhere: `python examples/own_filter.py [INPUT [OUTPUT]]`. There is no main guard, and none is needed:
workers never import this script again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from thresher import (
    DocumentFilter,
    DocumentModifier,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    MeanWordLengthFilter,
    Modify,
    NewlineNormalizer,
    NonAlphaNumericFilter,
    Pipeline,
    RepeatedLinesFilter,
    ScoreFilter,
    UrlsFilter,
    WordCountFilter,
)


class QuotesFilter(DocumentFilter):
    """Keep narration: drop documents with too many quotation marks."""

    def __init__(self, max_quote_marks_per_word: float = 0.05) -> None:
        self.max_quote_marks_per_word = max_quote_marks_per_word

    def score_document(self, text: str) -> float:
        """Return the number of quotation marks per word."""
        marks = sum(text.count(mark) for mark in '"»«„“”')
        return marks / max(len(text.split()), 1)

    def keep_document(self, score: float) -> bool:
        """Return True if there are few enough of them."""
        return score <= self.max_quote_marks_per_word


class TrailingSpaceRemover(DocumentModifier):
    """Remove white space from the ends of lines."""

    def modify_document(self, text: str) -> str:
        """Return the text without white space at the ends of its lines."""
        return "\n".join(line.rstrip() for line in text.split("\n"))


source = sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent / "demo" / "data")
target = sys.argv[2] if len(sys.argv) > 2 else "own-filter-output"

pipeline = Pipeline(
    name="own-filter",
    description="Running text without much dialogue.",
    stages=[
        JsonlReader(source, blocksize="1MB"),
        Modify([NewlineNormalizer(), TrailingSpaceRemover()]),
        ScoreFilter(
            [
                WordCountFilter(min_words=50),
                MeanWordLengthFilter(),
                NonAlphaNumericFilter(max_non_alpha_numeric_to_text_ratio=0.28),
                RepeatedLinesFilter(),
                UrlsFilter(),
            ]
        ),
        ScoreFilter(QuotesFilter(), score_field="quote_marks_per_word").with_(name="narration"),
        JsonlWriter(target),
    ],
)
result = pipeline.run(LocalExecutor(workers=2))

print(result.counts)
for reason, documents in result.drop_reasons.items():
    print(f"{documents:6} {reason}")
