# SPDX-License-Identifier: Apache-2.0
"""The lines and paragraphs of a text, as rules see them."""

from __future__ import annotations


def lines_of(text: str) -> list[str]:
    """Lines that are not blank, with the white space around them. Only a line feed ends a line."""
    return [line for line in text.split("\n") if line and not line.isspace()]


def paragraphs_of(text: str) -> list[str]:
    """What lies between two line feeds in a row, blank ones too: at least one, also of an empty text."""
    return text.split("\n\n")
