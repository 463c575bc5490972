# SPDX-License-Identifier: Apache-2.0
"""How much of an HTML file is text."""

from __future__ import annotations

import html
import re

from thresher.stages.text.document_filter import DocumentFilter

# What ends nowhere goes to the end of the page, as in browsers. So nothing is looked at twice, and time is linear.
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
"""Elements that are not shown, and where they end."""


def text_length(source: str) -> int:
    """Characters that a reader of a page sees: outside of tags, comments, scripts, styles and templates."""
    length = place = 0
    while (markup := _MARKUP.search(source, place)) is not None:
        length += _shown_length(source[place : markup.start()]) + len(markup["text"] or "")
        place = markup.end()
        end_of_hidden = _END_OF_HIDDEN.get((markup["tag"] or "").lower())
        if end_of_hidden is not None and markup[0][1] != "/" and not markup[0].endswith("/>"):
            closing = end_of_hidden.search(source, place)
            place = len(source) if closing is None else closing.start()
    return length + _shown_length(source[place:])


def _shown_length(text: str) -> int:
    """Length with character references resolved; white space between two marks shows as one character."""
    if "&" not in text:
        return len(text) if text.strip(_SPACES) else bool(text)
    try:
        return len(html.unescape(text))
    except ValueError:  # a reference with thousands of digits
        return len(text)


class HTMLBoilerplateFilter(DocumentFilter):
    """Keep HTML files that are text for a sufficient part, white space included.

    Scripts, styles, templates and comments are no text, and white space between two tags is one character. A page with
    less text than `min_lang_content_num_chars` has the score 0.0, as an empty one.
    """

    def __init__(self, min_lang_content_ratio: float = 0.2, min_lang_content_num_chars: int = 100) -> None:
        """Both bounds are allowed values."""
        self.min_lang_content_ratio = min_lang_content_ratio
        self.min_lang_content_num_chars = min_lang_content_num_chars

    def score_document(self, text: str) -> float:
        """The share of the page's text in all code points."""
        length = text_length(text)
        return length / len(text) if text and length >= self.min_lang_content_num_chars else 0.0

    def keep_document(self, score: float) -> bool:
        """Whether the share is large enough."""
        return score >= self.min_lang_content_ratio
