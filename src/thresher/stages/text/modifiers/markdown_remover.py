# SPDX-License-Identifier: Apache-2.0
"""Marks of Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.stages.text.byte_tests import holding
from thresher.stages.text.document_modifier import DocumentModifier

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts import Texts


class MarkdownRemover(DocumentModifier):
    """Take off the marks of bold, italic and underlined text, and leave of a link its address, line by line."""

    def modify_document(self, text: str) -> str:
        """The text without pairs of `**`, `*` and `_`, and with `[words](address)` as `address`."""
        return "\n".join(map(_plain_line, text.split("\n")))

    def may_change(self, texts: Texts) -> npt.NDArray[np.bool_]:
        """Texts that hold one of the marks."""
        return holding(texts, b"*", b"_", b"](")


def _plain_line(line: str) -> str:
    for mark in ("**", "*", "_"):
        if mark in line:
            line = _without_pairs(line, mark)
    return _without_links(line) if "](" in line else line


def _without_pairs(line: str, mark: str) -> str:
    """Marks go in pairs, from the left; one that is left over stays."""
    parts = line.split(mark)
    if len(parts) % 2:
        return "".join(parts)
    return "".join(parts[:-1]) + mark + parts[-1]


def _without_links(line: str) -> str:
    """From each `[` to the first `](` behind it and the first `)` behind that: the address stays.

    Written by hand, not as a pattern: a line of a million `[` would take a pattern forever.
    """
    kept = []
    done = 0
    while (start := line.find("[", done)) >= 0:
        middle = line.find("](", start + 1)
        end = line.find(")", middle + 2) if middle >= 0 else -1
        if end < 0:
            break
        kept += [line[done:start], line[middle + 2 : end]]
        done = end + 1
    return "".join([*kept, line[done:]])
