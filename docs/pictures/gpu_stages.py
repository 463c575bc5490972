# SPDX-License-Identifier: Apache-2.0
"""Stages of `gpus.yaml` and `classify.yaml`, rehearsed for pictures and never run: they only say what they need."""

from __future__ import annotations

from thresher import DocumentBatch, ProcessingStage, Resources


class Embed(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A small model: four workers share a GPU."""

    resources = Resources(gpus=0.25)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


class Judge(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A large model: two whole GPUs for each worker."""

    resources = Resources(gpus=2)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


class Classify(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A model of medium size: two workers share a GPU."""

    resources = Resources(gpus=0.5)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task
