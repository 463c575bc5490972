# SPDX-License-Identifier: Apache-2.0
"""Rules about whole source files: their number of lines, XML headers, and the visible text of HTML."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from thresher.stages.text.judging.rule import CountRule, DocumentFilter

if TYPE_CHECKING:
    from thresher.stages.text.judging.rule import Counted, Needed, Scores


class NumberOfLinesOfCodeFilter(CountRule):
    """Keep source files whose number of lines is within bounds.

    Blank lines count, and so does the text after the last line feed. An empty text has 1 line.
    """

    at_least, at_most = "min_lines", "max_lines"

    def __init__(self, min_lines: int = 10, max_lines: int = 20000) -> None:
        """Both bounds are inclusive."""
        self.min_lines = min_lines
        self.max_lines = max_lines

    def score_document(self, text: str) -> int:
        """Return the number of lines."""
        return text.count("\n") + 1

    def counts(self) -> Needed:
        """Request the count of line feeds."""
        return (("line_feeds", 0),)

    def score_counts(self, counts: Counted) -> Scores:
        """Compute the same number from the counts."""
        return counts["line_feeds", 0] + 1


class XMLHeaderFilter(DocumentFilter):
    """Drop source files that have `<?xml version=` near the beginning, whatever their extension.

    The score is 1 for such a file, else 0; an empty text has the score 0 and is kept.
    """

    def __init__(self, char_prefix_search_length: int = 100) -> None:
        """Only the first `char_prefix_search_length` code points are searched; they must contain the whole header."""
        self.char_prefix_search_length = char_prefix_search_length

    def score_document(self, text: str) -> int:
        """Return 1 if the header is present, else 0."""
        return int("<?xml version=" in text[: self.char_prefix_search_length])

    def keep_document(self, score: int) -> bool:
        """Return True if the header is absent."""
        return score != 1


# Unclosed markup extends to the end of the page, as in browsers. Nothing is scanned twice, so time is linear.
_MARKUP = re.compile(
    r"<!--(?:-?>|.*?--!?>|.*)"
    r"|<!\[CDATA\[(?P<text>.*?)(?:\]\]>|\Z)"
    r"|<(?:[!?]|/[^a-zA-Z])[^>]*+(?:>|\Z)"
    r"""|</?(?P<tag>[a-zA-Z][^\s/>]*+)(?:[^=>]++|=\s*+(?:"[^"]*+"|'[^']*+')?)*+(?:>|\Z)""",
    re.DOTALL,
)
_SPACES = " \t\n\f\r"
_END_OF_HIDDEN = {
    name: re.compile(rf"</{name}(?=[\s/>]|\Z)", re.IGNORECASE) for name in ("script", "style", "template")
}
"""Hidden elements, and the pattern that ends each."""


def text_length(source: str) -> int:
    """Return the number of visible characters: outside of tags, comments, scripts, styles and templates."""
    length = position = 0
    while (markup := _MARKUP.search(source, position)) is not None:
        length += _shown_length(source[position : markup.start()]) + len(markup["text"] or "")
        position = markup.end()
        end_of_hidden = _END_OF_HIDDEN.get((markup["tag"] or "").lower())
        if end_of_hidden is not None and markup[0][1] != "/" and not markup[0].endswith("/>"):
            closing = end_of_hidden.search(source, position)
            position = len(source) if closing is None else closing.start()
    return length + _shown_length(source[position:])


def _shown_length(text: str) -> int:
    """Return the length with character references resolved; white space between two tags counts as one character."""
    if "&" not in text:
        return len(text) if text.strip(_SPACES) else bool(text)
    try:
        return len(html.unescape(text))
    except ValueError:  # a reference with thousands of digits
        return len(text)


class HTMLBoilerplateFilter(DocumentFilter):
    """Keep HTML files with a large enough share of visible text, white space included.

    Scripts, styles, templates and comments are not text, and white space between two tags is one character. A page with
    less text than `min_lang_content_num_chars` has the score 0.0, like an empty one.
    """

    def __init__(self, min_lang_content_ratio: float = 0.2, min_lang_content_num_chars: int = 100) -> None:
        """Both bounds are inclusive."""
        self.min_lang_content_ratio = min_lang_content_ratio
        self.min_lang_content_num_chars = min_lang_content_num_chars

    def score_document(self, text: str) -> float:
        """Return the share of visible text in all code points."""
        length = text_length(text)
        return length / len(text) if text and length >= self.min_lang_content_num_chars else 0.0

    def keep_document(self, score: float) -> bool:
        """Return True if the share is large enough."""
        return score >= self.min_lang_content_ratio
