# SPDX-License-Identifier: Apache-2.0
"""A stage for `resume.py`: it leaves a file when it is called for the first time."""

from __future__ import annotations

import contextlib
import os

from thresher import DocumentBatch, ProcessingStage


class Mark(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Passes everything on."""

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        """Say once that work has begun."""
        with contextlib.suppress(FileExistsError):
            os.close(os.open(os.environ["FIRST_TASK_MARK"], os.O_CREAT | os.O_EXCL))
        return batch
