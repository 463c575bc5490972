# SPDX-License-Identifier: Apache-2.0
"""Stages of the fan-out pipeline that `prediction.py` predicts: one makes many batches of one, one runs alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from thresher import DocumentBatch, ProcessingStage

PIECES = 12


class Pieces(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Cuts a batch into a dozen small ones."""

    name = "pieces"
    fans_out = True

    def process(self, task: DocumentBatch) -> Iterator[DocumentBatch]:
        step = max(1, len(task) // PIECES)
        for start in range(0, len(task), step):
            yield task.take(list(range(start, min(start + step, len(task)))))


class Digest(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Works on whole batches, so that it is never fused with its neighbours."""

    name = "digest"
    row_wise = False

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["text"]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        digest = hashlib.sha256()
        for text in task.values("text"):
            for _ in range(8):
                digest.update(text.encode())
        self.count("digests")
        return task
