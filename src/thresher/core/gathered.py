# SPDX-License-Identifier: Apache-2.0
"""What a stage gives on that holds records back: some of those that it got before, others not yet."""

from __future__ import annotations

from dataclasses import dataclass

from thresher.core.batch import DocumentBatch


@dataclass(frozen=True)
class Gathered:
    """Records that go on, each under the id of one that came in."""

    batch: DocumentBatch
    """The records; what was dropped or set aside is noted in it as usual."""
    merged: int = 0
    """Records that came in and are part of these now. What is neither here nor there is still held back."""
