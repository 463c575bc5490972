# SPDX-License-Identifier: Apache-2.0
"""Replace lone surrogates, which cannot be encoded as UTF-8, for models that take UTF-8."""

from __future__ import annotations

import re

_SURROGATES = re.compile("[\ud800-\udfff]")


def without_surrogates(text: str) -> str:
    """Return the text with U+FFFD for each lone surrogate; nearly always the text itself."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text)
    return text
