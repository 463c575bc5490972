# SPDX-License-Identifier: Apache-2.0
"""Base classes of rules, which score documents and decide which to keep, and the functions for their formulas."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.construction import check_constructor
from thresher.errors import UsageError
from thresher.stages.text.columns.segmenters import checked_language, is_segmented, load_segmenter, words_of

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts.text_counts import Count

    Needed: TypeAlias = tuple[Count, ...]
    """The counts that a formula needs."""
    Counted: TypeAlias = Mapping[Count, npt.NDArray[np.int64]]
    """Counts of many documents."""
    Scores: TypeAlias = npt.NDArray[Any]
    """A score for each document."""


class DocumentFilter:
    """Base class of rules: define `score_document` and `keep_document`, and wrap the rule in `ScoreFilter`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__
        check_constructor(cls)

    name: str = "DocumentFilter"
    """The name in reports; by default the class name."""

    def score_document(self, text: str) -> Any:
        """Return the score of a text: any JSON-compatible value."""
        raise TypeError(f"{type(self).__name__} must define score_document(text)")

    def keep_document(self, score: Any) -> bool:
        """Return True if a document with this score is kept."""
        raise TypeError(f"{type(self).__name__} must define keep_document(score)")

    def check_before_run(self) -> list[str]:
        """Return the problems of the rule on this machine, such as a missing model: one message each.

        Called once, by the process that plans the run; it must be quick, and load nothing.
        """
        return []

    def model_check_or_download(self) -> None:
        """Check or download models; called once per machine, before `load_model`."""

    def load_model(self) -> None:
        """Load what is needed; called once per worker, before the first document."""

    def thresholds(self) -> dict[str, Any]:
        """Return the thresholds of the rule, for reports: the constructor parameters that are numbers.

        They are read from the attributes of the same name, with or without a leading underscore. If the constructor
        stores them under other names, all numeric attributes are returned.
        """
        numbers = {name.lstrip("_"): value for name, value in vars(self).items() if _is_number(value)}
        own: Any = type(self)
        parameters = _parameters(own)
        named = {name: value for name, value in numbers.items() if name in parameters}
        return named or numbers


@functools.cache
def _parameters(cls: Any) -> frozenset[str]:
    return frozenset(inspect.signature(cls).parameters)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def lines_of(text: str) -> list[str]:
    """Return the lines that are not blank, with surrounding white space. Only a line feed ends a line."""
    return [line for line in text.split("\n") if line and not line.isspace()]


def paragraphs_of(text: str) -> list[str]:
    """Return the text between double line feeds, including blank paragraphs: at least one, even for an empty text."""
    return text.split("\n\n")


def share(part: int, whole: int, of_nothing: float) -> float:
    """Return `part / whole`; `of_nothing` if `whole` is 0."""
    return part / whole if whole else of_nothing


def shares(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64], of_nothing: float) -> npt.NDArray[np.float64]:
    """Return the shares of many documents, bit for bit equal to `share`."""
    import numpy as np  # here, because the planning process loads rules without numpy

    if whole.all():
        return part / whole
    found = np.full(len(whole), of_nothing, dtype=np.float64)
    np.divide(part, whole, out=found, where=whole != 0)
    return found


class CountRule(DocumentFilter):
    """A rule with two equivalent definitions: `score_document` in plain Python, and `score_counts` over counts.

    `score_document` is the reference, and never fails, whatever the text. `score_counts` is the fast implementation.
    """

    def counts(self) -> tuple[Count, ...] | None:
        """Return the counts that the formula needs; `None` if only `score_document` supports these parameters."""
        raise TypeError(f"{type(self).__name__} must define counts()")

    def score_counts(self, counts: Mapping[Count, npt.NDArray[np.int64]]) -> npt.NDArray[Any]:
        """Return the scores of many documents: one float64 or int64 each, equal to the result of `score_document`."""
        raise TypeError(f"{type(self).__name__} must define score_counts(counts)")

    def allowed(self) -> tuple[float, float]:
        """Return the smallest and the largest score that is kept."""
        raise TypeError(f"{type(self).__name__} must define allowed()")

    def keep_document(self, score: Any) -> bool:
        """Return True if the score is within the bounds."""
        low, high = self.allowed()
        return bool(low <= score <= high)


def is_counted(judge: Any) -> bool:
    """Return True if kernels can replace the `score_document` of a rule, i.e. no subclass overrides it without its
    formula."""
    if not isinstance(judge, CountRule) or "score_document" in vars(judge) or "score_counts" in vars(judge):
        return False
    order = type(judge).__mro__
    formula = next(index for index, cls in enumerate(order) if "score_counts" in vars(cls))
    plain = next(index for index, cls in enumerate(order) if "score_document" in vars(cls))
    return formula <= plain and judge.counts() is not None


def keeps_by_bounds(judge: Any) -> bool:
    """Return True if `allowed` fully determines which scores a rule keeps."""
    own = isinstance(judge, CountRule) and type(judge).keep_document is CountRule.keep_document
    return own and "keep_document" not in vars(judge)


class WordRule(CountRule):
    """A rule that kernels compute if white space separates words; in other languages a segmenter finds them."""

    lang: str

    def _set_language(self, lang: str) -> None:
        """Set the language; to be called by `__init__`."""
        self.lang = checked_language(type(self).__name__, lang)

    def load_model(self) -> None:
        """Load the segmenter of the language."""
        load_segmenter(self.lang)

    def counts(self) -> Needed | None:
        """Return the counts that the formula needs; `None` if a segmenter finds the words."""
        return None if is_segmented(self.lang) else self.word_counts()

    def word_counts(self) -> Needed | None:
        """Return the counts that the formula needs if white space separates words."""
        raise TypeError(f"{type(self).__name__} must define word_counts()")

    def _words(self, text: str) -> list[str]:
        return words_of(text, self.lang)


def checked_size(rule: str, n: Any) -> int:
    """Validate the number of words of an n-gram."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise UsageError(f"{rule}.n: {n!r} is not a number of words; give 1 or more")
    return n
