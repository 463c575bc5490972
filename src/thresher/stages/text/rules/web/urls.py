# SPDX-License-Identifier: Apache-2.0
"""Rules about the URLs in a document."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from thresher.errors import UsageError
from thresher.stages.text.judging.rule import CountRule, Share, share

if TYPE_CHECKING:
    from thresher.stages.text.judging.rule import Counted, Needed, Scores


URL = re.compile(r"https?://(?:[A-Za-z0-9$\-_@.&+/:=?#~!*(),]|%[0-9A-Fa-f]{2})+")
"""The default URL pattern. Quotes, `< > ; [ ]` and everything outside ASCII end a URL."""


def urls_in(text: str, pattern: re.Pattern[str] | None = None) -> list[str]:
    """Return the URLs in a text, from left to right."""
    if pattern is None:
        return URL.findall(text) if "://" in text else []
    return [match[0] for match in pattern.finditer(text)]


def url_pattern(rule: str, given: Any) -> re.Pattern[str] | None:
    """Validate and compile a URL pattern of the user; `None` stands for `URL`."""
    if given is None or (isinstance(given, re.Pattern) and isinstance(given.pattern, str)):
        return given
    if not isinstance(given, str):
        raise UsageError(
            f"{rule}.url_regex: {given!r} is not a regular expression; give a text such as 'https?://[^ ]+'"
        )
    try:
        return re.compile(given)
    except re.error as error:
        raise UsageError(f"{rule}.url_regex: {given!r} is not a regular expression: {error}") from error


class UrlsFilter(CountRule):
    """Drop documents whose URLs make up too much of the text.

    A URL starts with `http://` or `https://` in lower case. An empty text has the score 1.0.
    """

    formula = Share("url_characters", "code_points", of_nothing=1.0)
    at_most = "max_url_to_text_ratio"

    def __init__(self, max_url_to_text_ratio: float = 0.2, url_regex: str | re.Pattern[str] | None = None) -> None:
        """The bound is inclusive. `url_regex` replaces the default URL pattern; the whole match counts."""
        self.max_url_to_text_ratio = max_url_to_text_ratio
        self.url_regex = url_pattern("UrlsFilter", url_regex)

    def score_document(self, text: str) -> float:
        """Return the share of code points that belong to URLs."""
        return share(sum(map(len, urls_in(text, self.url_regex))), len(text), 1.0)

    def counts(self) -> Needed | None:
        """Request counts of code points in the text and in URLs; `None` with a pattern of the user."""
        return super().counts() if self.url_regex is None else None


class PornographicUrlsFilter(CountRule):
    """Drop documents with a URL that contains `porn` (in lower case).

    The score is 1 for such a document, else 0; an empty text has the score 0 and is kept.
    """

    def __init__(self, url_regex: str | re.Pattern[str] | None = None) -> None:
        """`url_regex` replaces the default URL pattern."""
        self.url_regex = url_pattern("PornographicUrlsFilter", url_regex)

    def score_document(self, text: str) -> int:
        """Return 1 if there is such a URL, else 0."""
        return int("porn" in text and any("porn" in url for url in urls_in(text, self.url_regex)))

    def counts(self) -> Needed | None:
        """Request the count of such URLs; `None` with a pattern of the user."""
        return (("porn_urls", 0),) if self.url_regex is None else None

    def score_counts(self, counts: Counted) -> Scores:
        """Return 1 for each document with at least one such URL, else 0."""
        return counts["porn_urls", 0].clip(0, 1)

    def allowed(self) -> tuple[float, float]:
        """Allow only 0."""
        return 0, 0
