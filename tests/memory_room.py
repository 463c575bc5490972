# SPDX-License-Identifier: Apache-2.0
"""Limits for runs whose driver is the process that runs the tests, which is of any size by then."""

from __future__ import annotations

import os

from thresher.runtime.memory.usage import proportional_bytes

PER_BYTE = 2
"""What a byte of the driver adds to the least memory of a plan (1.6), and room for it to grow during a test."""


def memory_beside_this_process(nbytes: int) -> int:
    """The limit of a run that leaves `nbytes` to everything but the process that it is started from."""
    return nbytes + PER_BYTE * (proportional_bytes(os.getpid()) or 0)
