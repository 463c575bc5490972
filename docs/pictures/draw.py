# SPDX-License-Identifier: Apache-2.0
"""Draws the live view of a real run as SVG, from its event log.

    python docs/pictures/draw.py RUN_FOLDER [SHARE] > docs/pictures/live-view.svg

SHARE says at which part of the run's time, 0.6 by default. Nothing is invented: the figures are the fold over the log.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.theme import Theme

from thresher.observe.event_log import decode_line, read_log
from thresher.observe.layout import STYLES, frame
from thresher.observe.metrics import Metrics
from thresher.observe.progress import RunInfo, Snapshot
from thresher.observe.terminal import to_text
from thresher.scheduler.model import RunSpec

WIDTH = 84


def snapshot_of(lines: list[bytes], share: float) -> tuple[str, Snapshot]:
    """The name of the pipeline, and the run at a share of its time."""
    plan = json.loads(lines[0])["start"]["plan"]
    spec = decode_line(lines[0]).item
    assert isinstance(spec, RunSpec)
    decoded = [decode_line(line) for line in lines[1:]]
    until = decoded[-1].t * share
    metrics = Metrics(plan["stages"], spec.ops)
    for _, t, item in decoded:
        if t > until:
            break
        assert not isinstance(item, RunSpec)
        metrics.update(t, item)
    return plan["name"], metrics.snapshot(until)


def main() -> None:
    """Print the picture."""
    folder = max((Path(sys.argv[1]) / "events").iterdir())
    share = float(sys.argv[2]) if len(sys.argv) > 2 else 0.6
    name, snapshot = snapshot_of(list(read_log(folder)), share)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), theme=Theme(STYLES), force_terminal=True)
    console.print(to_text(frame(RunInfo(name=name, executor="local"), snapshot, WIDTH)))
    sys.stdout.write(console.export_svg(title=f"thresher run {name}"))


if __name__ == "__main__":
    main()
