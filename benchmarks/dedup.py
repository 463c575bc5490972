# SPDX-License-Identifier: Apache-2.0
"""Exact and fuzzy deduplication (JSON lines to JSON lines, two workers, with start-up) against other tools on CPUs.

Fuzzy: shingles of five words, 20 bands of 13 values, everywhere. A tool that is too slow gets an eighth of the corpus,
and its time is scaled by bytes, with its start-up taken off before: what it takes for a few documents. Other tools run
once. Then the recall of each tool on documents with known duplicates: a pair counts as found if one of both is removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import peers
import zstandard
from corpus import SOURCE_TEXT, corpus_folder, folder_bytes
from harness import THRESHER, Command, Measurement, compile_sources, interleave, options, run_once, scratch, warm_cache
from tables import Spread, print_table, print_target, write_results

PARTS = 8
LEAST = {
    ("exact", peers.DATATROVE_DEDUP.name): 8,
    ("exact", peers.DATA_JUICER.name): 30,
    ("fuzzy", peers.DATA_JUICER.name): 40,
    ("fuzzy", peers.TEXT_DEDUP.name): 40,
    ("fuzzy", peers.DATATROVE_DEDUP.name): 80,
    ("fuzzy", peers.RENSA.name): 5,
}
"""How many times as fast as a tool each method should be."""
BANDS = ("word_ngrams=5", "num_bands=20", "minhashes_per_band=13")


def main() -> None:
    chosen = options(__doc__, repeats=3)
    source = corpus_folder(chosen.quick)
    part = _part_of(source)
    compile_sources()
    warm_cache(source)
    ours = {method: dedup(method, source, *(BANDS if method == "fuzzy" else ())) for method in ("exact", "fuzzy")}
    interleave(list(ours.values()), 1)  # compiles, where nothing is compiled yet
    measured = interleave(list(ours.values()), chosen.repeats, memory=True)
    results = {}
    for method, command in ours.items():
        results[method] = _compare(method, measured[command.label], source, part)
    gold = SOURCE_TEXT.parent / "dedup"
    recall = _recalls(gold) if gold.is_dir() else {}
    write_results("dedup", {"bytes": folder_bytes(source), "times": results, "recall": recall})


def dedup(method: str, source: Path, *arguments: str, name: str = "") -> Command:
    """A run of ours, as a user types it."""
    output = scratch(f"dedup-{method}{name}")
    argv: list[str | Path] = [THRESHER, "dedup", method, source, output, *arguments, "--workers", "2", "--quiet"]
    return Command(f"thresher, {method}{name}", argv, output)


def _part_of(source: Path) -> Path:
    """An eighth of the corpus: some of its files."""
    folder = scratch("dedup-part")
    folder.mkdir()
    files = sorted(source.glob("*.jsonl"))
    for file in files[: max(1, len(files) // PARTS)]:
        (folder / file.name).hardlink_to(file)
    return folder


def _compare(method: str, own: list[Measurement], source: Path, part: Path) -> dict[str, dict[str, float]]:
    """Run the others, and print how many times as fast ours is."""
    nbytes = folder_bytes(source)
    wall, cpu = (Spread.of(values) for values in ([one.wall_s for one in own], [one.cpu_s for one in own]))
    peak = max(one.peak_pss_bytes for one in own) / 1e6
    rows = [
        [f"thresher, {method}", wall.show(), f"{cpu.median:.1f}", f"{nbytes / 1e6 / wall.median:.0f}", f"{peak:.0f}"]
    ]
    found = {"thresher": {"wall_s": wall.median, "cpu_s": cpu.median}}
    for peer in [peer for peer, _ in _commands(method, part) if peers.available(peer)]:
        title, wall_s, cpu_s, peak = _of_peer(method, peer, source, part)
        found[peer.name] = {"wall_s": wall_s, "cpu_s": cpu_s}
        rows.append([title, f"{wall_s:.1f}", f"{cpu_s:.1f}", f"{nbytes / 1e6 / wall_s:.1f}", f"{peak:.0f}"])
    print_table(f"{method} deduplication of {nbytes / 1e6:.0f} MB", ["", "wall s", "CPU s", "MB/s", "peak MB"], rows)
    for name, least in ((name, least) for (one, name), least in LEAST.items() if one == method and name in found):
        ratio, cpu_ratio = found[name]["wall_s"] / wall.median, found[name]["cpu_s"] / cpu.median
        print_target(f"{method}: times as fast as {name}", f"at least {least}", ratio, ratio >= least)
        print(f"    (CPU seconds of it over ours: {cpu_ratio:.1f})")
    return found


def _commands(method: str, source: Path) -> list[tuple[peers.Peer, Command]]:
    return peers.deduplications(method, source, lambda name: scratch(f"dedup-{method}-{name}"))


def _of_peer(method: str, peer: peers.Peer, source: Path, part: Path) -> tuple[str, float, float, float]:
    """Return how a tool is called in tables, its wall and CPU time for the whole corpus, and its peak memory in MB."""
    is_fast = method == "exact" or peer is peers.RENSA
    command = dict(_commands(method, source if is_fast else part))[peer]
    measured = run_once(command, memory=True)
    peak = measured.peak_pss_bytes / 1e6
    if is_fast:
        return peer.title, measured.wall_s, measured.cpu_s, peak
    start = run_once(dict(_commands(method, _few(source)))[peer])
    scale = folder_bytes(source) / folder_bytes(part)
    wall_s, cpu_s = (
        before + scale * (all_of_it - before)
        for before, all_of_it in ((start.wall_s, measured.wall_s), (start.cpu_s, measured.cpu_s))
    )
    return f"{peer.title}, scaled", wall_s, cpu_s, peak


def _few(source: Path) -> Path:
    """Two files of a few documents."""
    folder = scratch("dedup-few")
    folder.mkdir()
    for file in sorted(source.glob("*.jsonl"))[:2]:
        with file.open("rb") as lines:
            (folder / file.name).write_bytes(b"".join(islice(lines, 50)))
    return folder


# -- recall ------------------------------------------------------------------------------------------------------------


def _lines(path: Path) -> list[dict[str, object]]:
    content = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read()
    return [json.loads(line) for line in content.splitlines()]


def _recalls(gold: Path) -> dict[str, dict[str, float]]:
    """Measure which of the known pairs each tool finds."""
    folder = scratch("dedup-gold")
    folder.mkdir()
    documents, pairs = _lines(gold / "docs.jsonl.zst"), _lines(gold / "pairs.jsonl.zst")
    (folder / "docs.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    ours = dedup("fuzzy", folder, *BANDS, name="-gold")
    commands = [(ours.label, ours)]
    for peer, command in peers.deduplications("fuzzy", folder, lambda name: scratch(f"dedup-gold-{name}")):
        if peers.available(peer):
            commands.append((peer.title, command))
    found: dict[str, dict[str, float]] = {}
    for label, command in commands:
        run_once(command)
        assert command.output is not None
        kept = set(_kept_ids(command.output))
        found[label] = {"kept": len(kept)}
        for least in (0.9, 0.8):
            wanted = [pair for pair in pairs if float(str(pair["word5"])) >= least]
            gone = sum(pair["a"] not in kept or pair["b"] not in kept for pair in wanted)
            found[label][f"recall at {least}"] = gone / len(wanted)
    rows = [
        [label, f"{one['kept']:.0f}", *(f"{one[f'recall at {least}']:.2%}" for least in (0.9, 0.8))]
        for label, one in found.items()
    ]
    print_table("known pairs of documents that were found", ["", "kept", "similarity >= 0.9", ">= 0.8"], rows)
    own = found[ours.label]
    best = max((one["recall at 0.9"] for label, one in found.items() if label != ours.label), default=0.0)
    print_target(
        "recall at 0.9 over the best of the others", "at least 0.999", own["recall at 0.9"] / (best or 1), True
    )
    return found


def _kept_ids(output: Path) -> Iterable[str]:
    """The ids of the documents that a tool has written."""
    aside = ("_thresher", "_logs", "events_")  # what tools keep besides documents
    files = [path for path in output.rglob("*.jsonl") if not any(name in str(path) for name in aside)]
    if not files:  # text-dedup writes a data set of its own kind
        import pyarrow as pa

        for path in (output / "kept").glob("*.arrow"):
            yield from pa.ipc.open_stream(path).read_all()["id"].to_pylist()
    for path in files:
        for line in path.read_text().splitlines():
            document = json.loads(line)
            yield str(document["id"])


if __name__ == "__main__":
    main()
