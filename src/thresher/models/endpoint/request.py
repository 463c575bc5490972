# SPDX-License-Identifier: Apache-2.0
"""Requests to a model, as the protocol writes them, and its answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from thresher.models.endpoint.endpoint import Endpoint
from thresher.models.surrogates import without_surrogates

BYTES_PER_TOKEN = 4
"""For servers that do not report the tokens of an answer."""
_MESSAGE_TOKENS = 16
"""Tokens that a server may add around a message."""
_THOUGHT_END = "</think>"


@dataclass(frozen=True)
class Request:
    """A prompt and how it is to be answered."""

    prompt: str
    """Message of the user."""
    system: str = ""
    """Message of the system; empty for none."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that are sent as they are, such as `temperature`, `max_tokens`, `seed` and `stop`."""
    schema: Mapping[str, Any] | None = None
    """JSON schema of the answer; `None` for plain text."""
    earlier: tuple[tuple[str, str], ...] = ()
    """Role and content of messages after the prompt: answers that did not fit the schema, and what was wrong."""

    def messages(self, endpoint: Endpoint) -> list[dict[str, str]]:
        """Return all messages in order."""
        system = self.system
        if self.schema is not None and (endpoint.structured_output != "json_schema" or endpoint.api == "completions"):
            wanted = (
                f"Answer with a JSON value that fits this JSON schema, and nothing else:\n{_canonical(self.schema)}"
            )
            system = f"{system}\n\n{wanted}" if system else wanted
        first = [("system", system)] if system else []
        messages = (*first, ("user", self.prompt), *self.earlier)
        return [{"role": role, "content": without_surrogates(text)} for role, text in messages]

    def body(self, endpoint: Endpoint) -> dict[str, Any]:
        """Return the JSON object that is posted."""
        messages = self.messages(endpoint)
        if endpoint.api == "completions":
            asked: dict[str, Any] = {"prompt": "\n\n".join(message["content"] for message in messages)}
        else:
            asked = {"messages": messages}
        return {"model": endpoint.model, **asked, **self._response_format(endpoint), **self.sampling}

    def _response_format(self, endpoint: Endpoint) -> dict[str, Any]:
        if self.schema is None or endpoint.api == "completions" or endpoint.structured_output == "prompt":
            return {}
        if endpoint.structured_output == "json_object":
            return {"response_format": {"type": "json_object"}}
        schema = {"name": "answer", "schema": dict(self.schema), "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}

    def key(self, endpoint: Endpoint) -> bytes:
        """Return a hash of the address and everything that is posted; it holds no credentials."""
        text = f"{endpoint.url}\n{_canonical(self.body(endpoint))}"
        return hashlib.sha256(text.encode()).digest()

    def most_tokens(self, endpoint: Endpoint) -> tuple[int, int]:
        """Return the most tokens that the request can have, a token being at least a byte, and the most of its answer:
        `max_tokens` of the sampling parameters, or 0 where they set no limit."""
        messages = self.messages(endpoint)
        sent = sum(len(one["content"].encode()) + _MESSAGE_TOKENS for one in messages)
        limit = self.sampling.get("max_tokens", self.sampling.get("max_completion_tokens"))
        return sent, limit if isinstance(limit, int) else 0


class Answer(msgspec.Struct, frozen=True):
    """The answer to a request."""

    content: str
    """Text of the answer, as it came."""
    finish_reason: str = "stop"
    """Why it ended: `stop`, `length`, `content_filter`, …"""
    input_tokens: int = 0
    """Tokens of the request."""
    output_tokens: int = 0
    """Tokens of the answer."""
    value: Any = None
    """The JSON value, where a schema was given; it is not stored."""

    @property
    def text(self) -> str:
        """Return the answer without surrounding white space and without the thoughts of a reasoning model before it."""
        before, end, after = self.content.partition(_THOUGHT_END)
        return (after if end and before.lstrip().startswith("<think>") else self.content).strip()


@dataclass(frozen=True)
class FailedRequest:
    """Why a request has no answer that can be used. Other requests are unaffected."""

    error: str
    """A short word, by which failures are grouped."""
    message: str
    """What went wrong, and what to do."""


def parse_answer(content: bytes, request_bytes: int) -> Answer:
    """Return the answer in the body of a response; raise a `ValueError` if it is none."""
    found = json.loads(content)
    try:
        choice = found["choices"][0]
        message = choice.get("message")
        text = choice.get("text") if message is None else message.get("content") or message.get("refusal")
        usage = found.get("usage") or {}
        text = text or ""
        if not isinstance(text, str):
            raise TypeError
        sent, answered = usage.get("prompt_tokens"), usage.get("completion_tokens")
    except (AttributeError, IndexError, KeyError, TypeError):
        raise ValueError("the response has no choices[0] with a text") from None
    if not isinstance(sent, int) or not isinstance(answered, int):
        sent, answered = (-(-n // BYTES_PER_TOKEN) for n in (request_bytes, len(text.encode("utf-8", "replace"))))
    return Answer(text, str(choice.get("finish_reason") or "stop"), sent, answered)


def _canonical(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
