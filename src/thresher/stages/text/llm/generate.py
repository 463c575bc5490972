# SPDX-License-Identifier: Apache-2.0
"""Stage that writes what a model says about each document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.models.endpoint.endpoint import Endpoint
from thresher.models.endpoint.request import Answer
from thresher.stages.text.llm.endpoint_stage import Asking, EndpointStage, texts_of


class GenerateText(EndpointStage):
    """Ask a language model about each document, and write its answer into a column."""

    def __init__(  # noqa: PLR0913 - a recipe names them
        self,
        endpoint: Endpoint | Mapping[str, Any],
        prompt: str,
        output_field: str = "generated_text",
        system: str = "",
        sampling: Mapping[str, Any] | None = None,
        max_cost: float | None = None,
        max_total_tokens: int | None = None,
        cache_path: str | None = None,
    ) -> None:
        """`endpoint`: the model: `base_url` and `model`, and `api_key_env`, `api`, `structured_output`,
        `max_concurrency`, `requests_per_minute`, `tokens_per_minute`, `timeout_s`, `max_retries`, `input_price`,
        `output_price`.
        `prompt`: the message, with `{column}` where a value goes; `{column:2000}` takes its first 2,000 characters.
        `output_field`: the column for the answer.
        `system`: the system message, which may name columns, too.
        `sampling`: parameters that are sent as they are; by default `temperature` 0 and `max_tokens` 1024;
        `null` leaves one of them out.
        `max_cost`, `max_total_tokens`: the most money, in the currency of the prices, and the most tokens of a run.
        When they are reached, the run ends; with larger ones the same command goes on.
        `cache_path`: the file that keeps answers; by default one in the run folder.
        """
        self.ask_with(Asking(endpoint, prompt, system, sampling, max_cost, max_total_tokens, cache_path))
        self.output_field = field_name("GenerateText", "output_field", output_field)

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the column for the answer."""
        return ["data"], [self.output_field]

    def added(self, batch: DocumentBatch, answers: Sequence[Answer]) -> DocumentBatch:
        """Return the documents with the answers."""
        return batch.replace(self.output_field, texts_of(answers))
