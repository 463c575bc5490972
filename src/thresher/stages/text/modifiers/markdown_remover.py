# SPDX-License-Identifier: Apache-2.0
"""Removal of marks: those of Markdown, and quotation marks around a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.stages.text.columns.byte_tests import holding
from thresher.stages.text.document_modifier import DocumentModifier

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts.text_counts import Texts


class MarkdownRemover(DocumentModifier):
    """Remove Markdown marks of bold, italic and underlined text, and replace links with their addresses."""

    def modify_document(self, text: str) -> str:
        """Return the text without pairs of `**`, `*` and `_`, and with `[words](address)` as `address`."""
        return "\n".join(map(_plain_line, text.split("\n")))

    def may_change(self, texts: Texts) -> npt.NDArray[np.bool_]:
        """Return a mask of the texts that contain one of the marks."""
        return holding(texts, b"*", b"_", b"](")


def _plain_line(line: str) -> str:
    for mark in ("**", "*", "_"):
        if mark in line:
            line = _without_pairs(line, mark)
    return _without_links(line) if "](" in line else line


def _without_pairs(line: str, mark: str) -> str:
    """Remove marks in pairs, from the left; an unpaired mark stays."""
    parts = line.split(mark)
    if len(parts) % 2:
        return "".join(parts)
    return "".join(parts[:-1]) + mark + parts[-1]


def _without_links(line: str) -> str:
    """Replace each link, from `[` over the next `](` to the next `)`, with its address.

    A regular expression would take quadratic time on a line of a million `[`.
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


_MARK = '"'


class QuotationRemover(DocumentModifier):
    """Remove the quotation marks of a text that starts and ends with one.

    A text of several lines keeps them if its first line ends with a mark: then only that line is the quotation.
    """

    def modify_document(self, text: str) -> str:
        """Return the text between the marks."""
        whole = text.strip()
        if len(whole) <= 2 or text[0] != _MARK or text[-1] != _MARK:
            return text
        if "\n" in whole and text.partition("\n")[0].endswith(_MARK):
            return text
        return text[1:-1]

    def may_change(self, texts: Texts) -> npt.NDArray[np.bool_]:
        """Return a mask of the texts with a mark at both ends."""
        import numpy as np

        quoted = np.zeros(len(texts.starts), dtype=np.bool_)
        rows = np.flatnonzero(texts.ends - texts.starts > 2)
        mark = ord(_MARK)
        quoted[rows] = (texts.data[texts.starts[rows]] == mark) & (texts.data[texts.ends[rows] - 1] == mark)
        return quoted
