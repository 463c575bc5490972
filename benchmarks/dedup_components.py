# SPDX-License-Identifier: Apache-2.0
"""The phase of a deduplication that one worker does alone: connected components of many edges, out of core.

The graph has twice as many documents as edges. Nine tenths of the edges lead to the first document of a group of eight,
the others anywhere before, so that they cross ranges. `--quick` takes a fiftieth.
"""

from __future__ import annotations

import resource
import time

import numpy as np
from harness import options, scratch
from tables import print_table, print_target, write_results

from thresher.stages.dedup.clustering.components import add_edges, components
from thresher.stages.dedup.clustering.exchange import Buckets, Exchange

_EDGES, _RANGE = 100_000_000, 512 * 1024
_AT_ONCE = 64 * 1024
_LEAST_PER_S = 500_000
_MOST_BYTES = 1_000_000_000


def main() -> None:
    chosen = options(__doc__, repeats=1)
    count = _EDGES // 50 if chosen.quick else _EDGES
    rows = []
    for edges in (count // 10, count):
        buckets = Buckets(2 * edges, _RANGE, str(scratch(f"dedup-components-{edges}")))
        given = _graph(buckets, edges)
        begin = time.process_time()
        components(given)
        cpu_s = time.process_time() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        buckets.remove()
        rows.append((edges, buckets.count, cpu_s, peak))
    shown = [
        [f"{edges:,}", f"{ranges}", f"{cpu_s:.1f}", f"{edges / cpu_s:,.0f}", f"{peak / 1e6:.0f}"]
        for edges, ranges, cpu_s, peak in rows
    ]
    print_table("Connected components", ["edges", "ranges", "CPU s", "edges per CPU s", "peak MB"], shown)
    edges, _, cpu_s, peak = rows[-1]
    per_s = edges / cpu_s
    print_target("edges per CPU second", f"at least {_LEAST_PER_S:,}", per_s, per_s >= _LEAST_PER_S)
    print_target("peak memory in GB", "at most 1", peak / 1e9, peak <= _MOST_BYTES)
    write_results("dedup_components", {"edges": edges, "cpu_s": cpu_s, "peak_bytes": peak})


def _graph(buckets: Buckets, edges: int) -> Exchange:
    dice = np.random.default_rng(1)
    made = buckets.exchange()
    for _ in range(edges // _AT_ONCE):
        nodes = dice.integers(1, buckets.total, _AT_ONCE).astype(np.uint64)
        anywhere = (dice.random(_AT_ONCE) * nodes).astype(np.uint64)
        firsts = np.where(dice.random(_AT_ONCE) < 0.1, anywhere, nodes - nodes % np.uint64(8))
        is_edge = firsts < nodes
        add_edges(made, np.stack((nodes[is_edge], firsts[is_edge]), axis=1))
    return made


if __name__ == "__main__":
    main()
