# SPDX-License-Identifier: Apache-2.0
"""Which group yields a count. A group is the module of its name in this package: it is imported when it is first
needed, because that loads (or compiles) its kernels. The module has `compute`, as `Group` says, or an object `GROUP`
that has it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from thresher.kernels.counts import Count, Group

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
    "places": ("words", "word_characters"),
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
    "fineweb": ("fineweb_lines", "ended_lines", "short_lines", "fineweb_duplicate_characters"),
    "c4": ("long_lines",),
}
"""The names of the counts of each group."""
GROUP_OF: dict[str, str] = {count: group for group, counts in COUNTS.items() for count in counts}
"""The group that yields a count, by the name of the count."""
_LOADED: dict[str, Group] = {}


def group_of(count: Count) -> str:
    """The name of the group that yields `count`."""
    return GROUP_OF[count[0]]


def modules_of(counts: Iterable[Count]) -> list[str]:
    """The modules that yield some counts."""
    return [f"{__package__}.{group}" for group in dict.fromkeys(map(group_of, counts))]


def load_group(name: str) -> Group:
    """The group itself, with its kernels ready."""
    group = _LOADED.get(name)
    if group is None:
        module = importlib.import_module(f"thresher.kernels.{name}")
        group = _LOADED[name] = cast("Group", getattr(module, "GROUP", module))
    return group
