# SPDX-License-Identifier: Apache-2.0
"""One run for `streaming_vs_batch.py`. Usage: streaming_vs_batch_run.py MODE INPUT OUTPUT SPANS

Read, 30 ms of computing for each batch, 50 ms on a declared accelerator with one worker, 10 ms of computing, write. The
model stage leaves in SPANS when each of its batches began and ended.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from thresher import DocumentBatch, JsonlReader, JsonlWriter, LocalExecutor, Pipeline, ProcessingStage, Resources

BEFORE_S, MODEL_S, AFTER_S = 0.030, 0.050, 0.010
BLOCK = "1MB"
"""One batch, and one unit: what is read, handed on and written at once."""


def compute(seconds: float) -> None:
    """Keep a core busy."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


class Before(ProcessingStage[DocumentBatch, DocumentBatch]):
    """CPU work before the model."""

    name = "before"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        compute(BEFORE_S)
        return task


class Model(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Stands for a model on an accelerator: its core waits."""

    name = "model"
    resources = Resources(gpus=1)

    def __init__(self, spans: str) -> None:
        self.spans_file = spans

    def setup(self, worker_metadata: Any = None) -> None:
        self.spans: list[tuple[float, float]] = []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        started = time.time()
        time.sleep(MODEL_S)
        self.spans.append((started, time.time()))
        return task

    def teardown(self) -> None:
        Path(self.spans_file).write_text(json.dumps(self.spans))


class After(ProcessingStage[DocumentBatch, DocumentBatch]):
    """CPU work behind the model."""

    name = "after"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        compute(AFTER_S)
        return task


def main() -> None:
    mode, source, output, spans = sys.argv[1:5]
    reader, writer = JsonlReader(source, blocksize=BLOCK), JsonlWriter(output)
    stages: list[ProcessingStage[Any, Any]] = [reader, Before(), Model(spans), After(), writer]
    executor = LocalExecutor(workers=2, gpus=1, execution_mode=mode)
    result = Pipeline("streaming-vs-batch", stages=stages).run(executor, progress="none")
    print(json.dumps({"written": result.counts["written"]}))


if __name__ == "__main__":
    main()
