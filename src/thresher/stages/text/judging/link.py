# SPDX-License-Identifier: Apache-2.0
"""One rule of a chain, as a stage builds it from the user's arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thresher.core.documents.batch import DocumentBatch
from thresher.core.scores import memo_key
from thresher.errors import UsageError
from thresher.stages.text.columns.chain import field_name, per_link
from thresher.stages.text.judging.rule import CountRule, is_counted, keeps_by_bounds

if TYPE_CHECKING:
    from thresher.kernels.counts.text_counts import Count


@dataclass(frozen=True)
class Link:
    """One rule of a chain."""

    rule: str
    """The name in reports."""
    judge: Any
    """The object or function that scores."""
    score: Callable[[str], Any]
    """Computes the score of a text."""
    keep: Callable[[Any], Any] | None
    """Decides whether to keep a score; `None` keeps everything."""
    text_field: str
    """The column that it reads."""
    score_field: str | None
    """The column that receives the scores, if any."""
    invert: bool
    """True if the decision is inverted."""
    column: str
    """Its column in the score sidecar."""
    counted: CountRule | None
    """The rule, if kernels can compute its scores."""
    needs: tuple[Count, ...]
    """The counts that it needs."""
    bounded: CountRule | None
    """The rule, if two bounds determine what it keeps."""

    @property
    def threshold(self) -> Any:
        """Return the threshold of the rule, for reports."""
        return None if self.keep is None else threshold_of(self.judge)

    def scores_in(self, batch: DocumentBatch) -> Any:
        """Return the scores cached in a batch: a list with `None` for a record without a score, or an array of all
        scores."""
        return batch._memo.get(memo_key(self.column, self.text_field))


def filter_link(stage: str, judge: Any, rule: str, fields: tuple[str, str | None], invert: bool, column: str) -> Link:
    """Create a link of a stage that drops; `fields` are the columns of text and score."""
    score = _filter_score_function(stage, "filter_obj", judge)
    bounded = judge if keeps_by_bounds(judge) else None
    return Link(rule, judge, score, judge.keep_document, *fields, invert, column, *_counted(judge), bounded)


def score_link(stage: str, judge: Any, rule: str, fields: tuple[str, str | None], column: str) -> Link:
    """Create a link of a stage that only writes scores."""
    score = _score_function(stage, judge)
    return Link(rule, judge, score, None, *fields, False, column, *_counted(judge), None)


def _counted(judge: Any) -> tuple[CountRule | None, tuple[Count, ...]]:
    """Return a rule whose scores kernels can compute, and the counts that it needs."""
    return (judge, judge.counts()) if is_counted(judge) else (None, ())


def score_fields(stage: str, given: Any, links: int) -> list[Any]:
    """Return a column per link; two links cannot write to one column."""
    names = per_link(stage, "score_field", given, links)
    written = [name for name in names if name is not None]
    if len(set(written)) != len(written):
        raise UsageError(
            f"{stage}.score_field: {given!r} for a chain of {links}; give a list of {links} different names"
        )
    return [None if name is None else field_name(stage, "score_field", name) for name in names]


def _filter_score_function(stage: str, parameter: str, judge: Any) -> Callable[[str], Any]:
    score, keep = getattr(judge, "score_document", None), getattr(judge, "keep_document", None)
    if not callable(score) or not callable(keep):
        raise UsageError(
            f"{stage}.{parameter}: {judge!r} is not a DocumentFilter; "
            "it needs score_document(text) and keep_document(score)"
        )
    function: Callable[[str], Any] = score
    return function


def _score_function(stage: str, judge: Any) -> Callable[[str], Any]:
    if callable(getattr(judge, "score_document", None)):
        return _filter_score_function(stage, "score_fn", judge)
    if not callable(judge):
        raise UsageError(f"{stage}.score_fn: {judge!r} is neither a function of a text nor a DocumentFilter")
    function: Callable[[str], Any] = judge
    return function


def keep_function(judge: Any) -> Callable[[Any], Any]:
    """Return the function that decides whether to keep a value: a function itself, or the `keep_document` of a rule."""
    keep: Any = getattr(judge, "keep_document", judge)
    if not callable(keep):
        raise UsageError(f"Filter.filter_fn: {judge!r} is neither a function of a value nor a DocumentFilter")
    function: Callable[[Any], Any] = keep
    return function


def rule_name(judge: Any) -> str:
    """Return the name of a rule or function in reports."""
    if callable(getattr(judge, "keep_document", None)):
        own = getattr(judge, "name", None)
        return own if isinstance(own, str) and own else type(judge).__name__
    name = getattr(judge, "__name__", "")
    return name if name and name != "<lambda>" else "Filter"


def threshold_of(judge: Any) -> Any:
    """Return the threshold of a rule, for reports."""
    thresholds = getattr(judge, "thresholds", None)
    return (thresholds() or None) if callable(thresholds) else None
