# SPDX-License-Identifier: Apache-2.0
"""Stage that lets a model find values in documents, each of which becomes a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.errors import UsageError
from thresher.models.endpoint.endpoint import Endpoint
from thresher.models.endpoint.request import Answer
from thresher.models.endpoint.structured import check_schema
from thresher.stages.text.llm.endpoint_stage import Asking, EndpointStage, column_of, text_or

PROMPT = """Find the following in the text below: {names}. Answer with a JSON object that has these fields. Take \
values from the text alone; where it does not say, use {unknown}.

Text:

{{{text_field}:16000}}"""
TYPES = ("string", "integer", "number", "boolean", "array", "object")


class ExtractFields(EndpointStage):
    """Let a language model find values in each document, and write each into a column."""

    def __init__(  # noqa: PLR0913 - a recipe names them
        self,
        endpoint: Endpoint | Mapping[str, Any],
        fields: Mapping[str, Any],
        prompt: str | None = None,
        prefix: str = "",
        text_field: str = "text",
        system: str = "",
        sampling: Mapping[str, Any] | None = None,
        max_cost: float | None = None,
        max_total_tokens: int | None = None,
        cache_path: str | None = None,
    ) -> None:
        """`fields`: by name, a type (`string`, `integer`, `number`, `boolean`, `array`, `object`; with `?` at its end
        the value may be null) or a JSON schema, such as `{enum: [news, fiction, other]}`.
        `prompt`: the instruction, with `{column}` where a value goes; by default one that lists the fields.
        `prefix`: goes before the names of the columns.
        `text_field`: the column that the default prompt shows, its first 16,000 characters.
        The others are those of `GenerateText`.
        """
        field = field_name("ExtractFields", "text_field", text_field)
        if not isinstance(fields, Mapping) or not fields:
            raise UsageError(f"ExtractFields.fields: {fields!r} is not a mapping of names to types; give one or more")
        self.fields = {str(name): _schema_of(name, given) for name, given in fields.items()}
        optional = any("null" in schema.get("type", ()) for schema in self.fields.values())
        unknown = "null where that is allowed" if optional else "an empty text or 0"
        names = ", ".join(_braces(name) for name in self.fields)
        prompt = text_or("ExtractFields.prompt", prompt, PROMPT.format(text_field=field, names=names, unknown=unknown))
        self.ask_with(Asking(endpoint, prompt, system, sampling, max_cost, max_total_tokens, cache_path))
        if not isinstance(prefix, str):
            raise UsageError(f"ExtractFields.prefix: {prefix!r} is not a text")
        self.prefix = prefix
        self.schema = {
            "type": "object",
            "properties": self.fields,
            "required": list(self.fields),
            "additionalProperties": False,
        }

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns for the values."""
        return ["data"], [f"{self.prefix}{name}" for name in self.fields]

    def added(self, batch: DocumentBatch, answers: Sequence[Answer]) -> DocumentBatch:
        """Return the documents with the values."""
        for name, schema in self.fields.items():
            values = [answer.value[name] for answer in answers]
            batch = batch.replace(f"{self.prefix}{name}", column_of(values, _column_type(schema)))
        return batch


def _schema_of(name: Any, given: Any) -> dict[str, Any]:
    """Return the schema of a field."""
    what = f"ExtractFields.fields.{name}"
    if not isinstance(given, str):
        return check_schema(what, given)
    kind = given.removesuffix("?")
    if kind not in TYPES:
        legal = f"{', '.join(TYPES)}, each also with ? behind it"
        raise UsageError(f"{what}: {given!r} is neither a type ({legal}) nor a JSON schema")
    return {"type": [kind, "null"] if given.endswith("?") else kind}


def _column_type(schema: Mapping[str, Any]) -> str:
    """Return the type of a column; empty for values of several types, and nested ones."""
    if "enum" in schema:
        return "string" if all(isinstance(one, str) for one in schema["enum"]) else ""
    kind = schema.get("type", "")
    kinds = [kind] if isinstance(kind, str) else [one for one in kind if one != "null"]
    return str(kinds[0]) if len(kinds) == 1 else ""


def _braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
