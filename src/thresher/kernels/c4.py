# SPDX-License-Identifier: Apache-2.0
"""Counts for the C4 rules: long lines."""

from __future__ import annotations

from collections.abc import Sequence

from thresher.kernels.counts import Count, Rows, Work
from thresher.kernels.line_lengths import lines_from


def compute(work: Work, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """Long lines for each length that is wanted."""
    return {(name, length): lines_from(work, rows, length) for name, length in wanted}
