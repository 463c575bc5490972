# SPDX-License-Identifier: Apache-2.0
"""One run for `accelerator_tokens.py`. Usage: accelerator_tokens_run.py TOKENIZER INPUT OUTPUT SPANS

Read, tokenize on CPU workers, a model on a declared accelerator with one worker, write. The model waits for each
forward pass as long as a device would compute, and leaves in SPANS when calls of its stage and forward passes began
and ended.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from thresher import DocumentBatch, JsonlReader, JsonlWriter, LocalExecutor, Pipeline, Resources, Tokenize
from thresher.core.resources import WorkerMetadata
from thresher.models.inference.text_model import SingleModel
from thresher.models.loading.reference import ModelReference
from thresher.stages.text.models.model_stage import ModelStage, set_columns

PASS_S = 0.050
"""One forward pass."""
BATCH = 32
BLOCK = "256kB"
"""One task: read, tokenized and computed at once."""
MAX_CHARS = 2000

Span = tuple[float, float]


class Device:
    """Stands for a model on an accelerator, whose core waits."""

    pad_id = 0
    pads_left = False
    most_tokens: int | None = None

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def forward(self, ids: Any, mask: Any) -> Any:
        """Wait, and return the number of tokens of each text."""
        started = time.time()
        time.sleep(PASS_S)
        self.spans.append((started, time.time()))
        return mask.sum(axis=1, keepdims=True).astype(np.float32)

    def free_memory(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class DeviceModel(SingleModel):
    """Loads the device."""

    def load(self, metadata: WorkerMetadata | None) -> Device:
        """Return the device."""
        return Device()

    def problems(self) -> list[str]:
        """Return no problems."""
        return []

    def preloads(self) -> list[str]:
        """Return no packages."""
        return []


class TimedStage(ModelStage):
    """A model stage that notes its calls."""

    name = "model"
    resources = Resources(cpus=0.5, gpus=1)
    spans_file = ""

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        super().setup(worker_metadata)
        self.spans: list[Span] = []

    def process_batch(self, tasks: list[DocumentBatch]) -> list[DocumentBatch]:
        started = time.time()
        found = super().process_batch(tasks)
        self.spans.append((started, time.time()))
        return found

    def finished(self, task: DocumentBatch, numbers: Any) -> DocumentBatch:
        return set_columns(task, {"tokens": numbers[:, 0].astype(np.int64)})

    def teardown(self) -> None:
        if self._batches is not None:
            device: Any = self._batches.model
            Path(self.spans_file).write_text(json.dumps({"calls": self.spans, "passes": device.spans}))
        super().teardown()


def main(tokenizer: str, source: str, output: str, spans: str) -> None:
    """Run, and print how many documents were written."""
    model = TimedStage(DeviceModel(ModelReference(tokenizer, "model")), "input_ids", BATCH)
    model.spans_file = spans
    stages = [
        JsonlReader(source, blocksize=BLOCK),
        Tokenize(tokenizer, max_chars=MAX_CHARS),
        model,
        JsonlWriter(output),
    ]
    result = Pipeline("accelerator-tokens", stages=stages).run(LocalExecutor(workers=2, gpus=1), progress="none")
    print(json.dumps({"documents": result.counts["written"]}))


if __name__ == "__main__":
    main(*sys.argv[1:5])
