# SPDX-License-Identifier: Apache-2.0
"""Rules, which score documents and decide which to keep: their base classes, the functions for their formulas, and the
links of the chain that a stage builds from them."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from thresher.core.arguments.construction import check_constructor
from thresher.core.scores import memo_key
from thresher.errors import UsageError
from thresher.stages.text.columns.any_values import by_name, takes_any_value
from thresher.stages.text.columns.segmenters import checked_language, is_segmented, load_segmenter, words_of

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts.text_counts import Count, Texts

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


class Share(NamedTuple):
    """The formula of a score that is a count, or one count divided by another."""

    part: str
    """The name of the count."""
    whole: str = ""
    """The name of the count by which it is divided, if any."""
    of_nothing: float = 0.0
    """The score where that one is 0."""


class CountRule(DocumentFilter):
    """A rule with two equivalent definitions: `score_document` in plain Python, and a formula over counts.

    `score_document` is the reference, and never fails, whatever the text. The formula is the fast implementation:
    `formula`, or `counts` and `score_counts` if a quotient of two counts cannot express it.
    """

    formula: ClassVar[Share | None] = None
    """The score in terms of counts without a parameter."""
    at_least: ClassVar[str] = ""
    """The attribute that holds the smallest score that is kept, if there is one."""
    at_most: ClassVar[str] = ""
    """The attribute that holds the largest score that is kept, if there is one."""

    def counts(self) -> Needed | None:
        """Return the counts that the formula needs; `None` if only `score_document` supports these parameters."""
        if self.formula is None:
            raise TypeError(f"{type(self).__name__} must define formula, or counts() and score_counts()")
        part, whole, _ = self.formula
        return ((part, 0), (whole, 0)) if whole else ((part, 0),)

    def score_counts(self, counts: Counted) -> Scores:
        """Return the scores of many documents: one float64 or int64 each, equal to the result of `score_document`."""
        if self.formula is None:
            raise TypeError(f"{type(self).__name__} must define formula, or counts() and score_counts()")
        part, whole, of_nothing = self.formula
        return shares(counts[part, 0], counts[whole, 0], of_nothing) if whole else counts[part, 0]

    def allowed(self) -> tuple[float, float]:
        """Return the smallest and the largest score that is kept."""
        if not self.at_least and not self.at_most:
            raise TypeError(f"{type(self).__name__} must define at_least, at_most or allowed()")
        low = getattr(self, self.at_least) if self.at_least else -math.inf
        return low, getattr(self, self.at_most) if self.at_most else math.inf

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
    formula = next(index for index, cls in enumerate(order) if vars(cls).keys() & {"score_counts", "formula"})
    plain = next(index for index, cls in enumerate(order) if "score_document" in vars(cls))
    return formula <= plain and judge.counts() is not None


def keeps_by_bounds(judge: Any) -> bool:
    """Return True if `allowed` fully determines which scores a rule keeps."""
    own = isinstance(judge, CountRule) and type(judge).keep_document is CountRule.keep_document
    return own and "keep_document" not in vars(judge)


class TextRule(DocumentFilter):
    """A rule that scores the texts of a batch at once, from their bytes, as a model does.

    `score_document` must return the same for a single text. It is what is called if there are no `kernels`.
    """

    def kernels(self) -> Sequence[str]:
        """Return the modules of the kernels that `score_texts` needs."""
        raise TypeError(f"{type(self).__name__} must define kernels()")

    def score_texts(self, texts: Texts, rows: npt.NDArray[np.int64]) -> list[Any]:
        """Return the scores of some of the texts."""
        raise TypeError(f"{type(self).__name__} must define score_texts(texts, rows)")


def scores_texts(judge: Any) -> bool:
    """Return True if `score_texts` of a rule can replace its `score_document`, which no subclass overrides alone."""
    if not isinstance(judge, TextRule) or "score_document" in vars(judge):
        return False
    order = type(judge).__mro__
    first = {name: next(n for n, cls in enumerate(order) if name in vars(cls)) for name in _SCORING}
    return first["score_texts"] <= first["score_document"] and bool(judge.kernels())


_SCORING = ("score_texts", "score_document")


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
        return super().counts()

    def _words(self, text: str) -> list[str]:
        return words_of(text, self.lang)


def checked_size(rule: str, n: Any) -> int:
    """Validate the number of words of an n-gram."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise UsageError(f"{rule}.n: {n!r} is not a number of words; give 1 or more")
    return n


# -- rules in a chain -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChainedRule:
    """One rule of a chain, as a stage builds it from the user's arguments."""

    rule: str
    """The name in reports."""
    judge: Any
    """The object or function that scores or decides."""
    score: Callable[[str], Any] | None
    """Computes the score of a text; `None`: the value of the column is the score."""
    keep: Callable[[Any], Any] | None
    """Decides whether to keep a score; `None` keeps everything."""
    text_field: str
    """The column that it reads, or the names of several."""
    score_field: str | None
    """The column that receives the scores, if any."""
    invert: bool
    """True if the decision is inverted."""
    key: tuple[str, str]
    """The key under which a batch caches its scores."""
    fields: tuple[str, ...]
    """All columns that it reads; if they are several, `text_field` is no column, and its function gets their values by
    name."""
    takes_any: bool = False
    """True if it scores values of any type, not texts alone."""
    counted: CountRule | None = None
    """The rule, if kernels can compute its scores."""
    needs: Needed = ()
    """The counts that it needs."""
    bounded: CountRule | None = None
    """The rule, if two bounds determine what it keeps."""
    of_texts: TextRule | None = None
    """The rule, if it scores the texts of a batch at once."""


def make_link(
    judge: Any,
    functions: Functions,
    rule: str,
    fields: tuple[tuple[str, ...], str | None],
    invert: bool,
    column: str,
) -> ChainedRule:
    """Create a link of a chain; `fields` are the columns that it reads and the one for the score, `column` is that of
    the score sidecar."""
    score, keep = functions
    (text_field, *others), score_field = fields
    if others:
        label = "+".join(fields[0])
        of_score: Any = None if score is None else by_name(score)
        of_keep = by_name(keep) if score is None and keep is not None else keep
        key = memo_key(column, label)
        return ChainedRule(rule, judge, of_score, of_keep, label, score_field, invert, key, fields[0])
    counted = judge if score is not None and is_counted(judge) else None
    bounded = judge if score is not None and keep is not None and keeps_by_bounds(judge) else None
    of_texts = judge if score is not None and scores_texts(judge) else None
    return ChainedRule(
        rule,
        judge,
        score,
        keep,
        text_field,
        score_field,
        invert,
        memo_key(column, text_field),
        (text_field,),
        takes_any=counted is None and of_texts is None and takes_any_value(score),
        counted=counted,
        needs=() if counted is None else counted.counts() or (),
        bounded=bounded,
        of_texts=of_texts,
    )


Functions = tuple[Callable[[str], Any] | None, Callable[[Any], Any] | None]
"""The functions of a rule that a stage calls: for the score of a text, and for the decision on a score."""


def filter_functions(stage: str, judge: Any, parameter: str = "filter_obj") -> Functions:
    """Return the functions of a rule that scores and drops."""
    score, keep = getattr(judge, "score_document", None), getattr(judge, "keep_document", None)
    if not callable(score) or not callable(keep):
        raise UsageError(
            f"{stage}.{parameter}: {judge!r} is not a DocumentFilter; "
            "it needs score_document(text) and keep_document(score)"
        )
    return score, keep


def score_functions(stage: str, judge: Any) -> Functions:
    """Return the function of a rule that only scores: a function itself, or the `score_document` of a rule."""
    if callable(getattr(judge, "score_document", None)):
        return filter_functions(stage, judge, "score_fn")[0], None
    if not callable(judge):
        raise UsageError(f"{stage}.score_fn: {judge!r} is neither a function of a text nor a DocumentFilter")
    return judge, None


def value_functions(stage: str, judge: Any) -> Functions:
    """Return the function that decides on a value: a function itself, or the `keep_document` of a rule."""
    keep = getattr(judge, "keep_document", judge)
    if not callable(keep):
        raise UsageError(f"{stage}.filter_fn: {judge!r} is neither a function of a value nor a DocumentFilter")
    return None, keep


def rule_name(judge: Any) -> str:
    """Return the name of a rule or function in reports."""
    if callable(getattr(judge, "keep_document", None)):
        own = getattr(judge, "__dict__", {}).get("_name") or getattr(judge, "name", None)  # authors set either
        return own if isinstance(own, str) and own else type(judge).__name__
    name = getattr(judge, "__name__", "")
    return name if name and name != "<lambda>" else "Filter"


def threshold_of(judge: Any) -> Any:
    """Return the threshold of a rule, for reports."""
    thresholds = getattr(judge, "thresholds", None)
    return (thresholds() or None) if callable(thresholds) else None
