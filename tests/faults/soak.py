# SPDX-License-Identifier: Apache-2.0
"""`make soak`: thousands of random kills, and the tally of what they cost, which must be nothing.

Run after run is disturbed by SIGKILL of a worker, of all workers, of the zygote or of the driver at random moments,
resumed until it is finished, and compared with a run that nobody disturbed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults.disturbed import Scene, Tally
from tests.faults.storms import STORMED, storm

ROUND = 20
"""Kills between two lines of progress."""


def main() -> int:
    """Kill, resume, compare; 1 where anything was lost, repeated, torn or leaked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=2000, help="how many processes to kill (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=None, help="stop earlier, after so many minutes")
    parser.add_argument("--shape", action="append", choices=STORMED, help="disturb only such runs (default: all)")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was made is removed
    deadline = None if chosen.minutes is None else time.monotonic() + 60 * chosen.minutes
    killed: Counter[str] = Counter()
    tally = Tally()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        scene = Scene(Path(folder) / "scene")
        rounds = 0
        while killed.total() < chosen.kills and (deadline is None or time.monotonic() < deadline):
            kills = min(ROUND, chosen.kills - killed.total())
            who, wrong = storm(
                scene, Path(folder) / "storm", kills, chosen.seed * 1_000_003 + rounds, chosen.shape or STORMED
            )
            killed += who
            tally.add(wrong)
            rounds += 1
            sys.stderr.write(f"{killed.total():,} kills in {time.monotonic() - begin:.0f} s: {tally}\n")
    who_died = ", ".join(f"{count} x {victim}" for victim, count in sorted(killed.items()))
    sys.stdout.write(f"{killed.total():,} kills ({who_died})\n{tally}\n")
    return 0 if tally.is_clean() else 1


if __name__ == "__main__":
    sys.exit(main())
