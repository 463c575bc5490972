# SPDX-License-Identifier: Apache-2.0
"""Functions on texts that filters of users call."""

from __future__ import annotations

from collections.abc import Sequence


def get_paragraphs(document: str) -> list[str]:
    """Return what stands between blank lines, which are exactly two line feeds."""
    return document.split("\n\n")


def get_sentences(document: str) -> list[str]:
    """Return the lines of a text that are not blank, which rules call sentences."""
    return [line for line in document.split("\n") if line.strip()]


def get_ngrams(input_list: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """Return all runs of `n` words."""
    return [tuple(input_list[start : start + n]) for start in range(len(input_list) - n + 1)]
