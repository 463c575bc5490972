# SPDX-License-Identifier: Apache-2.0
"""How fast the corpus checks are on one core: decontamination against its plain-Python definition, blocklists.

Speeds are per second of CPU time of the process, so that other work on the machine disturbs them little. Texts are of
the benchmark corpus; evaluation sets and lists are made, of a million entries.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from corpus import corpus_folder
from kernels import MB, corpus_texts
from tables import Spread, print_table, write_results

from thresher.kernels.build.cache import use_own_folder
from thresher.kernels.counts.text_counts import Texts
from thresher.stages.text import index_file
from thresher.stages.text.decontamination import normalized_words
from thresher.stages.text.rules.web.url_blocklist import UrlBlocklistFilter

ENTRIES = 1_000_000
WORDS = 13
PLAIN_BYTES = 4 * MB
"""The plain definition gets so much."""


def main() -> None:
    """Measure and print."""
    chosen = _options()
    use_own_folder()
    texts = corpus_texts(corpus_folder(chosen.quick))
    speeds: dict[str, list[float]] = {}
    for _ in range(chosen.repeats):
        for name, speed in (*_decontamination(texts), *_blocklist()):
            speeds.setdefault(name, []).append(speed)
    spreads = {name: Spread.of(values) for name, values in speeds.items()}
    rows = [[name, spread.show(1)] for name, spread in spreads.items()]
    print_table("one core, median (lowest..highest)", ["what", "speed"], rows)
    write_results("corpus_checks", {"rounds": chosen.repeats, "speeds": spreads})


def _decontamination(texts: Texts) -> list[tuple[str, float]]:
    """Megabytes of text per second, by the kernel with two sizes of index, and by the plain definition."""
    from thresher.kernels.edits.decontamination import fold_table, look_up, make_table

    folds, size = fold_table(), int(texts.ends[-1]) / MB
    found = []
    for entries in (ENTRIES, ENTRIES // 100):
        keys = np.random.default_rng(1).integers(1, 2**63, entries, dtype=np.uint64)
        table = make_table(keys, np.zeros(entries, dtype=np.uint16))
        seconds = _seconds(partial(look_up, texts, folds, WORDS, table))
        found.append((f"decontamination, {entries:,} runs of words in the index, MB/s", size / seconds))
    few = int(np.searchsorted(texts.ends, PLAIN_BYTES)) + 1
    plain = [
        texts.data[start:end].tobytes().decode()
        for start, end in zip(texts.starts[:few], texts.ends[:few], strict=True)
    ]
    seconds = _seconds(lambda: [_plain_matches(text, frozenset()) for text in plain])
    return [*found, ("decontamination in plain Python, MB/s", int(texts.ends[few - 1]) / MB / seconds)]


def _plain_matches(text: str, known: frozenset[tuple[str, ...]]) -> int:
    words = normalized_words(text)
    return sum(tuple(words[start : start + WORDS]) in known for start in range(len(words) - WORDS + 1))


def _blocklist() -> list[tuple[str, float]]:
    """Entries per second when the list is read, and addresses per second that are looked up."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "domains"
        path.write_text("".join(f"site{number}.example\n" for number in range(ENTRIES)))
        index_file.cache_folder = lambda: folder
        stage = UrlBlocklistFilter(domains=str(path))
        reading = _seconds(stage.setup_on_node)
        stage.setup()
        urls = [f"https://www.site{number}.example/path/{number}" for number in range(0, 4 * ENTRIES, 80)]
        looking = _seconds(lambda: stage.reasons(urls))
    return [
        ("blocklist, entries read, 1000/s", ENTRIES / reading / 1000),
        ("addresses, 1000/s", len(urls) / looking / 1000),
    ]


def _seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little data, two rounds: does it work at all")
    parser.add_argument("--repeats", type=int, default=None, help="rounds (default 5, with --quick 2)")
    chosen = parser.parse_args()
    chosen.repeats = chosen.repeats or (2 if chosen.quick else 5)
    return chosen


if __name__ == "__main__":
    main()
