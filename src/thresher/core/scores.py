# SPDX-License-Identifier: Apache-2.0
"""Scores that outlive a run: which columns the sidecar has, and what each of them depends on.

A stage that judges finds scores and drops by them. A score depends on the text, so on the stages before that change
records, and on the part of its rule that scores; it does not depend on thresholds. `ScoreColumn.depends_on` is a hash
of just that: where it is equal, a score of another run is what this run would find.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from thresher.core.stage import In, Out, ProcessingStage

if TYPE_CHECKING:
    from thresher.core.batch import DocumentBatch
    from thresher.core.records import Rows

Stage = ProcessingStage[Any, Any]
SCORE = "score:"
"""The start of the kinds under which a batch remembers scores."""


@dataclass(frozen=True)
class ScoredRule:
    """One rule of a stage that judges."""

    rule: str
    """What reports call it; unique in its stage."""
    judge: Any
    """The object or function that scores."""
    text_field: str
    """The column that it reads."""
    score_field: str | None
    """The column that gets its scores, if any."""


class RuleDrops(NamedTuple):
    """Records of a batch that one rule drops."""

    rule: str
    """What reports call the rule."""
    rows: Rows
    """The records, by their rows in the batch."""
    scores: Any
    """What the rule found, one score for each of them."""
    threshold: Any
    """What the rule allows."""


class Verdict(NamedTuple):
    """What one stage says about the records of a batch that the stages before it left."""

    left: Rows
    """The records that go on, by their rows in the batch."""
    drops: Sequence[RuleDrops]
    """All others, by the rule that drops them."""


class JudgingStage(ProcessingStage[In, Out]):
    """A stage that may drop records and note scores in columns, and leaves all else of a record as it is."""

    also_scores: tuple[JudgingStage[Any, Any], ...] | None = None
    """Where scores are kept: the stages right behind this one whose rules score every record here, so that a record
    that this stage drops has their scores too. `None`: scores are not kept, or an earlier stage sees to it."""

    beside: tuple[JudgingStage[Any, Any], ...] = ()
    """The stages behind this one whose rules see the same texts in the same call: what they will want is known."""

    @property
    def only_judges(self) -> bool:
        """Whether that is certain: a subclass may do more."""
        return False

    def scored_rules(self) -> list[ScoredRule]:
        """Its rules that score texts, in order."""
        return []

    def verdicts(self, batch: DocumentBatch) -> Iterator[Verdict]:
        """What this stage and those of `beside` say about a batch, one after the other: the same as if each was called
        with what the one before it left, without a batch for each. Nothing where they have to be called."""
        return iter(())


@dataclass(frozen=True)
class ScoreColumn:
    """One column of the sidecar."""

    name: str
    """`Stage/Rule`, as drop reasons are named."""
    stage: int
    """Number of the stage in the plan."""
    text_field: str
    """The column of the records that the rule reads."""
    depends_on: str | None
    """Hash of all that the scores depend on besides the input; `None`: that cannot be told."""


@dataclass(frozen=True)
class ScoreSource:
    """A run whose scores may be used."""

    run_dir: str
    """Its run folder or URL."""
    storage_options: dict[str, Any] = field(default_factory=dict)
    """How to open a URL."""


@dataclass(frozen=True)
class ScorePlan:
    """What a run does with scores."""

    columns: tuple[ScoreColumn, ...]
    """All rules in recipe order."""
    keep: bool = False
    """Whether every score is kept in the run folder."""
    known: ScoreSource | None = None
    """Where scores of another run are."""

    def of_stage(self, number: int) -> list[ScoreColumn]:
        """The columns of one stage."""
        return [column for column in self.columns if column.stage == number]


def memo_key(column: str, text_field: str) -> tuple[str, str]:
    """Under which key a batch remembers scores; they are forgotten when the text is changed."""
    return f"{SCORE}{column}", text_field


def score_list(remembered: Any) -> list[Any]:
    """Scores that a batch remembers, as Python values. An array of numbers stands for a list without gaps."""
    return remembered if isinstance(remembered, list) else list(remembered.tolist())


def column_name(stage: str, rule: str) -> str:
    """The name of a rule's column."""
    return f"{stage}/{rule}"


def rules_of(stage: Stage) -> list[ScoredRule]:
    """The rules of a stage that does nothing but judge."""
    return stage.scored_rules() if isinstance(stage, JudgingStage) and stage.only_judges else []


def score_columns(stages: Sequence[Stage], version: str) -> tuple[ScoreColumn, ...]:
    """A column for every rule of a plan."""
    from thresher.core.score_dependence import changes_of, dependence

    columns = []
    before: list[str | None] = [f"version {version}"]
    for number, stage in enumerate(stages):
        for rule in rules_of(stage):
            name = column_name(stage.name, rule.rule)
            columns.append(ScoreColumn(name, number, rule.text_field, dependence(before, rule)))
        before += changes_of(stage)
    return tuple(columns)


def stretches(stages: Sequence[Stage], numbers: Sequence[int]) -> list[list[int]]:
    """Neighbours among `numbers` whose rules all see the same texts, so that one can score for all of them."""
    found: list[list[int]] = []
    written: set[str] = set()
    is_open = False
    for number in numbers:
        rules = rules_of(stages[number])
        reads = {rule.text_field for rule in rules}
        if rules and is_open and not reads & written:
            found[-1].append(number)
        elif rules:
            found.append([number])
            written = set()
        written |= {rule.score_field for rule in rules if rule.score_field is not None}
        is_open = bool(rules)
    return found
