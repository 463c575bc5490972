# SPDX-License-Identifier: Apache-2.0
"""Documents a second that a stage asks a slow server about, with 1,000 requests in flight and one after the other; the
peak memory of the run, which must stay below its limit; and a second run that finds all answers stored.

The server takes a second for each answer, so one request after the other is one document a second, and 1,000 in flight
at most 1,000. It runs on the same machine and shares its cores.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from endpoint_run import LIMIT_BYTES
from harness import Command, compile_sources, interleave, options, scratch
from tables import Spread, print_table, print_target, ratios, write_results

MANY, MORE, ONE, STORED = "1,000 in flight", "1,000 in flight, 3 x the documents", "one after the other", "all stored"
DELAY_S = 1.0


def main() -> None:
    chosen = options(__doc__, repeats=5)
    in_flight, documents, alone = (100, 500, 5) if chosen.quick else (1000, 10_000, 20)
    shapes = {
        MANY: (documents, in_flight, DELAY_S),
        MORE: (3 * documents, in_flight, DELAY_S),
        ONE: (alone, 1, DELAY_S),
        STORED: (documents, in_flight, 0.0),
    }
    script = Path(__file__).with_name("endpoint_run.py")
    commands = []
    for number, (label, shape) in enumerate(shapes.items()):
        folder = scratch(f"endpoint-{number}")
        more = ["stored"] if label == STORED else []
        commands.append(Command(label, [sys.executable, script, *map(str, shape), folder, *more], folder))
    compile_sources()
    measured = interleave(commands, chosen.repeats)
    runs = {label: [json.loads(one.stdout.splitlines()[-1]) for one in measured[label]] for label in shapes}
    rates = {label: [run["documents"] / run["run_s"] for run in runs[label]] for label in shapes}
    peaks = {label: [run["peak_memory_bytes"] / 1e6 for run in runs[label]] for label in shapes}
    rows = [
        [
            label,
            f"{shapes[label][0]:,}",
            Spread.of(rates[label]).show(1),
            ratios(rates[label], rates[ONE]).show(0),
            str(max(run["most_in_flight"] for run in runs[label])),
            Spread.of(peaks[label]).show(0),
        ]
        for label in shapes
    ]
    header = ["", "documents", "documents/s", "times one after the other", "most in flight", "peak MB of the run"]
    print_table(f"A server that takes {DELAY_S:g} s for an answer; median (min..max)", header, rows)
    faster = ratios(rates[MANY], rates[ONE])
    target = 0.5 * in_flight
    print_target("documents/s over one after the other", f"at least {target:g}", faster.median, faster.median >= target)
    reached = min(run["most_in_flight"] for run in runs[MANY])
    print_target("requests in flight", f"{in_flight}", reached, reached == in_flight)
    limit = LIMIT_BYTES / 1e6
    peak = max(peaks[MORE])
    print_target("peak memory of the run, server left out, MB", f"at most {limit:g}", peak, peak <= limit)
    write_results("endpoint", {"in_flight": in_flight, "runs": runs})


if __name__ == "__main__":
    main()
