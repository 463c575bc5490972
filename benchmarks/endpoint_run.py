# SPDX-License-Identifier: Apache-2.0
"""One run that asks a stand-in server about each document. Usage: endpoint_run.py DOCUMENTS IN_FLIGHT DELAY_S FOLDER
[stored]; with `stored`, what is measured is a second run that finds all answers. Prints JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from thresher import GenerateText, JsonlReader, JsonlWriter, LocalExecutor, Pipeline

SERVER = Path(__file__).resolve().parent.parent / "examples" / "endpoint" / "stand_in_endpoint.py"
WORDS = 200
LIMIT_BYTES = 500_000_000
"""Memory limit of a run."""


def main() -> None:
    documents, in_flight, delay_s, folder = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])
    (folder / "in").mkdir(parents=True)
    with (folder / "in" / "a.jsonl").open("w") as file:
        file.writelines(json.dumps({"text": f"document {n} {'word ' * WORDS}"}) + "\n" for n in range(documents))
    with _server(delay_s) as url:
        if stored := "stored" in sys.argv:
            _run(folder, "before", url, in_flight)
        measured = _run(folder, "measured", url, in_flight)
        with urllib.request.urlopen(f"{url.removesuffix('/v1')}/stats") as answer:
            stats = json.load(answer)
    if measured["written"] != documents or stats["requests"] != documents:
        raise SystemExit(f"{measured['written']:,} of {documents:,} were written, {stats['requests']:,} asked about")
    most = 0 if stored else stats["most_in_flight"]
    print(json.dumps({**measured, "documents": documents, "most_in_flight": most}))


def _run(folder: Path, name: str, url: str, in_flight: int) -> dict[str, float]:
    endpoint = {"base_url": url, "model": "stand-in", "max_concurrency": in_flight}
    ask = GenerateText(endpoint, "{text}", cache_path=str(folder / "answers.sqlite")).with_(batch_size=4)
    stages = [JsonlReader(str(folder / "in")), ask, JsonlWriter(str(folder / name))]
    started = time.perf_counter()
    result = Pipeline(name, stages=stages).run(LocalExecutor(workers=1, memory=LIMIT_BYTES), progress="none")
    run_s = time.perf_counter() - started
    return {"run_s": run_s, "peak_memory_bytes": result.peak_memory_bytes, "written": result.counts["written"]}


@contextmanager
def _server(delay_s: float) -> Iterator[str]:
    command = [sys.executable, str(SERVER), "--delay-s", str(delay_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    main()
