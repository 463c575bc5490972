# SPDX-License-Identifier: Apache-2.0
"""Large payloads from one worker to another: GB/s, as a share of a plain memcpy to shared memory whose pages exist, and
the shared memory that they take.

The producer hands out arrays that it wrote once, in its setup: writing them is not included. Included are encoding, the
copy to shared memory, the messages through the driver, and a consumer on a worker of its own that reads one byte of
every page. The rate is that of the second half of the payloads, when segments are recycled; the rate of all of them,
with their first, fresh pages, stands beside it. Rates per CPU second depend less on what else runs on the machine: the
slower of the two workers is what a pipeline is limited by where both have a core.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harness import Command, Measurement, compile_sources, interleave, options
from tables import Spread, print_table, print_target, ratios, write_results

MEGABYTES = (1, 4, 8, 16, 64, 100)
KINDS = {
    "array": "an array",
    "written": "an array that the consumer changes in place",
    "arrays": "a dict of lists of arrays",
    "items": "records of `bytes`",
    "table": "a table with a binary column",
}
LARGEST = MEGABYTES[-1]


def main() -> None:
    chosen = options(__doc__, repeats=5)
    total = 800 if chosen.quick else 4_000
    cases = [("array", size) for size in MEGABYTES] + [(kind, LARGEST) for kind in KINDS if kind != "array"]
    compile_sources()
    measured = interleave([_command(kind, size, total) for kind, size in cases], chosen.repeats)
    results = {}
    rows = []
    for kind, size in cases:
        found = _fold(measured[_label(kind, size)], size)
        results[_label(kind, size)] = found
        rows.append([KINDS[kind], str(size), *(spread.show(2) for spread in found.values())])
    header = ["payload", "MB", *next(iter(results.values()))]
    print_table("Payloads between two workers, median (min..max)", header, rows)
    for kind in KINDS:
        rate = results[_label(kind, LARGEST)]["GB/s"].median
        print_target(f"GB/s, {KINDS[kind]} of {LARGEST} MB", "at least 2, aim 5", rate, rate >= 2)
    write_results("large_payloads", {"bytes_per_run": total * 10**6, "results": results})


def _label(kind: str, size: int) -> str:
    return f"{kind} {size} MB"


def _command(kind: str, size: int, total: int) -> Command:
    script = Path(__file__).with_name("large_payloads_run.py")
    count = max(12, min(500, total // size))
    return Command(_label(kind, size), [sys.executable, script, kind, str(size), str(count)])


def _fold(runs: list[Measurement], size: int) -> dict[str, Spread]:
    found = [json.loads(run.stdout.splitlines()[-1]) for run in runs]
    steady = [run["steady_bytes_per_s"] for run in found]
    slower = [min(run["producer_bytes_per_cpu_s"], run["consumer_bytes_per_cpu_s"]) for run in found]
    return {
        "GB/s": Spread.of([rate / 1e9 for rate in steady]),
        "of memcpy": ratios(steady, [run["memcpy_bytes_per_s"] for run in found]),
        "GB/s, first included": Spread.of([run["bytes_per_s"] / 1e9 for run in found]),
        "GB per CPU s": Spread.of([rate / 1e9 for rate in slower]),
        "of memcpy, CPU": ratios(slower, [run["memcpy_bytes_per_cpu_s"] for run in found]),
        "peak shared memory, payloads": Spread.of([run["peak_shared_bytes"] / (size * 1e6) for run in found]),
    }


if __name__ == "__main__":
    main()
