# SPDX-License-Identifier: Apache-2.0
"""Stages that replace or accompany a text by another one of a model: rewritten, or translated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.errors import UsageError
from thresher.models.endpoint.endpoint import Endpoint
from thresher.models.endpoint.request import Answer
from thresher.stages.text.llm.endpoint_stage import Asking, EndpointStage, text_or, texts_of

REWRITE = """Rewrite the text below so that it is clear, correct and well structured. Keep its language and every \
fact; add nothing, and leave out advertising, navigation and repeated passages. Answer with the rewritten text only.

Text:

{{{text_field}}}"""
TRANSLATE = """Translate the text below {source}into {target}. Keep its meaning, tone and paragraphs, and leave names \
and code as they are. Answer with the translation only.

Text:

{{{text_field}}}"""


class RewriteText(EndpointStage):
    """Let a language model rewrite the text of each document."""

    def __init__(  # noqa: PLR0913 - a recipe names them
        self,
        endpoint: Endpoint | Mapping[str, Any],
        prompt: str | None = None,
        text_field: str = "text",
        output_field: str | None = None,
        original_field: str | None = None,
        system: str = "",
        sampling: Mapping[str, Any] | None = None,
        max_cost: float | None = None,
        max_total_tokens: int | None = None,
        cache_path: str | None = None,
    ) -> None:
        """`prompt`: the instruction, with `{column}` where a value goes; by default one for clear and correct text.
        `text_field`: the column with the text.
        `output_field`: the column for the new text; by default it replaces the old one.
        `original_field`: a column for the old text.
        The others are those of `GenerateText`.
        """
        self.text_field = field_name("RewriteText", "text_field", text_field)
        prompt = text_or("RewriteText.prompt", prompt, REWRITE.format(text_field=text_field))
        self.ask_with(Asking(endpoint, prompt, system, sampling, max_cost, max_total_tokens, cache_path))
        self.output_field = field_name(
            "RewriteText", "output_field", text_field if output_field is None else output_field
        )
        self.original_field = original_field
        if original_field is not None:
            field_name("RewriteText", "original_field", original_field)
        if original_field in (self.output_field, text_field):
            raise UsageError(
                f"RewriteText.original_field: {original_field!r} is the column of the new text, or the text's"
            )

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that the prompt names, and the text where it is kept."""
        attributes, columns = super().inputs()
        kept = [] if self.original_field is None else [self.text_field]
        return attributes, list(dict.fromkeys((*columns, *kept)))

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns for the new and the old text."""
        return ["data"], [name for name in (self.output_field, self.original_field) if name is not None]

    def added(self, batch: DocumentBatch, answers: Sequence[Answer]) -> DocumentBatch:
        """Return the documents with the new texts."""
        if self.original_field is not None:
            batch = batch.replace(self.original_field, batch.column(self.text_field))
        return batch.replace(self.output_field, texts_of(answers))


class TranslateText(EndpointStage):
    """Let a language model translate the text of each document."""

    def __init__(  # noqa: PLR0913 - a recipe names them
        self,
        endpoint: Endpoint | Mapping[str, Any],
        target_language: str,
        source_language: str | None = None,
        text_field: str = "text",
        output_field: str = "translated_text",
        prompt: str | None = None,
        system: str = "",
        sampling: Mapping[str, Any] | None = None,
        max_cost: float | None = None,
        max_total_tokens: int | None = None,
        cache_path: str | None = None,
    ) -> None:
        """`target_language`: name of the language, as the prompt says it, such as `English`.
        `source_language`: name of the language of the texts, or `{column}` where a column holds it; by default the
        model finds out.
        `text_field`: the column with the text.
        `output_field`: the column for the translation; the name of the text's column replaces it.
        `prompt`: another instruction, with `{column}` where a value goes.
        The others are those of `GenerateText`.
        """
        field = field_name("TranslateText", "text_field", text_field)
        if not isinstance(target_language, str) or not target_language:
            raise UsageError(f"TranslateText.target_language: {target_language!r} is not the name of a language")
        source = text_or("TranslateText.source_language", source_language, "")
        source = f"from {source} " if source else ""
        usual = TRANSLATE.format(text_field=field, target=target_language, source=source)
        prompt = text_or("TranslateText.prompt", prompt, usual)
        self.ask_with(Asking(endpoint, prompt, system, sampling, max_cost, max_total_tokens, cache_path))
        self.target_language, self.source_language = target_language, source_language
        self.output_field = field_name("TranslateText", "output_field", output_field)

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the column for the translation."""
        return ["data"], [self.output_field]

    def added(self, batch: DocumentBatch, answers: Sequence[Answer]) -> DocumentBatch:
        """Return the documents with the translations."""
        return batch.replace(self.output_field, texts_of(answers))
