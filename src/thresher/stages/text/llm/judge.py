# SPDX-License-Identifier: Apache-2.0
"""Stage that lets a model score documents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.errors import UsageError
from thresher.models.endpoint.endpoint import Endpoint
from thresher.models.endpoint.request import Answer
from thresher.stages.text.llm.endpoint_stage import Asking, EndpointStage, column_of, text_or

PROMPT = """Judge the text below as training data for a language model. Consider whether it is well written, complete, \
informative and free of advertising, navigation and repeated passages. First give the reason in one or two sentences, \
then a score from {min_score} (useless) to {max_score} (excellent).

Text:

{{{text_field}:8000}}"""


class JudgeText(EndpointStage):
    """Let a language model score each document, with a reason."""

    def __init__(  # noqa: PLR0913 - a recipe names them
        self,
        endpoint: Endpoint | Mapping[str, Any],
        prompt: str | None = None,
        score_field: str = "judge_score",
        reason_field: str = "judge_reason",
        min_score: float = 0,
        max_score: float = 5,
        text_field: str = "text",
        system: str = "",
        sampling: Mapping[str, Any] | None = None,
        max_cost: float | None = None,
        max_total_tokens: int | None = None,
        cache_path: str | None = None,
    ) -> None:
        """`prompt`: the instruction, with `{column}` where a value goes; by default one about training data.
        `score_field`, `reason_field`: the columns for the score and the reason.
        `min_score`, `max_score`: the limits of the score; whole numbers allow whole scores only.
        `text_field`: the column that the default prompt shows, its first 8,000 characters.
        The others are those of `GenerateText`.
        """
        for name, score in (("min_score", min_score), ("max_score", max_score)):
            if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
                raise UsageError(f"JudgeText.{name}: {score!r} is not a number")
        if min_score >= max_score:
            raise UsageError(f"JudgeText.min_score: {min_score!r} is not below max_score, {max_score!r}")
        field = field_name("JudgeText", "text_field", text_field)
        usual = PROMPT.format(text_field=field, min_score=min_score, max_score=max_score)
        prompt = text_or("JudgeText.prompt", prompt, usual)
        self.ask_with(Asking(endpoint, prompt, system, sampling, max_cost, max_total_tokens, cache_path))
        self.score_field = field_name("JudgeText", "score_field", score_field)
        self.reason_field = field_name("JudgeText", "reason_field", reason_field)
        if score_field == reason_field:
            raise UsageError(f"JudgeText.reason_field: {reason_field!r} is the column of the score; name another")
        kind = "integer" if isinstance(min_score, int) and isinstance(max_score, int) else "number"
        self.schema = {
            "type": "object",
            "properties": {  # the reason first, so that the model thinks before it scores
                "reason": {"type": "string"},
                "score": {"type": kind, "minimum": min_score, "maximum": max_score},
            },
            "required": ["reason", "score"],
            "additionalProperties": False,
        }

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns for the score and the reason."""
        return ["data"], [self.score_field, self.reason_field]

    def added(self, batch: DocumentBatch, answers: Sequence[Answer]) -> DocumentBatch:
        """Return the documents with scores and reasons."""
        scores = [float(answer.value["score"]) for answer in answers]
        for score in scores:
            self.chart("documents by score", score)
        batch = batch.replace(self.score_field, column_of(scores, "number"))
        return batch.replace(self.reason_field, column_of([answer.value["reason"] for answer in answers], "string"))
