# SPDX-License-Identifier: Apache-2.0
"""Stages that judge documents: `Score` notes what a rule finds, `Filter` drops by a value, `ScoreFilter` does both."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from thresher.core.batch import DocumentBatch
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.scores import JudgingStage, ScoredRule, column_name, memo_key
from thresher.errors import UsageError
from thresher.stages.text.chain import as_chain, field_name, spread, unique_names
from thresher.stages.text.document_filter import DocumentFilter, TextRule
from thresher.stages.text.not_text import set_aside_without_text
from thresher.stages.text.text_view import TextView, text_views

ScoreOfView = Callable[[TextView], Any]
_Views = list[TextView | None] | dict[int, TextView | None]
"""A view by row; a dict where only some rows are needed."""


@dataclass(frozen=True)
class Link:
    """One rule of a chain."""

    rule: str
    """What reports call it."""
    score: ScoreOfView
    """What it finds in a text."""
    keep: Callable[[Any], Any] | None
    """Whether a score is good enough; `None` keeps everything."""
    threshold: Any
    """What it allows, for reports."""
    text_field: str
    """The column it reads."""
    score_field: str | None
    """The column that gets the scores, if any."""
    invert: bool = False
    """Whether it keeps what it would drop."""
    column: str = ""
    """Its column in the sidecar of scores."""

    def scores_in(self, batch: DocumentBatch) -> list[Any] | None:
        """The scores that a batch knows already; `None` for a record whose score is still to be found."""
        return batch._memo.get(memo_key(self.column, self.text_field))


class _TextJudge(JudgingStage[DocumentBatch, DocumentBatch]):
    """What `Score` and `ScoreFilter` share: a chain of rules over the texts of a batch."""

    _judges: list[Any]

    @abstractmethod
    def _links(self) -> list[Link]:
        """The rules in order."""

    def inputs(self) -> tuple[list[str], list[str]]:
        """The columns that hold the texts."""
        return ["data"], list(dict.fromkeys(link.text_field for link in self._links()))

    def outputs(self) -> tuple[list[str], list[str]]:
        """The columns that get scores."""
        return ["data"], [link.score_field for link in self._links() if link.score_field is not None]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        """Let the rules fetch their models."""
        _call_each(self._judges, "model_check_or_download")

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Let the rules load their models."""
        _call_each(self._judges, "load_model")

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Judge every document by the rules in order; the first one that fails it is the reason."""
        links = self._links()
        if self.also_scores is not None:
            others = [stage for stage in self.also_scores if isinstance(stage, _TextJudge)]
            _score_all(task, [*links, *(link for stage in others for link in stage._links())])
        known = [link.scores_in(task) for link in links]
        return _apply(task, links, _judged(links, known, task))

    @property
    def only_judges(self) -> bool:
        """A subclass may have its own `process`."""
        return type(self).process is _TextJudge.process

    def scored_rules(self) -> list[ScoredRule]:
        """The rules as the sidecar of scores knows them."""
        rules = zip(self._links(), self._judges, strict=True)
        return [ScoredRule(link.rule, judge, link.text_field, link.score_field) for link, judge in rules]


class ScoreFilter(_TextJudge):
    """Score each document's text and keep what the rule keeps; a list of rules is a chain, each narrows the rest."""

    def __init__(
        self,
        filter_obj: DocumentFilter | list[DocumentFilter],
        text_field: str | list[str] = "text",
        score_field: str | list[str | None] | None = None,
        invert: bool | list[bool] = False,
    ) -> None:
        """`score_field` names the column that keeps the score, if any; `invert` keeps what the rule would drop."""
        self.filter_obj, self.text_field, self.score_field, self.invert = filter_obj, text_field, score_field, invert
        self._judges = as_chain("ScoreFilter", "filter_obj", filter_obj)
        self._links()

    def _links(self) -> list[Link]:
        count, kind = len(self._judges), type(self).__name__
        texts = spread(kind, "text_field", self.text_field, count)
        scores = _score_fields(kind, self.score_field, count)
        inverted = spread(kind, "invert", self.invert, count)
        rules = unique_names([_rule_name(judge) for judge in self._judges])
        return [
            Link(
                rules[n],
                _score_of_filter(kind, "filter_obj", judge),
                judge.keep_document,
                _threshold(judge),
                field_name(kind, "text_field", texts[n]),
                scores[n],
                bool(inverted[n]),
                column_name(self.name, rules[n]),
            )
            for n, judge in enumerate(self._judges)
        ]


class Score(_TextJudge):
    """Note what a function or a rule finds in each document's text in a column; nothing is dropped."""

    def __init__(
        self,
        score_fn: Callable[[str], Any] | DocumentFilter | list[Callable[[str], Any] | DocumentFilter],
        score_field: str | list[str],
        text_field: str | list[str] = "text",
    ) -> None:
        """`score_fn` gets a text and returns a score, or is a `DocumentFilter`; a list needs a list of columns."""
        self.score_fn, self.score_field, self.text_field = score_fn, score_field, text_field
        self._judges = as_chain("Score", "score_fn", score_fn)
        self._links()

    def _links(self) -> list[Link]:
        count, kind = len(self._judges), type(self).__name__
        texts = spread(kind, "text_field", self.text_field, count)
        scores = [field_name(kind, "score_field", name) for name in _score_fields(kind, self.score_field, count)]
        rules = unique_names([_rule_name(judge) for judge in self._judges])
        return [
            Link(
                rules[n],
                _score_of_any(kind, judge),
                None,
                None,
                field_name(kind, "text_field", texts[n]),
                scores[n],
                column=column_name(self.name, rules[n]),
            )
            for n, judge in enumerate(self._judges)
        ]


class Filter(JudgingStage[DocumentBatch, DocumentBatch]):
    """Keep documents by the value of a column: a function of it, or the `keep_document` of a rule, says which."""

    def __init__(
        self,
        filter_fn: Callable[[Any], bool] | DocumentFilter | list[Callable[[Any], bool] | DocumentFilter],
        filter_field: str | list[str],
        invert: bool | list[bool] = False,
    ) -> None:
        """`filter_fn` gets the value, or `None` where a record has none; a list of functions is a chain."""
        self.filter_fn, self.filter_field, self.invert = filter_fn, filter_field, invert
        self._judges = as_chain("Filter", "filter_fn", filter_fn)
        for judge in self._judges:
            _keep_of_any(judge)
        self._fields = [field_name("Filter", "filter_field", name) for name in self._spread("filter_field")]
        self._inverted = [bool(flag) for flag in self._spread("invert")]

    @property
    def only_judges(self) -> bool:
        """A subclass may have its own `process`."""
        return type(self).process is Filter.process

    def _spread(self, parameter: str) -> list[Any]:
        return spread("Filter", parameter, getattr(self, parameter), len(self._judges))

    def inputs(self) -> tuple[list[str], list[str]]:
        """The columns that are judged."""
        return ["data"], list(dict.fromkeys(self._fields))

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Let the rules load their models."""
        _call_each(self._judges, "load_model")

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Judge every record by the functions in order."""
        rules = unique_names([_rule_name(judge) for judge in self._judges])
        for rule, judge, field, invert in zip(rules, self._judges, self._fields, self._inverted, strict=True):
            keep, values = _keep_of_any(judge), task.values(field)
            gone = [row for row, value in enumerate(values) if bool(keep(value)) is invert]
            if gone:
                task = task.drop(gone, rule, [values[row] for row in gone], _threshold(judge))
        return task


# -- one batch through a chain --------------------------------------------------------------------------------------


@dataclass
class Judgement:
    """What one rule of a chain said about the records of a batch."""

    scores: dict[int, Any]
    """Score by row, of the rows that reached the rule."""
    failed: list[int]
    """Rows that it drops."""
    without_text: list[int]
    """Rows that have no text for it."""


def _judged(links: Sequence[Link], known: Sequence[list[Any] | None], batch: DocumentBatch) -> list[Judgement]:
    """Document by document, so that its text is still in the cache of the processor when the next rule looks at it."""
    judgements = [Judgement({}, [], []) for _ in links]
    count = batch.num_items
    nothing = [None] * count
    views = _views(batch, links, known)
    steps = [
        (link.score, link.keep, link.invert, link.score_field is not None, views[link.text_field], scores or nothing, j)
        for link, scores, j in zip(links, known, judgements, strict=True)
    ]
    for row in range(count):
        for score_of, keep, invert, wanted, column, scores, judgement in steps:
            score = scores[row]
            if score is None:
                view = column[row]
                if view is None:
                    judgement.without_text.append(row)
                    break
                score = score_of(view)
            if wanted:
                judgement.scores[row] = score
            if keep is not None and bool(keep(score)) is invert:
                judgement.scores[row] = score
                judgement.failed.append(row)
                break
    return judgements


def _views(batch: DocumentBatch, links: Sequence[Link], known: Sequence[list[Any] | None]) -> dict[str, _Views]:
    """The texts of each column in which a score is still to be found; only those records are decoded."""
    found: dict[str, _Views] = {}
    for field in dict.fromkeys(link.text_field for link in links):
        columns = [scores for link, scores in zip(links, known, strict=True) if link.text_field == field]
        rows = {row for scores in columns if scores is not None for row, score in enumerate(scores) if score is None}
        if any(scores is None for scores in columns) or len(rows) == batch.num_items:
            found[field] = text_views(batch, field)
        else:
            wanted = sorted(rows)
            picked = text_views(batch._picked(wanted), field) if wanted else []
            found[field] = dict(zip(wanted, picked, strict=True))
    return found


def _score_all(batch: DocumentBatch, links: Sequence[Link]) -> None:
    """Let the batch remember the score of every record by every rule, whatever another rule says of it.

    A rule that fails here is asked again where the record reaches it, and fails there as it would have.
    """
    known = [link.scores_in(batch) for link in links]
    views = _views(batch, links, known)
    columns = [[None] * batch.num_items if scores is None else list(scores) for scores in known]
    steps = [(link.score, views[link.text_field], scores) for link, scores in zip(links, columns, strict=True)]
    for row in range(batch.num_items):
        for score_of, column, scores in steps:
            if scores[row] is None and (view := column[row]) is not None:
                with contextlib.suppress(Exception):  # a rule's own code may raise anything
                    scores[row] = score_of(view)
    for link, scores in zip(links, columns, strict=True):
        batch._memo[memo_key(link.column, link.text_field)] = scores


def _apply(batch: DocumentBatch, links: Sequence[Link], judgements: Sequence[Judgement]) -> DocumentBatch:
    """What the rules said, done to the batch in their order."""
    alive = list(range(batch.num_items))
    for link, judgement in zip(links, judgements, strict=True):
        if judgement.without_text:
            batch = set_aside_without_text(batch, _places(alive, judgement.without_text), link.text_field)
            alive = _left(alive, judgement.without_text)
        if link.score_field is not None:
            batch = batch.replace(link.score_field, [judgement.scores[row] for row in alive])
        if judgement.failed:
            found = [judgement.scores[row] for row in judgement.failed]
            batch = batch.drop(_places(alive, judgement.failed), link.rule, found, link.threshold)
            alive = _left(alive, judgement.failed)
    return batch


def _places(alive: list[int], rows: list[int]) -> list[int]:
    """Where rows of the first batch stand among those that are left."""
    places = {row: place for place, row in enumerate(alive)}
    return [places[row] for row in rows]


def _left(alive: list[int], gone: list[int]) -> list[int]:
    away = set(gone)
    return [row for row in alive if row not in away]


# -- what users hand over -------------------------------------------------------------------------------------------


def _score_fields(stage: str, given: Any, links: int) -> list[Any]:
    """A column per link; two links cannot write to one column."""
    names = spread(stage, "score_field", given, links)
    written = [name for name in names if name is not None]
    if len(set(written)) != len(written):
        raise UsageError(
            f"{stage}.score_field: {given!r} for a chain of {links}; give a list of {links} different names"
        )
    return [None if name is None else field_name(stage, "score_field", name) for name in names]


def _score_of_filter(stage: str, parameter: str, judge: Any) -> ScoreOfView:
    if not callable(getattr(judge, "score_document", None)) or not callable(getattr(judge, "keep_document", None)):
        raise UsageError(
            f"{stage}.{parameter}: {judge!r} is not a DocumentFilter; "
            "it needs score_document(text) and keep_document(score)"
        )
    # A subclass of a rule may have its own score_document, which must then be asked.
    if isinstance(judge, TextRule) and type(judge).score_document is TextRule.score_document:
        return judge.score_view
    score_document = judge.score_document
    return lambda view: score_document(view.text)


def _score_of_any(stage: str, judge: Any) -> ScoreOfView:
    if callable(getattr(judge, "score_document", None)):
        return _score_of_filter(stage, "score_fn", judge)
    if not callable(judge):
        raise UsageError(f"{stage}.score_fn: {judge!r} is neither a function of a text nor a DocumentFilter")
    return lambda view: judge(view.text)


def _keep_of_any(judge: Any) -> Callable[[Any], Any]:
    keep: Any = getattr(judge, "keep_document", judge)
    if not callable(keep):
        raise UsageError(f"Filter.filter_fn: {judge!r} is neither a function of a value nor a DocumentFilter")
    function: Callable[[Any], Any] = keep
    return function


def _rule_name(judge: Any) -> str:
    if callable(getattr(judge, "keep_document", None)):
        own = getattr(judge, "name", None)
        return own if isinstance(own, str) and own else type(judge).__name__
    name = getattr(judge, "__name__", "")
    return name if name and name != "<lambda>" else "Filter"


def _threshold(judge: Any) -> Any:
    thresholds = getattr(judge, "thresholds", None)
    return (thresholds() or None) if callable(thresholds) else None


def _call_each(judges: Sequence[Any], method: str) -> None:
    for judge in judges:
        found = getattr(judge, method, None)
        if callable(found):
            found()
