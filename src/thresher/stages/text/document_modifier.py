# SPDX-License-Identifier: Apache-2.0
"""The form of a modifier, which rewrites a document's text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts import Texts
    from thresher.kernels.edits import Edits


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

    def may_change(self, texts: Texts) -> npt.NDArray[np.bool_] | npt.NDArray[np.uint8] | None:
        """For each of some texts, given as bytes, whether `modify_document` could change it; `None`: any of them.

        Texts that it says no to are never made Python strings, so a cheap test is enough: it may say yes too often.
        It may also give numbers: 0 is no, and any other comes back to `modify_knowing`.
        """
        return None

    def edits(self, texts: Texts) -> Edits | None:
        """What `modify_document` replaces in each of some texts, given as bytes, as a compiled kernel finds it.

        Texts that the kernel is in doubt about are made Python strings, and its number for them comes back to
        `modify_knowing`. `None`: there is no kernel for this, and `may_change` is asked.
        """
        return None

    def modify_knowing(self, text: str, said: int) -> str:
        """As `modify_document`, for a text of which `may_change` or `edits` said something."""
        return self.modify_document(text)

    def preloads(self) -> list[str]:
        """Modules that these two import, compiled kernels above all: they are made ready before workers start."""
        return []

    def take_counts(self) -> dict[str, int]:
        """What it counted since this was last asked; `Modify` puts it into the report."""
        return {}

    def load_model(self) -> None:
        """Once per worker, before the first document."""


def has_byte_test(modifier: Any) -> bool:
    """Whether `may_change` and `modify_knowing` speak for `modify_document`: nobody has overridden it behind them."""
    return _speaks_for_it(modifier, "may_change")


def has_edits(modifier: Any) -> bool:
    """The same for `edits` and `modify_knowing`."""
    return _speaks_for_it(modifier, "edits")


def _speaks_for_it(modifier: Any, method: str) -> bool:
    if not isinstance(modifier, DocumentModifier) or "modify_document" in vars(modifier):
        return False
    work = _defined_at(modifier, "modify_document")
    speaks = _has_own(modifier, method) and _defined_at(modifier, method) <= work
    return speaks and (_defined_at(modifier, "modify_knowing") <= work or not _has_own(modifier, "modify_knowing"))


def _defined_at(modifier: DocumentModifier, method: str) -> int:
    return next(place for place, cls in enumerate(type(modifier).__mro__) if method in vars(cls))


def _has_own(modifier: DocumentModifier, method: str) -> bool:
    return getattr(type(modifier), method) is not getattr(DocumentModifier, method)
