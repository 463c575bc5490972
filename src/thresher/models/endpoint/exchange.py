# SPDX-License-Identifier: Apache-2.0
"""One request over HTTP: post it, read the answer, and tell what a failure means.

A failure belongs to the request (`RequestRefused`: another request may succeed), passes (`TryAgain`), or belongs to the
endpoint (`EndpointError`: no request will succeed).
"""

from __future__ import annotations

import time
import urllib.request
from typing import TYPE_CHECKING, Any

import msgspec

from thresher.credentials import error_line, redacted
from thresher.models.endpoint.budget import EndpointError
from thresher.models.endpoint.endpoint import Endpoint
from thresher.models.endpoint.pacing import retry_after_s
from thresher.models.endpoint.request import Answer, FailedRequest, parse_answer

if TYPE_CHECKING:
    import aiohttp

TOO_MANY = 429
MOST_BYTES = 64 * 2**20
"""A longer response is refused."""
_PASSES = frozenset({408, 409, 425, TOO_MANY})
_OF_ENDPOINT = {
    401: "it wants another key: name the environment variable that holds it in api_key_env",
    403: "the key may not use it; see api_key_env",
    404: "it has no such address or model: compare base_url, api and model with `GET /v1/models`",
    405: "it does not take requests there; base_url ends before /chat/completions, mostly with /v1",
}
_SHOWN = 500


class RequestRefused(Exception):
    """Raised if a request fails, and would fail again."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.failed = FailedRequest(error, message)


class TryAgain(Exception):
    """Raised if the same request may succeed later."""

    def __init__(self, error: str, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.failed = FailedRequest(error, message)
        self.wait_s = wait_s


class Exchange:
    """Connections to an endpoint. It is made, used and closed in one event loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        import aiohttp

        self._endpoint = endpoint
        self._errors = aiohttp.ClientError
        self._session: aiohttp.ClientSession = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=endpoint.max_concurrency),
            timeout=aiohttp.ClientTimeout(total=endpoint.timeout_s),
            headers={"Content-Type": "application/json", **endpoint.headers()},
            trust_env=bool(urllib.request.getproxies_environment()),  # it is looked up for each request, in a thread
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def send(self, body: dict[str, Any]) -> Answer:
        """Post a request and return its answer."""
        content = msgspec.json.encode(body)
        try:
            async with self._session.post(self._endpoint.url, data=content, allow_redirects=False) as response:
                found = await _read(response)
                status, headers = response.status, response.headers
        except TimeoutError:
            text = f"no answer within timeout_s={self._endpoint.timeout_s:g} seconds"
            raise TryAgain("endpoint-timeout", text) from None
        except (self._errors, OSError) as error:
            raise TryAgain("endpoint-connection", error_line(error)) from None
        if status != 200:
            raise self._failure(status, found, retry_after_s(headers.get("Retry-After"), time.time()))
        try:
            return parse_answer(found, len(content))
        except ValueError as error:
            raise TryAgain("endpoint-response", f"the response cannot be read: {error}; {_shown(found)}") from None

    async def is_alive(self) -> bool:
        """Return True if the server answers at all: then the failures of one request are its own."""
        try:
            async with self._session.get(f"{self._endpoint.base_url.rstrip('/')}/models") as response:
                return response.status < 500
        except (TimeoutError, self._errors, OSError):
            return False

    def _failure(self, status: int, content: bytes, wait_s: float | None) -> Exception:
        said = f"HTTP {status}: {_shown(content)}"
        if status in _OF_ENDPOINT or 300 <= status < 400:
            hint = _OF_ENDPOINT.get(status, "it has moved; give the new address as base_url")
            return EndpointError(f"{self._endpoint.url} refuses requests, {hint}. It says {said}")
        if status in _PASSES or status >= 500:
            return TryAgain(f"endpoint-{status}", said, wait_s)
        return RequestRefused(f"endpoint-{status}", f"the endpoint refuses the request: {said}")


async def _read(response: aiohttp.ClientResponse) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > MOST_BYTES:
            raise RequestRefused("answer-too-large", f"the response has more than {MOST_BYTES >> 20} MiB")
        parts.append(part)
    return b"".join(parts)


def _shown(content: bytes) -> str:
    text = " ".join(redacted(content[: 4 * _SHOWN].decode("utf-8", "replace")).split())
    return text[:_SHOWN] or "(an empty body)"
