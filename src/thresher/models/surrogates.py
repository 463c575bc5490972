# SPDX-License-Identifier: Apache-2.0
"""Lone surrogates, which have no UTF-8: models that take UTF-8 get the replacement character for them."""

from __future__ import annotations

import re

_SURROGATES = re.compile("[\ud800-\udfff]")


def without_surrogates(text: str) -> str:
    """The text with U+FFFD for each lone surrogate; nearly always the text itself."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text)
    return text
