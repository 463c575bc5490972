# SPDX-License-Identifier: Apache-2.0
"""Draws busy workers and finished tasks over time of a real run of `benchmarks/shapes.py`, from the log it left.

    python benchmarks/shapes.py --repeats 1 fivefold
    python docs/pictures/balancing.py benchmarks/.data/scratch/shape-fivefold.log > docs/pictures/balancing.svg

Nothing is invented: the figures are the ends and times of tasks, as the stages noted them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from thresher.simulate.chart import COLOURS, Panel, picture
from thresher.simulate.resources import Timeline

STAGES = ("read", "grows", "steady", "write")
DEVICES = 6
TOP_RATE = 60.0
BIN_S = 0.5


def main() -> None:
    """Print the picture."""
    log = Path(sys.argv[1])
    started_s = json.loads(Path(f"{log}.driver").read_text())["started_s"]
    lines = [line.split() for line in log.read_text().splitlines()]
    busy, ends = Timeline(len(STAGES), BIN_S), Timeline(len(STAGES), BIN_S)
    end_s = 0.0
    for place, at, _, inside in lines:
        at_s = float(at) - started_s
        busy.add(int(place), at_s - float(inside), at_s)
        ends.add(int(place), at_s - 1e-6, at_s, weight=1e6)
        end_s = max(end_s, at_s)
    areas = tuple(
        (STAGES[place], COLOURS[place - 1], tuple(rate / DEVICES for rate in busy.rates(place, end_s)))
        for place in (1, 2)
    )
    finished = tuple(rate / TOP_RATE for rate in ends.rates(len(STAGES) - 1, end_s))
    panels = [
        Panel(f"Workers inside the models, of {DEVICES} devices", str(DEVICES), str(DEVICES // 2), areas),
        Panel("Tasks finished in a second", f"{TOP_RATE:g}", f"{TOP_RATE / 2:g}", (("write", COLOURS[2], finished),)),
    ]
    facts = (
        "A stage becomes five times slower midway",
        f"{DEVICES} devices, two models, 60 ms each; from the middle on the first one takes 300 ms",
        "best possible: 50 tasks/s with 3 + 3 workers, then 16.7 tasks/s with 5 + 1",
    )
    sys.stdout.write(picture("Workers and rate over time of a run", facts, panels, end_s))


if __name__ == "__main__":
    main()
