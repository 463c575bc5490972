# SPDX-License-Identifier: Apache-2.0
"""How much of a source file is comments, in languages other than Python."""

from __future__ import annotations

import re

from thresher.errors import UsageError
from thresher.stages.text.document_filter import DocumentFilter
from thresher.stages.text.formula import share

UNFINISHED = 9999.0
"""The score of a file that ends inside a comment: most likely it is not in that language."""

# Strings are matched to be passed over, so that no comment begins inside one; `\\.` passes over what is escaped. Every
# part is possessive or ends at the line's end, so time is linear in the text.
_DOUBLE, _SINGLE = r'"(?:[^"\\\n]|\\.)*+"', r"'(?:[^'\\\n]|\\.)*+'"
_SLASHES = r"//(?P<line>[^\n]*+)|/\*(?P<block>.*?)\*/|(?P<open>/\*)"
_C = re.compile(rf"{_DOUBLE}|{_SINGLE}|{_SLASHES}|\\.", re.DOTALL)
_GO = re.compile(rf"{_DOUBLE}|{_SINGLE}|`[^`]*+`|{_SLASHES}|\\.", re.DOTALL)
_JAVASCRIPT = re.compile(rf"{_DOUBLE}|{_SINGLE}|`(?:[^`\\]|\\.)*+`|{_SLASHES}|\\.", re.DOTALL)
_PYTHON = re.compile(
    rf'"""(?:[^"\\]|\\.|"(?!""))*+"""|\'\'\'(?:[^\'\\]|\\.|\'(?!\'\'))*+\'\'\'|{_DOUBLE}|{_SINGLE}|#(?P<line>[^\n]*+)|\\.',
    re.DOTALL,
)
_RUBY = re.compile(
    rf"{_DOUBLE}|{_SINGLE}|^=begin\b(?P<block>.*?)^=end\b|(?P<open>^=begin\b)|#(?P<line>[^\n]*+)|\\.",
    re.DOTALL | re.MULTILINE,
)
_SHELL = re.compile(r'"(?:[^"\\]|\\.)*+"|\'[^\']*+\'|(?<![^\s;&|()])#(?P<line>[^\n]*+)|\\.', re.DOTALL)
_MARKUP = re.compile(r"<!--(?P<block>.*?)-->|(?P<open><!--)", re.DOTALL)

LANGUAGES = {
    "application/javascript": _JAVASCRIPT,
    "text/html": _MARKUP,
    "text/x-c": _C,
    "text/x-c++": _C,
    "text/x-go": _GO,
    "text/x-java": _C,
    "text/x-java-source": _C,
    "text/x-javascript": _JAVASCRIPT,
    "text/x-python": _PYTHON,
    "text/x-ruby": _RUBY,
    "text/x-script.python": _PYTHON,
    "text/x-shellscript": _SHELL,
    "text/xml": _MARKUP,
}
"""What comments look like, by MIME type."""


def comments_in(source: str, language: str) -> list[str] | None:
    """The comments of a source file without their marks; `None` if it ends inside one."""
    found = []
    for match in LANGUAGES[language].finditer(source):
        kind = match.lastgroup
        if kind == "open":
            return None
        if kind is not None:
            found.append(match[kind])
    return found


class GeneralCommentToCodeFilter(DocumentFilter):
    """Keep source files with a usual share of comments, in C, C++, Go, Java, JavaScript, Python, Ruby, shell or HTML.

    The marks of a comment do not count towards its length. A file that ends inside a comment has the score 9999.0, an
    empty text 0.0.
    """

    def __init__(
        self, language: str, min_comment_to_code_ratio: float = 0.01, max_comment_to_code_ratio: float = 0.85
    ) -> None:
        """`language` is a MIME type, such as `text/x-c++`. Both bounds are allowed values."""
        if language not in LANGUAGES:
            raise UsageError(f"GeneralCommentToCodeFilter.language: {language!r} is none of {', '.join(LANGUAGES)}")
        self.language = language
        self.min_comment_to_code_ratio = min_comment_to_code_ratio
        self.max_comment_to_code_ratio = max_comment_to_code_ratio

    def score_document(self, text: str) -> float:
        """The share of comments, with a space between two of them, in all code points."""
        comments = comments_in(text, self.language)
        return UNFINISHED if comments is None else share(len(" ".join(comments)), len(text), 0.0)

    def keep_document(self, score: float) -> bool:
        """Whether the share lies between the bounds."""
        return self.min_comment_to_code_ratio <= score <= self.max_comment_to_code_ratio
