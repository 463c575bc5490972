# SPDX-License-Identifier: Apache-2.0
"""Rules about the share of comments in a source file."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings

from thresher.errors import UsageError
from thresher.stages.text.judging.rule import DocumentFilter, share

UNFINISHED = 9999.0
"""Score of a file that ends inside a comment: most likely it is not in that language."""

# Strings are matched to skip them, so that no comment starts inside one; `\\.` skips escaped characters. Every
# part is possessive or stops at the end of the line, so time is linear in the length of the text.
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
"""Comment patterns by MIME type."""


def comments_in(source: str, language: str) -> list[str] | None:
    """Return the comments of a source file without their delimiters; `None` if it ends inside one."""
    found = []
    for match in LANGUAGES[language].finditer(source):
        kind = match.lastgroup
        if kind == "open":
            return None
        if kind is not None:
            found.append(match[kind])
    return found


class GeneralCommentToCodeFilter(DocumentFilter):
    """Keep source files whose share of comments is within bounds (C, C++, Go, Java, JavaScript, Python, Ruby, …).

    Comment delimiters do not count towards the length. A file that ends inside a comment has the score 9999.0, an empty
    text 0.0.
    """

    def __init__(
        self, language: str, min_comment_to_code_ratio: float = 0.01, max_comment_to_code_ratio: float = 0.85
    ) -> None:
        """`language` is a MIME type, such as `text/x-c++`. Both bounds are inclusive."""
        if language not in LANGUAGES:
            raise UsageError(f"GeneralCommentToCodeFilter.language: {language!r} is not one of {', '.join(LANGUAGES)}")
        self.language = language
        self.min_comment_to_code_ratio = min_comment_to_code_ratio
        self.max_comment_to_code_ratio = max_comment_to_code_ratio

    def score_document(self, text: str) -> float:
        """Return the share of comments, joined by single spaces, in all code points."""
        comments = comments_in(text, self.language)
        return UNFINISHED if comments is None else share(len(" ".join(comments)), len(text), 0.0)

    def keep_document(self, score: float) -> bool:
        """Return True if the share is within the bounds."""
        return self.min_comment_to_code_ratio <= score <= self.max_comment_to_code_ratio


_WITH_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _docstring_characters(source: str) -> int:
    """Return the number of code points in docstrings, without indentation, joined by line feeds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hide compiler warnings about the code in the document
        nodes = ast.walk(ast.parse(source))
        found = [ast.get_docstring(node) for node in nodes if isinstance(node, _WITH_DOCSTRINGS)]
    return len("\n".join(docstring for docstring in found if docstring))


def _comment_characters(source: str) -> int:
    """Return the number of code points in comments, including the `#`."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(len(token.string) for token in tokens if token.type == tokenize.COMMENT)


class PythonCommentToCodeFilter(DocumentFilter):
    """Keep Python files whose share of comments and docstrings is within bounds.

    Text that cannot be parsed as Python has the score 0.0, and so does an empty text.
    """

    def __init__(self, min_comment_to_code_ratio: float = 0.01, max_comment_to_code_ratio: float = 0.85) -> None:
        """Both bounds are inclusive."""
        self.min_comment_to_code_ratio = min_comment_to_code_ratio
        self.max_comment_to_code_ratio = max_comment_to_code_ratio

    def score_document(self, text: str) -> float:
        """Return the share of comments and docstrings in all code points."""
        try:
            found = _docstring_characters(text) + _comment_characters(text)
        except Exception:  # the parser and tokenizer raise many kinds of errors for arbitrary text
            return 0.0
        return share(found, len(text), 0.0)

    def keep_document(self, score: float) -> bool:
        """Return True if the share is within the bounds."""
        return self.min_comment_to_code_ratio <= score <= self.max_comment_to_code_ratio
