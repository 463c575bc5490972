# SPDX-License-Identifier: Apache-2.0
"""How fast each group of counts is on one core: texts of the corpus in a buffer, in batches of two megabytes.

The speed is text per second of CPU time of the process, so that other work on the machine disturbs it little. A group
that builds on the positions of words is measured with these known, as in a chain of rules; `positions` is their cost.
With `--group NAME` just that one (several times for several).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from corpus import corpus_folder
from tables import Spread, print_table, print_target, write_results

from thresher.kernels.build.cache import use_own_folder
from thresher.kernels.counts import COUNTS
from thresher.kernels.counts.text_counts import PADDING, Count, Rows, SharedCounts, Texts, load_group

MB = 10**6
BATCH_BYTES = 2 * MB
MOST_BYTES = 100 * MB
"""So much text is enough for a steady figure."""
ALONE = ("characters", "letters", "urls", "positions")
"""Groups that need no positions."""
PARAMETERS = {
    "top_ngram_characters": (2, 3, 4),
    "duplicate_ngram_characters": (5, 6, 7, 8, 9, 10),
    "gopher_top_characters": (2, 3, 4),
    "gopher_duplicate_characters": (5, 6, 7, 8, 9, 10),
    "short_lines": (30,),
    "long_lines": (200,),
}
"""The parameters that rules ask for; 0 where nothing is said."""
TARGETS = {"characters": 1000, "positions": 1000, "words": 500, "lines": 1000}
"""Megabytes a second that a group is meant to reach."""


class _Record(msgspec.Struct):
    text: str


def main() -> None:
    """Measure every group, round after round, and print the speeds."""
    chosen = _options()
    use_own_folder()
    texts = corpus_texts(corpus_folder(quick=chosen.quick))
    batches = _batches(texts)
    size = int((texts.ends - texts.starts).sum())
    print(f"  {len(texts.starts)} texts, {size / MB:.0f} MB, {len(batches)} batches")
    groups = chosen.group or [group for group in COUNTS if COUNTS[group]]
    for group in groups:  # compiled, and tables built, before anything is measured
        measured(texts, batches[:1], group)
    speeds: dict[str, list[float]] = {group: [] for group in groups}
    for _ in range(chosen.repeats):
        for group in groups:
            speeds[group].append(size / MB / measured(texts, batches, group))
    spreads = {group: Spread.of(values) for group, values in speeds.items()}
    rows = [[group, spread.show(0), str(TARGETS.get(group, "-"))] for group, spread in spreads.items()]
    print_table("text per second of one core, MB/s, median (lowest..highest)", ["group", "speed", "target"], rows)
    for group in TARGETS.keys() & spreads:
        median, target = spreads[group].median, TARGETS[group]
        print_target(f"the group {group}", f">= {target} MB/s", median, median >= target)
    write_results("kernels", {"bytes": size, "rounds": chosen.repeats, "megabytes_a_second": spreads})


def measured(texts: Texts, batches: Sequence[Rows], group: str) -> float:
    """Seconds of CPU time that a group takes for all batches."""
    compute, positions = load_group(group).compute, load_group("positions").compute
    counts = wanted(group)
    spent = 0.0
    for rows in batches:
        work = SharedCounts(texts)
        if group not in ALONE:
            positions(work, [], rows)
        started = time.process_time()
        compute(work, counts, rows)
        spent += time.process_time() - started
    return spent


def wanted(group: str) -> list[Count]:
    """Every count of a group, with the parameters that rules use."""
    return [(name, parameter) for name in COUNTS[group] for parameter in PARAMETERS.get(name, (0,))]


def corpus_texts(folder: Path) -> Texts:
    """Texts of a folder of JSON lines, in one buffer."""
    decoder = msgspec.json.Decoder(_Record)
    texts: list[bytes] = []
    size = 0
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            if size < MOST_BYTES:
                texts.append(decoder.decode(line).text.encode())
                size += len(texts[-1])
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    starts = np.concatenate([[0], ends[:-1]])
    return Texts(np.frombuffer(b"".join(texts) + bytes(PADDING), dtype=np.uint8), starts, ends)


def _batches(texts: Texts) -> list[Rows]:
    number = max(1, int(texts.ends[-1]) // BATCH_BYTES)
    return list(np.array_split(np.arange(len(texts.starts), dtype=np.int64), number))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little data, two rounds: does it work at all")
    parser.add_argument("--repeats", type=int, default=None, help="rounds (default 5, with --quick 2)")
    parser.add_argument("--group", action="append", choices=[group for group in COUNTS if COUNTS[group]])
    chosen = parser.parse_args()
    chosen.repeats = chosen.repeats or (2 if chosen.quick else 5)
    return chosen


if __name__ == "__main__":
    main()
