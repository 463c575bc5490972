# SPDX-License-Identifier: Apache-2.0
"""What each rule of a judging stage says about one document, also of rules that a run would not have asked any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thresher.core.batch import DocumentBatch
from thresher.core.stage import ProcessingStage
from thresher.stages.text.link import Link, keep_of_any, rule_name, threshold_of
from thresher.stages.text.score_filter import Filter, TextJudge


@dataclass(frozen=True)
class Judged:
    """What one rule says about one document."""

    rule: str
    """What reports call the rule."""
    score: Any
    """What it found; `None` where the document has no text for it."""
    threshold: Any
    """What it allows; `None` for a stage that only notes scores."""
    kept: bool
    """Whether the document is good enough for it."""


def judged_rules(stage: ProcessingStage[Any, Any], batch: DocumentBatch) -> list[Judged]:
    """Every rule of a stage on the first document of a batch; empty for a stage that has no rules."""
    if isinstance(stage, TextJudge):
        return [_judged_text(link, batch) for link in stage.links()]
    if isinstance(stage, Filter):
        rules = zip(stage._judges, stage._fields, stage._inverted, strict=True)
        return [_judged_value(judge, batch.values(name)[0], inverted) for judge, name, inverted in rules]
    return []


def _judged_text(link: Link, batch: DocumentBatch) -> Judged:
    text = batch.values(link.text_field)[0]
    if not isinstance(text, str):
        return Judged(link.rule, None, link.threshold, False)
    score = link.score(text)
    kept = link.keep is None or bool(link.keep(score)) is not link.invert
    return Judged(link.rule, score, link.threshold, kept)


def _judged_value(judge: Any, value: Any, inverted: bool) -> Judged:
    return Judged(rule_name(judge), value, threshold_of(judge), bool(keep_of_any(judge)(value)) is not inverted)
