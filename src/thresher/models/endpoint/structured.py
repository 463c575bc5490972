# SPDX-License-Identifier: Apache-2.0
"""Answers as JSON values that fit a schema, checked here whatever the server promises."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from thresher.errors import UsageError
from thresher.models.endpoint.request import Answer, Request

_FENCED = re.compile(r"```(?:json)?\s*(.*?)\s*```", re.DOTALL)
_SHOWN = 300


def check_schema(caller: str, schema: Any) -> dict[str, Any]:
    """Return a JSON schema; raise if it is none."""
    if not isinstance(schema, Mapping):
        raise UsageError(f"{caller}: {schema!r} is not a JSON schema, which is a mapping such as {{type: object}}")
    import jsonschema

    try:
        jsonschema.Draft202012Validator.check_schema(dict(schema))
    except jsonschema.SchemaError as error:
        raise UsageError(f"{caller}: not a valid JSON schema: {error.message}") from None
    return dict(schema)


def read_value(answer: Answer, schema: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the JSON value of an answer and what is wrong with it; that is empty if it fits the schema."""
    text = answer.text
    fenced = _FENCED.fullmatch(text)
    try:
        value = json.loads(fenced[1] if fenced else text, parse_constant=_refuse_constant)
    except ValueError as error:
        return None, f"it is not JSON: {error}"
    faults = sorted(
        _validator(json.dumps(schema, sort_keys=True)).iter_errors(value), key=lambda fault: fault.json_path
    )
    if not faults:
        return value, ""
    return None, "; ".join(f"{fault.json_path}: {fault.message[:_SHOWN]}" for fault in faults[:3])


def asked_again(request: Request, answer: Answer, fault: str) -> Request:
    """Return the request that tells what was wrong with an answer, and wants another."""
    told = (
        f"This answer does not fit the JSON schema: {fault}. Answer again, with a JSON value that fits, nothing else."
    )
    return replace(request, earlier=(*request.earlier, ("assistant", answer.content), ("user", told)))


@functools.lru_cache(maxsize=64)
def _validator(schema: str) -> Any:
    import jsonschema

    return jsonschema.Draft202012Validator(json.loads(schema))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
