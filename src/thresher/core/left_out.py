# SPDX-License-Identifier: Apache-2.0
"""Records that a stage took out of a batch, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thresher.core.batch import DocumentBatch
    from thresher.core.records import RecordIds


@dataclass(frozen=True)
class DroppedRows:
    """Records that a rule dropped from a batch."""

    batch: DocumentBatch
    """The records themselves, as they were when they were dropped."""
    rule: str
    """The rule that dropped them."""
    scores: Sequence[Any] | None = None
    """What the rule found, one value per record."""
    threshold: Any = None
    """What the rule allows."""


@dataclass(frozen=True)
class FailedRows:
    """Records that are set aside because a stage cannot work on them."""

    batch: DocumentBatch | None
    """The records, where they could be read at all."""
    error: str
    """The kind of failure, a short word such as `not-a-string`; failures are grouped by it."""
    messages: Sequence[str]
    """What is wrong, one text per record."""
    traceback: str = ""
    """Where a stage's own code raised."""
    attempts: int = 1
    """How often it was tried."""
    lines: Sequence[bytes] = ()
    """The raw bytes, for records that could not be read (then `batch` is `None`)."""
    ids: RecordIds | None = None
    """The ids of `lines`."""
    extra: dict[str, Any] = field(default_factory=dict)
    """More facts for the quarantine file."""
