# SPDX-License-Identifier: Apache-2.0
"""Counts over the texts of a batch, one module per group of counts.

The table maps counts to their groups. A group is the module of its name, which has a function `compute`, as in
`text_counts.CountGroup`. This file imports nothing of the package: planning reads the table.
"""

from __future__ import annotations

from collections.abc import Iterable

COUNTS: dict[str, tuple[str, ...]] = {
    "characters": (
        "bytes",
        "code_points",
        "white_space",
        "common",
        "digits",
        "parentheses",
        "hashes",
        "dots3",
        "ellipses",
        "curly",
        "line_feeds",
    ),
    "letters": ("alphabetic", "alphanumeric", "alpha_characters"),
    "urls": ("url_characters", "urls", "porn_urls"),
    "positions": ("words", "word_characters"),
    "words": ("symbol_words", "longest_word", "common_words", "stop_words"),
    "word_letters": ("alpha_words", "isalpha_words", "non_symbol_words", "non_symbol_characters"),
    "lines": (
        "lines",
        "distinct_lines",
        "line_characters",
        "distinct_line_characters",
        "bullet_lines",
        "unpunctuated_lines",
        "ellipsis_lines",
    ),
    "paragraphs": (
        "paragraphs",
        "distinct_paragraphs",
        "paragraph_characters",
        "distinct_paragraph_characters",
    ),
    "phrases": ("boilerplate_paragraphs", "lorem_ipsum"),
    "ngrams": (
        "top_ngram_characters",
        "duplicate_ngram_characters",
        "gopher_top_characters",
    ),
    "gopher_ngrams": ("gopher_duplicate_characters",),
    "gopher": (
        "split_lines",
        "gopher_bullet_lines",
        "gopher_ellipsis_lines",
        "gopher_lines",
        "gopher_duplicate_lines",
        "gopher_duplicate_line_characters",
        "gopher_paragraphs",
        "gopher_duplicate_paragraphs",
        "gopher_duplicate_paragraph_characters",
    ),
    "fineweb": ("fineweb_lines", "ended_lines", "fineweb_duplicate_characters"),
    "line_lengths": ("short_lines", "long_lines"),
}
"""The names of the counts of each group."""
GROUP_OF: dict[str, str] = {count: group for group, counts in COUNTS.items() for count in counts}
"""Group by the name of the count."""


def modules_of(counts: Iterable[tuple[str, int]]) -> list[str]:
    """Return the modules that compute some counts."""
    return [f"{__package__}.{group}" for group in dict.fromkeys((GROUP_OF[name] for name, _ in counts))]
