# SPDX-License-Identifier: Apache-2.0
"""Find out what else the machine is doing, so that a measurement taken beside other work can say so."""

from __future__ import annotations

import os
import time
from pathlib import Path

# How long a measurement waits for others to finish before it starts anyway.
PATIENCE_S = float(os.environ.get("THRESHER_BENCH_PATIENCE_S", "10"))
_LOOK_S = 0.3
_QUIET_CORES = 0.2


def busy_cpu_s() -> float:
    """CPU seconds that all processes of the machine have used since its start."""
    fields = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq = fields[:7]
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def wait_for_quiet() -> None:
    """Return once the machine is nearly idle, or when patience ends."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        before, started = busy_cpu_s(), time.monotonic()
        time.sleep(_LOOK_S)
        if (busy_cpu_s() - before) / (time.monotonic() - started) < _QUIET_CORES:
            return
