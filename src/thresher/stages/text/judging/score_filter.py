# SPDX-License-Identifier: Apache-2.0
"""Stages that judge documents: `Score` writes scores, `Filter` drops by a value, `ScoreFilter` scores and drops."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from thresher.core.arguments.options import as_chain, chain_problems, field_name, field_names, per_link, unique_names
from thresher.core.documents.batch import DocumentBatch
from thresher.core.records.record_task import score_list
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.scores import Bound, JudgingStage, ScoredRule, Verdict, column_name
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError
from thresher.stages.text.judging.rule import (
    ChainedRule,
    CountRule,
    DocumentFilter,
    Functions,
    filter_functions,
    make_link,
    rule_name,
    score_functions,
    threshold_of,
    value_functions,
)


class RuleChain(JudgingStage[DocumentBatch, DocumentBatch]):
    """Base of `Score`, `Filter` and `ScoreFilter`: a chain of rules over the records of a batch."""

    looks_at_inputs_only = True

    _judges: list[Any]

    @abstractmethod
    def make_links(self) -> list[ChainedRule]:
        """Return the rules in order."""

    def _make_links(
        self, functions: Callable[[str, Any], Functions], fields: str, score_fields: Sequence[str | None]
    ) -> list[ChainedRule]:
        """Return a link for each rule; `fields` is the parameter that names the columns to read."""
        kind, count = type(self).__name__, len(self._judges)
        columns = [field_names(kind, fields, name) for name in per_link(kind, fields, getattr(self, fields), count)]
        inverted = per_link(kind, "invert", vars(self).get("invert", False), count)
        rules = unique_names([rule_name(judge) for judge in self._judges])
        links = zip(self._judges, rules, columns, score_fields, inverted, strict=True)
        return [
            make_link(judge, functions(kind, judge), rule, (column, score), bool(invert), column_name(self.name, rule))
            for judge, rule, column, score, invert in links
        ]

    def _score_fields(self, given: Any) -> list[Any]:
        """Return a column per rule; two rules cannot write to one column."""
        kind, count = type(self).__name__, len(self._judges)
        names = per_link(kind, "score_field", given, count)
        written = [name for name in names if name is not None]
        if len(set(written)) != len(written):
            raise UsageError(
                f"{kind}.score_field: {given!r} for a chain of {count}; give a list of {count} different names"
            )
        return [None if name is None else field_name(kind, "score_field", name) for name in names]

    def links(self) -> list[ChainedRule]:
        """Return the rules in order; they are rebuilt only after a change of the stage's name, rules or columns."""
        own = (vars(self).get(name) for name in ("text_field", "score_field", "filter_field", "invert"))
        key = (self.name, *own, *self._judges)
        made: tuple[Any, list[ChainedRule]] | None = self.__dict__.get("_made_links")
        if made is None or len(made[0]) != len(key) or any(a is not b for a, b in zip(made[0], key, strict=True)):
            made = self.__dict__["_made_links"] = (key, self.make_links())
        return made[1]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_made_links"}

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that are judged."""
        return ["data"], list(dict.fromkeys(field for link in self.make_links() for field in link.fields))

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that receive scores."""
        return ["data"], [link.score_field for link in self.make_links() if link.score_field is not None]

    def check_before_run(self) -> list[str]:
        """Return the problems that the rules report."""
        return chain_problems(self._judges)

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        """Check or download the models of the rules."""
        _call_each(self._judges, "model_check_or_download")

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Load the models of the rules."""
        for method in ("load_model", "load_tokenizer"):
            _call_each(self._judges, method)

    def preloads(self) -> list[str]:
        """Return the kernels that its rules need."""
        counts = [count for link in self.links() for count in link.needs]
        own = [name for link in self.links() if link.of_texts is not None for name in link.of_texts.kernels()]
        if not counts and not own:
            return []
        from thresher.kernels.counts import modules_of

        return ["thresher.stages.text.judging.evaluate", *modules_of(counts), *own, "thresher.kernels.json.text"]

    def needs_arrow(self) -> bool:
        """Return False if the rules only read texts, which are found in the lines."""
        return not self.only_judges or any(link.score is None or link.score_field for link in self.make_links())

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Judge every document by the rules in order; the first one that rejects it is the drop reason."""
        from thresher.stages.text.judging.evaluate import judged, score_all

        links = self.links()
        if self.also_scores is not None:
            score_all(task, [*links, *_links_of(self.also_scores)])
        return judged(task, links, lambda: _links_of(self.beside))

    def verdicts(self, batch: DocumentBatch) -> Iterator[Verdict]:
        """Yield the verdicts of this stage and those of `beside`, if formulas over counts determine all of them."""
        from thresher.stages.text.judging.evaluate import can_compute_verdicts, verdicts

        stages = (self, *self.beside)
        chains = [stage.links() for stage in stages if isinstance(stage, RuleChain) and stage.only_judges]
        if len(chains) < len(stages) or not can_compute_verdicts(batch, [link for chain in chains for link in chain]):
            return iter(())
        return verdicts(batch, chains, scores_kept=self.also_scores is not None)

    @property
    def only_judges(self) -> bool:
        """Return False if a subclass has its own `process`."""
        return type(self).process is RuleChain.process

    def scored_rules(self) -> list[ScoredRule]:
        """Return the rules as the score sidecar names them."""
        return [
            ScoredRule(link.rule, link.judge, link.text_field, link.score_field, self._bounds(link))
            for link in self.make_links()
            if link.score is not None and len(link.fields) == 1
        ]

    def _bounds(self, link: ChainedRule) -> tuple[Bound, ...] | None:
        """Return the bounds of a rule; `None` if they do not decide alone. A parameter that holds one is named."""
        if link.keep is None:
            return ()
        if link.bounded is None or link.invert:
            return None
        rule = link.bounded
        settable = rule.thresholds() if len(self._judges) == 1 or isinstance(self, RuleSet) else {}
        names = {value: name for name, value in settable.items()}
        ends = zip(("low", "high"), rule.allowed(), (rule.at_least, rule.at_most), strict=True)
        return tuple(
            Bound(side, value, own if own in settable else names.get(value, ""))
            for side, value, own in ends
            if math.isfinite(value)
        )


def _links_of(stages: Sequence[JudgingStage[Any, Any]]) -> list[ChainedRule]:
    return [link for stage in stages if isinstance(stage, RuleChain) for link in stage.links()]


def _call_each(judges: Sequence[Any], method: str) -> None:
    for judge in judges:
        found = getattr(judge, method, None)
        if callable(found):
            found()


class ScoreFilter(RuleChain):
    """Score each document's text and drop the documents that a rule rejects; a list of rules is applied in order."""

    def __init__(
        self,
        filter_obj: DocumentFilter | list[DocumentFilter],
        text_field: str | list[str] | list[list[str]] = "text",
        score_field: str | list[str | None] | None = None,
        invert: bool | list[bool] = False,
    ) -> None:
        """`score_field` names the column for the score, if any; `invert` keeps what the rule would drop.
        `text_field=[["title", "text"]]` gives a rule of your own several columns, as keyword arguments."""
        self.filter_obj, self.text_field, self.score_field, self.invert = filter_obj, text_field, score_field, invert
        self._judges = as_chain("ScoreFilter", "filter_obj", filter_obj)
        self.make_links()

    def make_links(self) -> list[ChainedRule]:
        """Return the rules in order."""
        return self._make_links(filter_functions, "text_field", self._score_fields(self.score_field))


class Score(RuleChain):
    """Write the score of each document's text, by a function or a rule, into a column; nothing is dropped."""

    def __init__(
        self,
        score_fn: Callable[..., Any] | DocumentFilter | list[Callable[..., Any] | DocumentFilter],
        score_field: str | list[str],
        text_field: str | list[str] | list[list[str]] = "text",
    ) -> None:
        """`score_fn` receives a value of the column and returns a score, or is a `DocumentFilter`; a list needs
        a list of columns. `text_field=[["title", "text"]]` gives a function several columns, as keyword arguments."""
        self.score_fn, self.score_field, self.text_field = score_fn, score_field, text_field
        self._judges = as_chain("Score", "score_fn", score_fn)
        self.make_links()

    def make_links(self) -> list[ChainedRule]:
        """Return the rules in order."""
        scores = [field_name(type(self).__name__, "score_field", f) for f in self._score_fields(self.score_field)]
        return self._make_links(score_functions, "text_field", scores)


class Filter(RuleChain):
    """Keep documents by the value of a column, as a function or the `keep_document` of a rule decides."""

    def __init__(
        self,
        filter_fn: Callable[..., bool] | DocumentFilter | list[Callable[..., bool] | DocumentFilter],
        filter_field: str | list[str] | list[list[str]],
        invert: bool | list[bool] = False,
    ) -> None:
        """`filter_fn` receives the value, or `None` for a record without one; a list of functions is a chain.
        `filter_field=[["score", "source"]]` gives a function several columns, as keyword arguments."""
        self.filter_fn, self.filter_field, self.invert = filter_fn, filter_field, invert
        self._judges = as_chain("Filter", "filter_fn", filter_fn)
        self.make_links()

    def make_links(self) -> list[ChainedRule]:
        """Return the functions in order."""
        return self._make_links(value_functions, "filter_field", [None] * len(self._judges))


# -- rule sets ------------------------------------------------------------------------------------------------------


class Check(CountRule):
    """One check of a set: a score and the bounds of what is kept. A subclass defines how the score is computed."""

    def __init__(self, reason: str, parameter: str, *, low: float | None = None, high: float | None = None) -> None:
        """`reason` is the name of the check in reports, `parameter` the parameter of the set that holds its bound."""
        self.name, self.parameter, self.low, self.high = reason, parameter, low, high

    def allowed(self) -> tuple[float, float]:
        """Allow scores within the bounds, which are inclusive."""
        return -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high

    def thresholds(self) -> dict[str, Any]:
        """Return the bound, under the parameter name of the set."""
        bound = self.low if self.low is not None else self.high
        return {} if bound is None else {self.parameter: bound}


class RuleSet(ScoreFilter):
    """A stage that applies a list of checks in order; the first check that rejects a document is its drop reason.

    Reports name the check: `GopherQualityFilter/gopher_short_doc`, `GopherQualityFilter/gopher_long_doc`, …
    """

    zero_turns_off = True
    """A bound of 0 disables a check, like `None`."""

    def __init__(self, checks: Sequence[CountRule], text_field: str = "text") -> None:
        """`checks` are built from the parameters of the set, without disabled ones."""
        super().__init__(list(checks), text_field)


# -- all rules on one document, for `thresher why` --------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """The result of one rule for one document."""

    rule: str
    """The name of the rule in reports."""
    score: Any
    """The score; `None` if the document has no text for the rule."""
    threshold: Any
    """The threshold of the rule; `None` for a stage that only writes scores."""
    kept: bool
    """True if the rule keeps the document."""


def judged_rules(stage: ProcessingStage[Any, Any], batch: DocumentBatch) -> list[Judged]:
    """Return the result of every rule of a stage for the first document of a batch; empty for a stage without rules."""
    if not isinstance(stage, RuleChain):
        return []
    from thresher.stages.text.judging.evaluate import evaluate_rules

    found = []
    for link in stage.links():
        judgement = evaluate_rules(batch.pick([0]), [link])[0]
        score = None if len(judgement.without_text) else score_list(judgement.scores)[0]
        found.append(Judged(link.rule, score, threshold_of(link.judge) if link.keep else None, len(judgement.left) > 0))
    return found
