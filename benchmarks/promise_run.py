# SPDX-License-Identifier: Apache-2.0
"""One run of an adversarial pipeline, as JSON. Usage: promise_run.py PIPELINE INPUT OUTPUT MEMORY (`-`: default)."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator
from typing import Any

from thresher import (
    DocumentBatch,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    Modify,
    Pipeline,
    ProcessingStage,
    ScoreFilter,
    WordCountFilter,
)

Stage = ProcessingStage[Any, Any]
SLOW_WRITE_S_PER_MB = 0.02
FAN_OUT = 10_000
LEAK_BYTES = 16_000_000


class FanOut(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Makes 10,000 batches of every record."""

    name = "fan_out"
    fans_out = True

    def process(self, task: DocumentBatch) -> Generator[DocumentBatch]:
        for text in task.values("text"):
            for number in range(FAN_OUT):
                yield DocumentBatch([{"text": text, "number": number}])


class Leak(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Keeps something of every batch for ever."""

    name = "leak"

    def setup(self, worker_metadata: Any = None) -> None:
        self.kept: list[bytearray] = []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        self.kept.append(bytearray(b"x") * LEAK_BYTES)
        return task


class Slow(ProcessingStage[DocumentBatch, DocumentBatch]):
    """The slow end: one worker that sleeps for every megabyte before it is written."""

    name = "slow"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        time.sleep(task.nbytes / 1e6 * SLOW_WRITE_S_PER_MB)
        return task


def upper_first(text: str) -> str:
    """A change to every text, so that every line is written anew."""
    return text[:1].swapcase() + text[1:]


def stages_of(name: str) -> list[Stage]:
    """Return the stages between reader and writer."""
    rewriting: list[Stage] = [ScoreFilter(WordCountFilter(1, 10**9)), Modify(upper_first)]
    known: dict[str, list[Stage]] = {
        "records of 200 MB": rewriting,
        "records of 50 MB": rewriting,
        "fan-out of 10,000": [FanOut()],
        "slow writer": [Slow().with_(num_workers=1)],
        "leaking stage": [Leak()],
        "skewed sizes": rewriting,
    }
    return known[name]


def main() -> None:
    name, source, output, memory = sys.argv[1:5]
    limit: dict[str, Any] = {} if memory == "-" else {"memory": memory}
    pipeline = Pipeline(name, stages=[JsonlReader(source), *stages_of(name), JsonlWriter(output)])
    started = time.perf_counter()
    result = pipeline.run(LocalExecutor(limit, workers=2), progress="none")
    report = result.to_dict()
    print(
        json.dumps(
            {
                "run_s": time.perf_counter() - started,
                "counts": result.counts,
                "quarantine_reasons": report["quarantine_reasons"],
                "own_peak_bytes": result.peak_memory_bytes,
            }
        )
    )


if __name__ == "__main__":
    main()
