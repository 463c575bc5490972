# SPDX-License-Identifier: Apache-2.0
"""The address of a model behind an OpenAI-compatible endpoint, and the limits within which it is asked."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from thresher.core.arguments.options import check_choice, check_count, check_positive
from thresher.core.arguments.parameters import find_problems
from thresher.credentials import has_credentials, remember, without_credentials
from thresher.errors import MissingPackageError, UsageError

PACKAGES = ("aiohttp", "jsonschema")
APIS = {"chat": "/chat/completions", "completions": "/completions"}
STRUCTURED = ("json_schema", "json_object", "prompt")


@dataclass(frozen=True)
class Endpoint:
    """A model behind an OpenAI-compatible endpoint."""

    base_url: str
    """Address up to and including the version, such as `http://127.0.0.1:8000/v1`."""
    model: str
    """Name of the model on the server."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; the key itself is never stored or shown."""
    api: Literal["chat", "completions"] = "chat"
    """`chat` posts messages to `/chat/completions`, `completions` one prompt to `/completions`."""
    structured_output: Literal["json_schema", "json_object", "prompt"] = "json_schema"
    """How a schema is requested: by `response_format` of one of these types, or in words only."""
    max_concurrency: int = 32
    """Most requests in flight, over all workers of the stage."""
    requests_per_minute: float | None = None
    """Most requests that begin in a minute."""
    tokens_per_minute: float | None = None
    """Most tokens, of requests and answers, in a minute."""
    timeout_s: float = 120.0
    """Seconds after which a request is given up and sent again."""
    max_retries: int = 6
    """How often a request is sent again after a failure that may pass."""
    input_price: float = 0.0
    """Price of a million tokens of requests."""
    output_price: float = 0.0
    """Price of a million tokens of answers."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"endpoint.base_url: {without_credentials(self.base_url)!r} is not the address of an endpoint, such as "
                "http://127.0.0.1:8000/v1"
            )
        if has_credentials(self.base_url):
            raise UsageError(
                f"endpoint.base_url: {without_credentials(self.base_url)} is given with a login or key, which would be "
                "shown; put the key into an environment variable, and name that in endpoint.api_key_env"
            )
        if not self.model:
            raise UsageError("endpoint.model: '' is not the name of a model; `GET /v1/models` of the server lists them")
        check_choice("endpoint.api", self.api, APIS)
        check_choice("endpoint.structured_output", self.structured_output, STRUCTURED)
        check_count("endpoint.max_concurrency", self.max_concurrency)
        check_count("endpoint.max_retries", self.max_retries, 0)
        check_positive("endpoint.timeout_s", self.timeout_s, "seconds")
        for name in ("requests_per_minute", "tokens_per_minute"):
            if getattr(self, name) is not None:
                check_positive(f"endpoint.{name}", getattr(self, name), name.partition("_")[0])
        for name in ("input_price", "output_price"):
            if getattr(self, name) < 0:
                raise UsageError(f"endpoint.{name}: {getattr(self, name)!r} is not a price of 0 or more")

    @classmethod
    def of(cls, caller: str, given: Endpoint | Mapping[str, Any]) -> Endpoint:
        """Return the endpoint that a stage was given, as an object or as a mapping of its fields."""
        if isinstance(given, Endpoint):
            return given
        if not isinstance(given, Mapping):
            raise UsageError(
                f"{caller}.endpoint: {given!r} is not an endpoint; give a mapping such as "
                "{base_url: http://127.0.0.1:8000/v1, model: NAME}"
            )
        if "api_key" in given:
            raise UsageError(
                f"{caller}.endpoint.api_key: a key in a recipe would be stored and shown; put it into an environment "
                "variable, and name that in api_key_env"
            )
        problems = find_problems(cls, given)
        if problems:
            raise UsageError("; ".join(f"{caller}.{problem.under('endpoint')}" for problem in problems))
        try:
            return cls(**given)
        except UsageError as error:
            raise UsageError(f"{caller}.{error}") from None

    @property
    def url(self) -> str:
        """Return the address that requests are posted to."""
        return self.base_url.rstrip("/") + APIS[self.api]

    def headers(self) -> dict[str, str]:
        """Return the headers of a request; the key is redacted in all text of this process from now on."""
        key = os.environ.get(self.api_key_env, "") if self.api_key_env else ""
        if not key:
            return {}
        remember({"api_key": key})
        return {"Authorization": f"Bearer {key}"}

    def share_of(self, rank: int, workers: int) -> Endpoint:
        """Return the endpoint with the limits of one of several workers, which keep them together."""
        if workers <= 1:
            return self
        own = self.max_concurrency // workers + (rank < self.max_concurrency % workers)
        rates = {
            name: None if (rate := getattr(self, name)) is None else rate / workers
            for name in ("requests_per_minute", "tokens_per_minute")
        }
        return Endpoint(**{**vars(self), **rates, "max_concurrency": max(1, own)})

    def cost(self, input_tokens: int, output_tokens: int) -> int:
        """Return the cost in millionths of the currency of the prices."""
        return round(input_tokens * self.input_price + output_tokens * self.output_price)

    def problems(self, caller: str) -> list[str]:
        """Return what is missing on this machine: the variable with the key."""
        if not self.api_key_env or os.environ.get(self.api_key_env):
            return []
        text = f"the environment variable {self.api_key_env} is not set; export the key there"
        return [f"{caller}.endpoint.api_key_env: {text}, or leave api_key_env out for a server without keys"]


def check_packages(caller: str) -> None:
    """Refuse a stage whose packages are not installed."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"{caller} needs the package {missing[0]}; install it with: pip install 'thresher[llm]'"
        )
