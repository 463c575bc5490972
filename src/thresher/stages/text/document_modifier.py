# SPDX-License-Identifier: Apache-2.0
"""The form of a modifier, which rewrites a document's text."""

from __future__ import annotations

from typing import Any


class DocumentModifier:
    """Subclass it for a modifier of your own, write `modify_document`, and wrap it in `Modify`."""

    name: str = "DocumentModifier"
    """What reports call it; the name of the class unless it says otherwise."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def modify_document(self, text: str) -> str:
        """The new text."""
        raise TypeError(f"{type(self).__name__} must define modify_document(text)")

    def load_model(self) -> None:
        """Once per worker, before the first document."""
