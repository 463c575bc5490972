# SPDX-License-Identifier: Apache-2.0
"""How much of a document is web addresses."""

from __future__ import annotations

import re

from thresher.stages.text.document_filter import TextRule
from thresher.stages.text.text_view import TextView

URL = re.compile(r"https?://[!$-_a-z]+")
"""`$-_` holds capitals, digits and most punctuation; `#`, `~`, quotes and everything outside ASCII end an address."""


class UrlsFilter(TextRule):
    """Drop documents that are web addresses for a large part.

    An address starts with `http://` or `https://` in small letters. An empty text has the score 1.0.
    """

    def __init__(self, max_url_to_text_ratio: float = 0.2) -> None:
        """The bound is an allowed value."""
        self.max_url_to_text_ratio = max_url_to_text_ratio

    def score_view(self, view: TextView) -> float:
        """The share of code points that belong to addresses."""
        text = view.text
        if not text:
            return 1.0
        if "://" not in text:
            return 0.0
        return len("".join(URL.findall(text))) / len(text)

    def keep_document(self, score: float) -> bool:
        """Whether the share is small enough."""
        return score <= self.max_url_to_text_ratio
