# SPDX-License-Identifier: Apache-2.0
"""How much of a document is web addresses."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from thresher.errors import UsageError
from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.formula import share, shares

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores

URL = re.compile(r"https?://(?:[A-Za-z0-9$\-_@.&+/:=?#~!*(),]|%[0-9A-Fa-f]{2})+")
"""What an address is unless a user says otherwise. Quotes, `< > ; [ ]` and everything outside ASCII end it."""


def urls_in(text: str, pattern: re.Pattern[str] | None = None) -> list[str]:
    """The addresses in a text, from left to right."""
    if pattern is None:
        return URL.findall(text) if "://" in text else []
    return [match[0] for match in pattern.finditer(text)]


def url_pattern(rule: str, given: Any) -> re.Pattern[str] | None:
    """A user's own pattern of an address, checked; `None` stands for `URL`."""
    if given is None or (isinstance(given, re.Pattern) and isinstance(given.pattern, str)):
        return given
    if not isinstance(given, str):
        raise UsageError(f"{rule}.url_regex: {given!r} is no regular expression; give a text such as 'https?://[^ ]+'")
    try:
        return re.compile(given)
    except re.error as error:
        raise UsageError(f"{rule}.url_regex: {given!r} is no regular expression: {error}") from error


class UrlsFilter(CountRule):
    """Drop documents that are web addresses for a large part.

    An address starts with `http://` or `https://` in small letters. An empty text has the score 1.0.
    """

    def __init__(self, max_url_to_text_ratio: float = 0.2, url_regex: str | re.Pattern[str] | None = None) -> None:
        """The bound is an allowed value. `url_regex` says what an address is; all of a match counts."""
        self.max_url_to_text_ratio = max_url_to_text_ratio
        self.url_regex = url_pattern("UrlsFilter", url_regex)

    def score_document(self, text: str) -> float:
        """The share of code points that belong to addresses."""
        return share(sum(map(len, urls_in(text, self.url_regex))), len(text), 1.0)

    def counts(self) -> Needed | None:
        """Code points, and those in addresses; `None` with a pattern of the user's."""
        return (("code_points", 0), ("url_characters", 0)) if self.url_regex is None else None

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        return shares(counts["url_characters", 0], counts["code_points", 0], 1.0)

    def allowed(self) -> tuple[float, float]:
        """Shares up to the bound."""
        return -math.inf, self.max_url_to_text_ratio
