# SPDX-License-Identifier: Apache-2.0
"""Base class of modifiers, which rewrite the text of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thresher.core.arguments.construction import check_constructor

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts.text_counts import Texts
    from thresher.kernels.edits.rewrite import Edits


class DocumentModifier:
    """Base class of modifiers: define `modify_document`, and wrap the modifier in `Modify`."""

    name: str = "DocumentModifier"
    """The name in reports; by default the class name."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__
        check_constructor(cls)

    def modify_document(self, text: Any) -> Any:
        """Return the new text, or the new value of a field of another type. Where `Modify` reads several columns, each
        is a keyword argument."""
        raise TypeError(f"{type(self).__name__} must define modify_document(text)")

    def may_change(self, texts: Texts) -> npt.NDArray[np.bool_] | npt.NDArray[np.uint8] | None:
        """Return for each text, given as bytes, whether `modify_document` may change it; `None`: any of them may
        change.

        Other texts are never decoded to Python strings. The test may be cheap: false positives are allowed. It may also
        return numbers: 0 means no change, and any other number is passed to `modify_flagged`.
        """
        return None

    def edits(self, texts: Texts) -> Edits | None:
        """Return the replacements that `modify_document` makes in each text, given as bytes, as found by a compiled
        kernel.

        Texts that the kernel cannot decide are decoded to Python strings, and its number for them is passed to
        `modify_flagged`. `None`: there is no kernel, and `may_change` is called instead.
        """
        return None

    def modify_flagged(self, text: str, flags: int) -> str:
        """Modify a text for which `may_change` or `edits` returned the number `flags`."""
        new: str = self.modify_document(text)
        return new

    def preloads(self) -> list[str]:
        """Return the modules that these two methods import, mainly compiled kernels: they are loaded before workers
        start."""
        return []

    def take_counts(self) -> dict[str, int]:
        """Return the counts since the last call; `Modify` adds them to the report."""
        return {}

    def check_before_run(self) -> list[str]:
        """Return the problems of the modifier on this machine, such as a missing package: one message each.

        Called once, by the process that plans the run; it must be quick, and load nothing.
        """
        return []

    def load_model(self) -> None:
        """Load what is needed; called once per worker, before the first document."""


def has_byte_test(modifier: Any) -> bool:
    """Return True if `may_change` and `modify_flagged` are valid for `modify_document`, i.e. no subclass overrides only
    the latter."""
    return _agrees_with_modify_document(modifier, "may_change")


def has_edits(modifier: Any) -> bool:
    """Return True if `edits` and `modify_flagged` are valid for `modify_document`."""
    return _agrees_with_modify_document(modifier, "edits")


def _agrees_with_modify_document(modifier: Any, method: str) -> bool:
    if not isinstance(modifier, DocumentModifier) or "modify_document" in vars(modifier):
        return False
    work = _defined_at(modifier, "modify_document")
    is_own = _overrides(modifier, method) and _defined_at(modifier, method) <= work
    return is_own and (_defined_at(modifier, "modify_flagged") <= work or not _overrides(modifier, "modify_flagged"))


def _defined_at(modifier: DocumentModifier, method: str) -> int:
    return next(index for index, cls in enumerate(type(modifier).__mro__) if method in vars(cls))


def _overrides(modifier: DocumentModifier, method: str) -> bool:
    return getattr(type(modifier), method) is not getattr(DocumentModifier, method)
