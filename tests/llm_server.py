# SPDX-License-Identifier: Apache-2.0
"""A model server on loopback with faults, in a process of its own; and what it has answered, for tests.

A prompt says how it is answered: `[500:2]` fails twice with HTTP 500, `[429:1]` once with `Retry-After: 0.2`,
`[cut:1]` closes the connection, `[garbled:1]` answers with something that is not JSON, `[unfit:1]` with JSON that does
not fit the schema, `[slow:1]` only after the client has given up. Without a number, that is so each time. `[400]`,
`[length]` and `[empty]` are no faults of the moment.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

TOP = Path(__file__).parents[1]
sys.path.append(str(TOP / "examples" / "endpoint"))
from stand_in_endpoint import Response, StandIn, completion, prompt_of  # noqa: E402 - examples are no package

_FAULT = re.compile(r"\[(429|500|cut|garbled|unfit|slow|400|length|empty)(?::(\d+))?\]")
SLOW_S = 30.0


class FaultyStandIn(StandIn):
    """Answers with faults, and writes down every request that it answers for money."""

    def __init__(self, journal: str, delay_s: float, key: str) -> None:
        super().__init__(delay_s)
        self._journal = open(journal, "a", encoding="utf-8")  # noqa: SIM115 - open while the process lives
        self._key = key
        self._seen: Counter[str] = Counter()

    async def respond(self, body: dict[str, Any], headers: dict[str, str]) -> Response | None:
        """Return what the prompt asks for."""
        if self._key and headers.get("authorization") != f"Bearer {self._key}":
            return 401, {}, b'{"error": {"message": "wrong key"}}'
        name = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        found = _FAULT.search(prompt_of(body))
        times = int(found[2] or 10**9) if found else 0
        fault = found[1] if found and self._seen[prompt_of(body)] < times else ""
        self._seen[prompt_of(body)] += 1
        await asyncio.sleep(SLOW_S if fault == "slow" else self.delay_s)
        if fault in ("429", "500", "400"):
            return int(fault), {"Retry-After": "0.2"} if fault == "429" else {}, b'{"error": "as wanted"}'
        if fault == "cut":
            return None
        if fault == "garbled":
            return 200, {}, b"<html>"
        self._journal.write(json.dumps({"request": name, "prompt": prompt_of(body)}) + "\n")
        self._journal.flush()
        if fault == "length":
            return completion(body, "only half", "length")
        text = {"unfit": '{"score": "very"}', "empty": ""}.get(fault, self.answer(body))
        return completion(body, text)


class Server(NamedTuple):
    """A running server."""

    url: str  # its base_url
    journal: Path  # a line for each answered request
    pid: int  # its process

    def answered(self) -> list[dict[str, str]]:
        """The requests that were answered, in order; repeated ones as often as they came."""
        return [json.loads(line) for line in self.journal.read_text().splitlines()]

    def stats(self) -> dict[str, int]:
        """How many requests came, and how many at a time."""
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/stats", timeout=10) as answer:
            found: dict[str, int] = json.load(answer)
            return found

    def endpoint(self, **more: Any) -> dict[str, Any]:
        """The parameter `endpoint` of a stage, with few retries."""
        return {"base_url": self.url, "model": "stand-in", "max_retries": 2, **more}


@contextmanager
def serving(folder: Path, *, delay_s: float = 0.0, key: str = "") -> Iterator[Server]:
    """Start a server, and end it."""
    journal = folder / "answered.jsonl"
    journal.touch()
    command = [sys.executable, str(Path(__file__)), str(journal), str(delay_s), key]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": ""})
    try:
        assert process.stdout is not None
        yield Server(process.stdout.readline().strip(), journal, process.pid)
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    asyncio.run(FaultyStandIn(sys.argv[1], float(sys.argv[2]), sys.argv[3]).serve(0))
