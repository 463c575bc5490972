# SPDX-License-Identifier: Apache-2.0
"""Lines to train a fastText model with."""

from __future__ import annotations

from thresher.errors import UsageError
from thresher.stages.text.document_modifier import DocumentModifier


class FastTextLabelModifier(DocumentModifier):
    """Make a training line for fastText: the label, then the text on one line and without `__label__` of its own."""

    def __init__(self, label: str) -> None:
        """`label`: such as `__label__hq`."""
        if not isinstance(label, str) or not label or label != "".join(label.split()):
            raise UsageError(f"FastTextLabelModifier.label: {label!r} is no label; give one word such as '__label__hq'")
        self.label = label

    def modify_document(self, text: str) -> str:
        """The training line."""
        plain = text.replace("\n", " ").replace("__label__", " ")
        return f"{self.label} {plain}"
