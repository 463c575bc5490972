# SPDX-License-Identifier: Apache-2.0
"""What a rehearsed run would cost."""

from __future__ import annotations

import msgspec


class Cost(msgspec.Struct, frozen=True):
    """Money, in the unit that the price was given in."""

    per_node_hour: float  # the price
    total: float  # of the whole run
    per_tb: float  # for 10^12 bytes of input


def cost_of(wall_s: float, nodes: int, data_bytes: int, per_node_hour: float) -> Cost:
    """Every machine is paid from the first second to the last, whether it works or not."""
    total = wall_s / 3600 * nodes * per_node_hour
    return Cost(per_node_hour, total, total / (data_bytes / 10**12) if data_bytes else 0.0)
