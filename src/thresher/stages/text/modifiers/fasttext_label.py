# SPDX-License-Identifier: Apache-2.0
"""Conversion of texts to training lines for fastText."""

from __future__ import annotations

from thresher.errors import UsageError
from thresher.stages.text.document_modifier import DocumentModifier


class FastTextLabelModifier(DocumentModifier):
    """Turn each text into a training line for fastText: the label, then the text on one line."""

    def __init__(self, label: str) -> None:
        """`label`: a label such as `__label__hq`."""
        if not isinstance(label, str) or not label or label != "".join(label.split()):
            raise UsageError(
                f"FastTextLabelModifier.label: {label!r} is not a label; give one word such as '__label__hq'"
            )
        self.label = label

    def modify_document(self, text: str) -> str:
        """Return the training line."""
        plain = text.replace("\n", " ").replace("__label__", " ")
        return f"{self.label} {plain}"
