# SPDX-License-Identifier: Apache-2.0
"""Scores kept beyond a run: the columns of the score sidecar, and what each of them depends on.

A filter stage computes scores and drops records by them. A score depends on the text, hence on earlier stages that
change records, and on the scoring part of its rule; it does not depend on thresholds. `ScoreColumn.depends_on` is a
hash of exactly that: if it is equal in two runs, the scores of one are valid in the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from thresher.core.stage import In, Out, ProcessingStage

if TYPE_CHECKING:
    from thresher.core.records.record_ids import Rows

Stage = ProcessingStage[Any, Any]
SCORE = "score:"
"""Prefix of the memo keys under which a batch caches scores."""


class Bound(NamedTuple):
    """One end of the range of scores that a rule keeps; the bound itself is kept."""

    side: str
    """`low` or `high`."""
    value: float
    """The bound."""
    parameter: str
    """Parameter of the stage that sets it; empty if none does alone."""


@dataclass(frozen=True)
class ScoredRule:
    """One rule of a filter stage."""

    rule: str
    """Name of the rule in reports, unique in its stage."""
    judge: Any
    """Object or function that computes the score."""
    text_field: str
    """Column that the rule reads."""
    score_field: str | None
    """Column that receives the scores, if any."""
    bounds: tuple[Bound, ...] | None = None
    """The bounds that decide alone what is kept: none if everything is. `None` if something else decides."""


class RuleDrops(NamedTuple):
    """Records of a batch that one rule drops."""

    rule: str
    """Name of the rule in reports."""
    rows: Rows
    """Row indices of the records in the batch."""
    scores: Any
    """Scores of these records."""
    threshold: Any
    """Threshold of the rule."""


class Verdict(NamedTuple):
    """Decision of one stage on the records of a batch that the stages before it kept."""

    left: Rows
    """Row indices of the kept records."""
    drops: Sequence[RuleDrops]
    """Dropped records, by rule."""


class JudgingStage(ProcessingStage[In, Out]):
    """A filter stage: it may drop records and add score columns, and leaves everything else of a record unchanged."""

    also_scores: tuple[JudgingStage[Any, Any], ...] | None = None
    """The following stages whose rules score every record here, so that records dropped by this stage have their scores
    too. `None` if scores are not kept, or if an earlier stage computes them."""

    beside: tuple[JudgingStage[Any, Any], ...] = ()
    """The following stages whose rules see the same texts in the same call, so that their needs are known in
    advance."""

    @property
    def only_judges(self) -> bool:
        """Return True if the stage certainly does nothing else; a subclass may do more."""
        return False

    def scored_rules(self) -> list[ScoredRule]:
        """Return the rules that score texts, in order."""
        return []

    def verdicts(self, batch: In) -> Iterator[Verdict]:
        """Yield the decisions of this stage and of those in `beside` on a batch, in order.

        The result equals calling each stage on the output of the previous one, without building a batch for each. Yield
        nothing if the stages have to be called.
        """
        return iter(())


@dataclass(frozen=True)
class ScoreColumn:
    """One column of the sidecar."""

    name: str
    """`Stage/Rule`, the same as in drop reasons."""
    stage: int
    """Index of the stage in the plan."""
    text_field: str
    """Column of the records that the rule reads."""
    depends_on: str | None
    """Hash of everything that the scores depend on besides the input; `None` if that is unknown."""


@dataclass(frozen=True)
class ScoreSource:
    """A run whose scores may be reused."""

    run_dir: str
    """Run folder or URL."""
    storage_options: dict[str, Any] = field(default_factory=dict)
    """Options for opening a URL."""


@dataclass(frozen=True)
class ScorePlan:
    """The use of scores in a run."""

    columns: tuple[ScoreColumn, ...]
    """All rules in recipe order."""
    keep: bool = False
    """True if all scores are kept in the run folder."""
    known: ScoreSource | None = None
    """Another run whose scores are reused, if any."""

    def of_stage(self, number: int) -> list[ScoreColumn]:
        """Return the columns of one stage."""
        return [column for column in self.columns if column.stage == number]


def memo_key(column: str, text_field: str) -> tuple[str, str]:
    """Return the key under which a batch caches scores; the cache is cleared when the text changes."""
    return f"{SCORE}{column}", text_field


def column_name(stage: str, rule: str) -> str:
    """Return the name of a rule's column."""
    return f"{stage}/{rule}"


def rules_of(stage: Stage) -> list[ScoredRule]:
    """Return the rules of a stage that only filters; empty for any other stage."""
    return stage.scored_rules() if isinstance(stage, JudgingStage) and stage.only_judges else []


def score_columns(stages: Sequence[Stage], version: str) -> tuple[ScoreColumn, ...]:
    """Return a column for every rule of a plan."""
    from thresher.core.planning.score_dependence import changes_of, dependence

    columns = []
    before: list[str | None] = [f"version {version}"]
    for number, stage in enumerate(stages):
        for rule in rules_of(stage):
            name = column_name(stage.name, rule.rule)
            columns.append(ScoreColumn(name, number, rule.text_field, dependence(before, rule)))
        before += changes_of(stage)
    return tuple(columns)


def scoring_groups(stages: Sequence[Stage], numbers: Sequence[int]) -> list[list[int]]:
    """Group neighbours among `numbers` whose rules all see the same texts, so that one stage can score for the
    group."""
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


def introduce(stages: Sequence[Stage], calls: Iterable[Sequence[int]]) -> None:
    """Tell stages that judge the same texts in one call about each other, so that their needs are computed together.
    `calls`: the numbers of the stages of each call."""
    for numbers in calls:
        for group in scoring_groups(stages, numbers):
            members = [stage for stage in (stages[number] for number in group) if isinstance(stage, JudgingStage)]
            for place, stage in enumerate(members):
                stage.beside = tuple(members[place + 1 :])
