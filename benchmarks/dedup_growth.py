# SPDX-License-Identifier: Apache-2.0
"""How time and memory of deduplication grow: 1, 4 and 16 times the data at the same memory limit, and hostile inputs.

The larger inputs are near-duplicates: copies of the corpus in which some words of each document are changed. Time may
grow as n log n, and memory must stay below the limit. With verification each document is compared with up to two others
for each band, so here, where it has ever more versions, the time grows faster: it is shown and not judged. Core-hours
per TB follow from the largest input. Hostile inputs: a million identical documents, and two documents of 200 MB that
differ in one character.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path

from corpus import DATA, corpus_folder, folder_bytes
from harness import THRESHER, Command, Measurement, compile_sources, interleave, options, remove, scratch, warm_cache
from tables import Spread, print_table, print_target, write_results

METHODS = {"exact": ("exact",), "fuzzy": ("fuzzy",), "verified": ("fuzzy", "threshold=0.8", "verify=true")}
TIMES = (1, 4, 16)
MEMORY, MEMORY_BYTES = "1GB", 1_000_000_000
_SLACK = 1.25  # for what differs between runs
_WORDS_CHANGED = 0.03


def main() -> None:
    chosen = options(__doc__, repeats=1)
    sources = {times: near_duplicates(chosen.quick, times) for times in TIMES}
    hostile = {name: _hostile(name, lines) for name, lines in _hostile_inputs(chosen.quick).items()}
    compile_sources()
    for source in [*sources.values(), *hostile.values()]:
        warm_cache(source)
    inputs = {f"{times}x": source for times, source in sources.items()} | hostile
    commands = {(method, name): _command(method, name, inputs[name]) for method in METHODS for name in inputs}
    measured = interleave(list(commands.values()), chosen.repeats, memory=True)
    runs = {key: measured[command.label] for key, command in commands.items()}
    sizes = {name: folder_bytes(source) for name, source in inputs.items()}
    rows = [
        [
            commands[method, name].label,
            f"{sizes[name] / 1e6:.0f}",
            Spread.of([one.wall_s for one in some]).show(),
            Spread.of([sizes[name] / 1e6 / one.wall_s for one in some]).show(0),
            Spread.of([one.cpu_s for one in some]).show(),
            Spread.of([one.peak_total_bytes / 1e6 for one in some]).show(0),
            f"{_core_hours(some, sizes[name]):.1f}",
        ]
        for (method, name), some in runs.items()
    ]
    header = ["", "MB", "wall s", "MB/s", "CPU s", "peak MB", "core-hours per TB"]
    print_table(f"Deduplication with two workers and --memory {MEMORY}, median (min..max)", header, rows)
    growth = {method: _growth(method, sizes, runs) for method in ("exact", "fuzzy")}
    peak = max(one.peak_total_bytes for some in runs.values() for one in some)
    print_target("largest peak over the memory limit", "at most 1", peak / MEMORY_BYTES, peak <= MEMORY_BYTES)
    figures = {
        f"{method}, {name}": {"wall_s": [one.wall_s for one in some], "cpu_s": [one.cpu_s for one in some]}
        for (method, name), some in runs.items()
    }
    write_results("dedup_growth", {"runs": figures, "bytes": sizes, "cpu_over_n_log_n": growth})


def _command(method: str, name: str, source: Path) -> Command:
    output = scratch(f"dedup-growth-{method}-{name.replace(' ', '-')}")
    kind, *arguments = METHODS[method]
    argv: list[str | Path] = [THRESHER, "dedup", kind, source, output, *arguments, "--workers", "2"]
    return Command(f"{method}, {name}", [*argv, "--memory", MEMORY, "--quiet"], output)


def _core_hours(runs: list[Measurement], nbytes: int) -> float:
    return Spread.of([one.cpu_s for one in runs]).median / 3600 / nbytes * 1e12


def _growth(method: str, sizes: dict[str, int], runs: dict[tuple[str, str], list[Measurement]]) -> dict[int, float]:
    """Compare the CPU time of the larger inputs with n log n from the smallest."""
    cpu = {times: Spread.of([one.cpu_s for one in runs[method, f"{times}x"]]).median for times in TIMES}
    found = {}
    for times in TIMES[1:]:
        larger, smallest = sizes[f"{times}x"], sizes["1x"]
        found[times] = cpu[times] / cpu[1] / (larger * math.log(larger) / (smallest * math.log(smallest)))
        what = f"{method}: CPU time of {times}x the data, compared with n log n"
        print_target(what, f"at most {_SLACK}", found[times], found[times] <= _SLACK)
    return found


# -- inputs ------------------------------------------------------------------------------------------------------------


def near_duplicates(quick: bool, times: int) -> Path:
    """The corpus, and copies of it in which some words are changed; built if it is not there."""
    source = corpus_folder(quick)
    if times == 1:
        return source
    folder = DATA / f"{source.name}-near-x{times}"
    if folder.is_dir():
        return folder
    unfinished = folder.with_name(f"{folder.name}-unfinished")
    remove(unfinished)
    unfinished.mkdir()
    for file in sorted(source.glob("*.jsonl")):
        for number in range(times):
            with file.open() as lines, (unfinished / f"copy{number:02}-{file.name}").open("w") as output:
                output.writelines(_changed(lines, random.Random(number)) if number else lines)
    unfinished.rename(folder)
    return folder


def _changed(lines: Iterator[str], dice: random.Random) -> Iterator[str]:
    for line in lines:
        document = json.loads(line)
        words = document["text"].split(" ")
        for _ in range(math.ceil(len(words) * _WORDS_CHANGED)):
            words[dice.randrange(len(words))] = f"w{dice.randrange(10**9)}"
        document["text"] = " ".join(words)
        yield json.dumps(document, ensure_ascii=False) + "\n"


def _hostile_inputs(quick: bool) -> dict[str, Iterator[str]]:
    identical, size = (100_000, 20_000_000) if quick else (1_000_000, 200_000_000)
    same = json.dumps({"text": "the same short text, again and again, in a million documents"}) + "\n"
    large = "".join(f"{number * 7919 % 1_000_003} " for number in range(size // 7))
    return {
        f"{identical:,} identical": (same for _ in range(identical)),
        f"two of {size // 10**6} MB": (
            json.dumps({"text": text}) + "\n" for text in (large, f"{large[:-9]}#{large[-8:]}")
        ),
    }


def _hostile(name: str, lines: Iterator[str]) -> Path:
    folder = scratch(f"dedup-hostile-{name.replace(' ', '-')}")
    folder.mkdir()
    with (folder / "0.jsonl").open("w") as output:
        output.writelines(lines)
    return folder


if __name__ == "__main__":
    main()
