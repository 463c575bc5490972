# SPDX-License-Identifier: Apache-2.0
"""The form of a rule about the words of a document, in any language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thresher.errors import UsageError
from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.segmenters import checked_language, is_segmented, load_segmenter, words_of

if TYPE_CHECKING:
    from thresher.stages.text.formula import Needed


class WordRule(CountRule):
    """A rule that kernels work out where words are between white space; a segmenter finds those of other languages."""

    lang: str

    def _set_language(self, lang: str) -> None:
        """To be called by `__init__`."""
        self.lang = checked_language(type(self).__name__, lang)

    def load_model(self) -> None:
        """Make the segmenter of the language ready."""
        load_segmenter(self.lang)

    def counts(self) -> Needed | None:
        """What the formula needs; `None` where words are found by a segmenter."""
        return None if is_segmented(self.lang) else self.word_counts()

    def word_counts(self) -> Needed | None:
        """What the formula needs where words are between white space."""
        raise TypeError(f"{type(self).__name__} must define word_counts()")

    def _words(self, text: str) -> list[str]:
        return words_of(text, self.lang)


def checked_size(rule: str, n: Any) -> int:
    """The number of words of a phrase, checked."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise UsageError(f"{rule}.n: {n!r} is no number of words; give 1 or more")
    return n
