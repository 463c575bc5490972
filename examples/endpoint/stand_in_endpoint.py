# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a model server: it speaks the protocol of OpenAI-compatible endpoints and answers by simple rules.

Use it to try a recipe without a model and without costs: `python examples/endpoint/stand_in_endpoint.py --port 8400`.
An answer in plain text is the last paragraph of the prompt without surplus white space; a JSON answer fits the schema,
and its numbers grow with the length of that paragraph. `GET /stats` tells how many requests came, and how many at a
time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from typing import Any

Response = tuple[int, dict[str, str], bytes]


class StandIn:
    """Answers requests; a subclass may answer in other ways."""

    def __init__(self, delay_s: float = 0.0) -> None:
        """`delay_s`: time that each answer takes."""
        self.delay_s = delay_s
        self.stats = {"requests": 0, "in_flight": 0, "most_in_flight": 0}

    async def respond(self, body: dict[str, Any], headers: dict[str, str]) -> Response | None:
        """Return status, headers and content for the body of a request; `None` cuts the connection."""
        await asyncio.sleep(self.delay_s)
        return completion(body, self.answer(body))

    def answer(self, body: dict[str, Any]) -> str:
        """Return the text of the answer."""
        paragraph = " ".join(prompt_of(body).rstrip().rpartition("\n\n")[2].split())
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
        return paragraph if schema is None else json.dumps(fitting(schema, paragraph))

    # -- HTTP ---------------------------------------------------------------------------------------------------------

    async def serve(self, port: int) -> None:
        """Serve until the process ends, and print the address."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", port, backlog=2048)
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
        await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                method, path, _ = lines[0].split(" ")
                headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines[1:])}
                content = await reader.readexactly(int(headers.get("content-length", 0)))
                response = await self._response(method, path, headers, content)
                if response is None:
                    break
                writer.write(_encoded(*response))
                await writer.drain()
        writer.close()

    async def _response(self, method: str, path: str, headers: dict[str, str], content: bytes) -> Response | None:
        if method == "GET":
            found = self.stats if path == "/stats" else {"object": "list", "data": [{"id": "stand-in"}]}
            return 200, {}, json.dumps(found).encode()
        if path not in ("/v1/chat/completions", "/v1/completions"):
            return 404, {}, b'{"error": {"message": "no such address"}}'
        self.stats["requests"] += 1
        self.stats["in_flight"] += 1
        self.stats["most_in_flight"] = max(self.stats["most_in_flight"], self.stats["in_flight"])
        try:
            return await self.respond(json.loads(content), headers)
        finally:
            self.stats["in_flight"] -= 1


def prompt_of(body: dict[str, Any]) -> str:
    """Return the prompt of a request."""
    if "prompt" in body:
        return str(body["prompt"])
    return next(str(one["content"]) for one in body["messages"] if one["role"] == "user")


def completion(body: dict[str, Any], text: str, finish_reason: str = "stop") -> Response:
    """Return a response with an answer; a word counts as a token."""
    tokens = {"prompt_tokens": len(prompt_of(body).split()), "completion_tokens": len(text.split())}
    answer = {"text": text} if "prompt" in body else {"message": {"role": "assistant", "content": text}}
    choice = {"index": 0, "finish_reason": finish_reason, **answer}
    return 200, {}, json.dumps({"model": body.get("model"), "choices": [choice], "usage": tokens}).encode()


def fitting(schema: dict[str, Any], text: str) -> Any:
    """Return a value that fits a schema of plain types."""
    if "enum" in schema:
        return schema["enum"][len(text) % len(schema["enum"])]
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: fitting(inner, text) for name, inner in schema.get("properties", {}).items()}
    if kind == "array":
        return [fitting(schema.get("items", {}), text)]
    if kind in ("integer", "number"):
        low, high = schema.get("minimum", 0), schema.get("maximum", 10)
        return min(high, low + len(text.split()) // 20)
    return kind == "boolean" or " ".join(text.split()[:6])


def _encoded(status: int, headers: dict[str, str], content: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status} -", *(f"{key}: {value}" for key, value in headers.items())]
    fixed = ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join([*lines, *fixed, "", ""]).encode() + content


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="port on loopback; 0 takes a free one")
    parser.add_argument("--delay-s", type=float, default=0.0, help="time that each answer takes")
    chosen = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(StandIn(chosen.delay_s).serve(chosen.port))


if __name__ == "__main__":
    main()
