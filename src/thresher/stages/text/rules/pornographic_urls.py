# SPDX-License-Identifier: Apache-2.0
"""Whether a document links to pornography."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.rules.urls import url_pattern, urls_in

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores


class PornographicUrlsFilter(CountRule):
    """Drop documents with a web address that holds `porn`, in small letters.

    The score is 1 for such a document and 0 for every other; an empty text has 0 and is kept.
    """

    def __init__(self, url_regex: str | re.Pattern[str] | None = None) -> None:
        """`url_regex` says what an address is, in place of the usual pattern."""
        self.url_regex = url_pattern("PornographicUrlsFilter", url_regex)

    def score_document(self, text: str) -> int:
        """1 if there is such an address."""
        return int("porn" in text and any("porn" in url for url in urls_in(text, self.url_regex)))

    def counts(self) -> Needed | None:
        """Addresses that hold the word; `None` with a pattern of the user's."""
        return (("porn_urls", 0),) if self.url_regex is None else None

    def score_counts(self, counts: Counted) -> Scores:
        """1 where there is at least one."""
        return counts["porn_urls", 0].clip(0, 1)

    def allowed(self) -> tuple[float, float]:
        """Only 0."""
        return 0, 0
