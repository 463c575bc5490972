# SPDX-License-Identifier: Apache-2.0
"""One rule of a chain, as a stage makes it of what a user handed over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thresher.core.batch import DocumentBatch
from thresher.core.scores import memo_key
from thresher.errors import UsageError
from thresher.stages.text.chain import field_name, spread
from thresher.stages.text.count_rule import CountRule, is_counted, keeps_by_bounds

if TYPE_CHECKING:
    from thresher.kernels.counts import Count


@dataclass(frozen=True)
class Link:
    """One rule of a chain."""

    rule: str
    """What reports call it."""
    judge: Any
    """The object or function that scores."""
    score: Callable[[str], Any]
    """What it finds in a text."""
    keep: Callable[[Any], Any] | None
    """Whether a score is good enough; `None` keeps everything."""
    text_field: str
    """The column it reads."""
    score_field: str | None
    """The column that gets the scores, if any."""
    invert: bool
    """Whether it keeps what it would drop."""
    column: str
    """Its column in the sidecar of scores."""
    counted: CountRule | None
    """The rule, where kernels can find its scores."""
    needs: tuple[Count, ...]
    """What is counted for it."""
    bounded: CountRule | None
    """The rule, where two bounds say all about what it keeps."""

    @property
    def threshold(self) -> Any:
        """What it allows, for reports."""
        return None if self.keep is None else threshold_of(self.judge)

    def scores_in(self, batch: DocumentBatch) -> Any:
        """The scores that a batch knows already: a list with `None` for a record whose score is still to be found, or
        an array of all scores."""
        return batch._memo.get(memo_key(self.column, self.text_field))


def filter_link(stage: str, judge: Any, rule: str, fields: tuple[str, str | None], invert: bool, column: str) -> Link:
    """A link of a stage that drops; `fields` are the columns of text and score."""
    score = _score_of_filter(stage, "filter_obj", judge)
    bounded = judge if keeps_by_bounds(judge) else None
    return Link(rule, judge, score, judge.keep_document, *fields, invert, column, *_counted(judge), bounded)


def score_link(stage: str, judge: Any, rule: str, fields: tuple[str, str | None], column: str) -> Link:
    """A link of a stage that only notes scores."""
    score = _score_of_any(stage, judge)
    return Link(rule, judge, score, None, *fields, False, column, *_counted(judge), None)


def _counted(judge: Any) -> tuple[CountRule | None, tuple[Count, ...]]:
    """A rule whose scores kernels can find, and what it needs."""
    return (judge, judge.counts()) if is_counted(judge) else (None, ())


def score_fields(stage: str, given: Any, links: int) -> list[Any]:
    """A column per link; two links cannot write to one column."""
    names = spread(stage, "score_field", given, links)
    written = [name for name in names if name is not None]
    if len(set(written)) != len(written):
        raise UsageError(
            f"{stage}.score_field: {given!r} for a chain of {links}; give a list of {links} different names"
        )
    return [None if name is None else field_name(stage, "score_field", name) for name in names]


def _score_of_filter(stage: str, parameter: str, judge: Any) -> Callable[[str], Any]:
    score, keep = getattr(judge, "score_document", None), getattr(judge, "keep_document", None)
    if not callable(score) or not callable(keep):
        raise UsageError(
            f"{stage}.{parameter}: {judge!r} is not a DocumentFilter; "
            "it needs score_document(text) and keep_document(score)"
        )
    function: Callable[[str], Any] = score
    return function


def _score_of_any(stage: str, judge: Any) -> Callable[[str], Any]:
    if callable(getattr(judge, "score_document", None)):
        return _score_of_filter(stage, "score_fn", judge)
    if not callable(judge):
        raise UsageError(f"{stage}.score_fn: {judge!r} is neither a function of a text nor a DocumentFilter")
    function: Callable[[str], Any] = judge
    return function


def keep_of_any(judge: Any) -> Callable[[Any], Any]:
    """Whether a value is good enough: a function, or what a rule says of a score."""
    keep: Any = getattr(judge, "keep_document", judge)
    if not callable(keep):
        raise UsageError(f"Filter.filter_fn: {judge!r} is neither a function of a value nor a DocumentFilter")
    function: Callable[[Any], Any] = keep
    return function


def rule_name(judge: Any) -> str:
    """What reports call a rule or function."""
    if callable(getattr(judge, "keep_document", None)):
        own = getattr(judge, "name", None)
        return own if isinstance(own, str) and own else type(judge).__name__
    name = getattr(judge, "__name__", "")
    return name if name and name != "<lambda>" else "Filter"


def threshold_of(judge: Any) -> Any:
    """What a rule allows, for reports."""
    thresholds = getattr(judge, "thresholds", None)
    return (thresholds() or None) if callable(thresholds) else None
