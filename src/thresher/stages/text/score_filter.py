# SPDX-License-Identifier: Apache-2.0
"""Stages that judge documents: `Score` notes what a rule finds, `Filter` drops by a value, `ScoreFilter` does both."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from thresher.core.batch import DocumentBatch
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.scores import JudgingStage, ScoredRule, Verdict, column_name
from thresher.stages.text.chain import as_chain, field_name, spread, unique_names
from thresher.stages.text.document_filter import DocumentFilter
from thresher.stages.text.link import (
    Link,
    filter_link,
    keep_of_any,
    rule_name,
    score_fields,
    score_link,
    threshold_of,
)


class TextJudge(JudgingStage[DocumentBatch, DocumentBatch]):
    """What `Score` and `ScoreFilter` share: a chain of rules over the texts of a batch."""

    looks_at_inputs_only = True

    _judges: list[Any]

    @abstractmethod
    def make_links(self) -> list[Link]:
        """The rules in order."""

    def links(self) -> list[Link]:
        """The rules in order; made anew only where somebody has given the stage another name, rule or column."""
        own = (vars(self).get(name) for name in ("text_field", "score_field", "invert"))
        key = (self.name, *own, *self._judges)
        made: tuple[Any, list[Link]] | None = self.__dict__.get("_made_links")
        if made is None or len(made[0]) != len(key) or any(a is not b for a, b in zip(made[0], key, strict=True)):
            made = self.__dict__["_made_links"] = (key, self.make_links())
        return made[1]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_made_links"}

    def inputs(self) -> tuple[list[str], list[str]]:
        """The columns that hold the texts."""
        return ["data"], list(dict.fromkeys(link.text_field for link in self.make_links()))

    def outputs(self) -> tuple[list[str], list[str]]:
        """The columns that get scores."""
        return ["data"], [link.score_field for link in self.make_links() if link.score_field is not None]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        """Let the rules fetch their models."""
        _call_each(self._judges, "model_check_or_download")

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Let the rules load their models."""
        _call_each(self._judges, "load_model")

    def preloads(self) -> list[str]:
        """The kernels that count for its rules."""
        counts = [count for link in self.links() for count in link.needs]
        if not counts:
            return []
        from thresher.kernels.groups import modules_of

        return ["thresher.stages.text.judging", *modules_of(counts), "thresher.kernels.json_text"]

    def needs_arrow(self) -> bool:
        """Scores are written to columns; texts are found in the lines."""
        return not self.only_judges or bool(self.outputs()[1])

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Judge every document by the rules in order; the first one that fails it is the reason."""
        from thresher.stages.text.judging import applied, judged, score_all

        links = self.links()
        if self.also_scores is not None:
            others = [stage for stage in self.also_scores if isinstance(stage, TextJudge)]
            score_all(task, [*links, *(link for stage in others for link in stage.links())])
        return applied(task, links, judged(task, links, self._links_beside))

    def verdicts(self, batch: DocumentBatch) -> Iterator[Verdict]:
        """What this stage and those of `beside` say, where formulas over counts say it all."""
        from thresher.stages.text.verdicts import can_tell_verdicts, verdicts

        stages = (self, *self.beside)
        chains = [stage.links() for stage in stages if isinstance(stage, TextJudge) and stage.only_judges]
        if len(chains) < len(stages) or not can_tell_verdicts(batch, chains):
            return iter(())
        return verdicts(batch, chains, scores_kept=self.also_scores is not None)

    def _links_beside(self) -> list[Link]:
        return [link for stage in self.beside if isinstance(stage, TextJudge) for link in stage.links()]

    @property
    def only_judges(self) -> bool:
        """A subclass may have its own `process`."""
        return type(self).process is TextJudge.process

    def scored_rules(self) -> list[ScoredRule]:
        """The rules as the sidecar of scores knows them."""
        return [ScoredRule(link.rule, link.judge, link.text_field, link.score_field) for link in self.make_links()]


class ScoreFilter(TextJudge):
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
        self.make_links()

    def make_links(self) -> list[Link]:
        """The rules in order."""
        count, kind = len(self._judges), type(self).__name__
        texts = spread(kind, "text_field", self.text_field, count)
        scores = score_fields(kind, self.score_field, count)
        inverted = spread(kind, "invert", self.invert, count)
        rules = unique_names([rule_name(judge) for judge in self._judges])
        return [
            filter_link(
                kind,
                judge,
                rules[n],
                (field_name(kind, "text_field", texts[n]), scores[n]),
                bool(inverted[n]),
                column_name(self.name, rules[n]),
            )
            for n, judge in enumerate(self._judges)
        ]


class Score(TextJudge):
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
        self.make_links()

    def make_links(self) -> list[Link]:
        """The rules in order."""
        count, kind = len(self._judges), type(self).__name__
        texts = spread(kind, "text_field", self.text_field, count)
        scores = [field_name(kind, "score_field", name) for name in score_fields(kind, self.score_field, count)]
        rules = unique_names([rule_name(judge) for judge in self._judges])
        return [
            score_link(
                kind,
                judge,
                rules[n],
                (field_name(kind, "text_field", texts[n]), scores[n]),
                column_name(self.name, rules[n]),
            )
            for n, judge in enumerate(self._judges)
        ]


class Filter(JudgingStage[DocumentBatch, DocumentBatch]):
    """Keep documents by the value of a column: a function of it, or the `keep_document` of a rule, says which."""

    looks_at_inputs_only = True

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
            keep_of_any(judge)
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
        rules = unique_names([rule_name(judge) for judge in self._judges])
        for rule, judge, field, invert in zip(rules, self._judges, self._fields, self._inverted, strict=True):
            keep, values = keep_of_any(judge), task.values(field)
            gone = [row for row, value in enumerate(values) if bool(keep(value)) is invert]
            if gone:
                task = task.drop(gone, rule, [values[row] for row in gone], threshold_of(judge))
        return task


def _call_each(judges: Sequence[Any], method: str) -> None:
    for judge in judges:
        found = getattr(judge, method, None)
        if callable(found):
            found()
