# SPDX-License-Identifier: Apache-2.0
"""How much of a Python file is comments."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings

from thresher.stages.text.document_filter import DocumentFilter
from thresher.stages.text.formula import share

_WITH_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _docstring_characters(source: str) -> int:
    """Code points in docstrings, indentation taken off, joined by line feeds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the compiler would say about a stranger's code
        nodes = ast.walk(ast.parse(source))
        found = [ast.get_docstring(node) for node in nodes if isinstance(node, _WITH_DOCSTRINGS)]
    return len("\n".join(docstring for docstring in found if docstring))


def _comment_characters(source: str) -> int:
    """Code points in comments, the `#` included."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(len(token.string) for token in tokens if token.type == tokenize.COMMENT)


class PythonCommentToCodeFilter(DocumentFilter):
    """Keep Python files with a usual share of comments and docstrings.

    What cannot be parsed as Python has the score 0.0, and so has an empty text.
    """

    def __init__(self, min_comment_to_code_ratio: float = 0.01, max_comment_to_code_ratio: float = 0.85) -> None:
        """Both bounds are allowed values."""
        self.min_comment_to_code_ratio = min_comment_to_code_ratio
        self.max_comment_to_code_ratio = max_comment_to_code_ratio

    def score_document(self, text: str) -> float:
        """The share of comments and docstrings in all code points."""
        try:
            found = _docstring_characters(text) + _comment_characters(text)
        except Exception:  # parser and tokenizer answer foreign text with errors of many kinds
            return 0.0
        return share(found, len(text), 0.0)

    def keep_document(self, score: float) -> bool:
        """Whether the share lies between the bounds."""
        return self.min_comment_to_code_ratio <= score <= self.max_comment_to_code_ratio
