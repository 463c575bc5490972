# SPDX-License-Identifier: Apache-2.0
"""Draws the memory of all processes over time of real runs, from their event logs; one diagram for each run.

    python benchmarks/promise.py --quick
    cd benchmarks
    python promise_run.py "skewed sizes" .data/promise-skewed-sizes-quick /tmp/skewed 1GB
    python promise_run.py "leaking stage" .data/promise-leaking-stage-quick /tmp/leaking 1GB
    cd ..
    python docs/pictures/memory.py /tmp/skewed/_thresher /tmp/leaking/_thresher > docs/pictures/memory.svg

Nothing is invented: the figures are what the driver measured, which is what its decisions go by.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from thresher.core.arguments.sizes import show_size
from thresher.observe.event_log import decode_line, read_log
from thresher.scheduler.events import MemorySample
from thresher.simulate.chart import COLOURS, Panel, picture

STEP_S = 0.1


class Run:
    """The memory of a run, from its log."""

    def __init__(self, folder: Path) -> None:
        lines = list(read_log(max((folder / "events").iterdir())))
        self.name: str = json.loads(lines[0])["start"]["plan"]["name"]
        decoded = [decode_line(line) for line in lines[1:]]
        self.samples = [(t, item) for _, t, item in decoded if isinstance(item, MemorySample)]
        self.end_s = decoded[-1].t
        self.limit = max(sample.limit_bytes for _, sample in self.samples)
        self.peak = max(sample.used_bytes for _, sample in self.samples)

    def panel(self, colour: str, end_s: float) -> Panel:
        """A diagram whose upper end is the limit."""
        heights = []
        left = list(self.samples)
        used = 0
        for step in range(int(end_s / STEP_S) + 1):
            while left and left[0][0] <= step * STEP_S:
                used = left.pop(0)[1].used_bytes
            heights.append(used / self.limit if step * STEP_S <= self.end_s else 0.0)
        title = f"{self.name}: memory of all processes, at most {show_size(self.peak)}"
        areas = (("driver, workers and what is between them", colour, tuple(heights)),)
        return Panel(title, show_size(self.limit), show_size(self.limit / 2), areas)


def main() -> None:
    """Print the picture."""
    runs = [Run(Path(folder)) for folder in sys.argv[1:]]
    end_s = max(run.end_s for run in runs)
    panels = [run.panel(colour, end_s) for run, colour in zip(runs, COLOURS, strict=False)]
    facts = (
        "Memory over time, under a limit",
        "the upper end of each diagram is the limit of the run",
        "as the driver measures it: PSS of all processes, and shared memory once",
    )
    sys.stdout.write(picture("Memory over time of runs near their limits", facts, panels, end_s))


if __name__ == "__main__":
    main()
