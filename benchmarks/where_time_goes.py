# SPDX-License-Identifier: Apache-2.0
"""Measure where the time goes when the 22 English rules filter JSON lines: one process, one core, part by part.

Seconds are CPU time of the thread, so that other work on the machine disturbs them little; megabytes are those of the
input. A group of counts is worked out when the first rule needs it, for the documents that are left. The second table
has the same bytes packed and unpacked, and as Parquet. On the full corpus both tables are put into docs/speed.md.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from corpus import corpus_folder
from harness import RECIPES, ROOT, options, scratch
from tables import Spread, print_table, write_results

from thresher.core.documents.batch import DocumentBatch
from thresher.core.documents.records import RawLines, RecordIds
from thresher.core.recipes.recipe import load_recipe
from thresher.core.scores import JudgingStage
from thresher.core.source import ReadContext
from thresher.core.task import RawChunk
from thresher.kernels.build.cache import use_own_folder
from thresher.kernels.counts import COUNTS, text_counts
from thresher.kernels.counts.text_counts import Count, CountGroup, Rows, SharedCounts
from thresher.stages.io.compression.content import Content
from thresher.stages.io.compression.unpack import unpack
from thresher.stages.io.jsonl import json_lines
from thresher.stages.io.jsonl.compressed_writer import COMPRESSIONS, ZSTD_LEVEL
from thresher.stages.io.jsonl.lines import record_spans
from thresher.stages.io.jsonl.reader import JsonlReader
from thresher.stages.io.jsonl.writer import JsonlWriter
from thresher.stages.io.parquet.pieces import piece_table
from thresher.stages.io.parquet.reader import ParquetReader
from thresher.stages.io.parquet.writer import ParquetWriter

MB = 10**6
READING, LINES, UTF8, JSON = "reading", "finding lines", "checking UTF-8", "checking JSON, taking the texts"
RULES, GATHERING, WRITING = "rules without kernels", "gathering kept lines", "writing, hashing, syncing"
KERNEL = "kernel: "
PAGE = ROOT / "docs" / "speed.md"
PACKED_BYTES = 20 * MB
"""So much is packed and unpacked: some formats are slow."""


class Stopwatch:
    """CPU seconds by the name of a part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what happens inside to a part."""
        started = time.thread_time()
        try:
            yield
        finally:
            self.seconds[name] += time.thread_time() - started


class TimedGroup:
    """A group of counts, its time counted to it and not to the rules."""

    def __init__(self, name: str, group: CountGroup) -> None:
        self.name, self.group = name, group
        self.watch = Stopwatch()

    def compute(self, work: SharedCounts, wanted: Sequence[Count], rows: Rows) -> Any:
        """Compute the counts of the group."""
        with self.watch.part(KERNEL + self.name), self.watch.part(RULES + "-"):
            return self.group.compute(work, wanted, rows)


def main() -> None:
    chosen = options(__doc__, repeats=5)
    use_own_folder()
    source = corpus_folder(chosen.quick)
    files = sorted(source.glob("*.jsonl"))
    size = sum(path.stat().st_size for path in files)
    timed = _timed_groups()
    _filtered(files[:1], timed)  # compiled or loaded, and files in memory, before anything is measured
    for path in files:
        path.read_bytes()
    rounds = [_filtered(files, timed) for _ in range(chosen.repeats)]
    parts = _report_parts(rounds, size)
    formats = _report_formats(b"".join(path.read_bytes() for path in files)[:PACKED_BYTES], chosen.repeats)
    write_results("where_time_goes", {"bytes": size, "seconds": parts, "formats_mb_a_second": formats})


def _timed_groups() -> list[TimedGroup]:
    """Put a stopwatch around every group that rules may ask for."""
    timed = []
    for name, counts in COUNTS.items():
        if counts:
            group = TimedGroup(name, text_counts.load_group(name))
            text_counts._LOADED[name] = group
            timed.append(group)
    return timed


def _filtered(files: list[Path], timed: list[TimedGroup]) -> dict[str, float]:
    """Seconds of each part for all files."""
    watch = Stopwatch()
    for group in timed:
        group.watch = watch
    output = scratch("where-time-goes.jsonl")
    recipe = load_recipe(RECIPES / "english_22.yaml", {"input_path": [str(path) for path in files], "output_path": "x"})
    reader, *rules, writer = recipe.stages
    judges = [rule for rule in rules if isinstance(rule, JudgingStage)]
    judges[0].beside = tuple(judges[1:])  # as a worker does: it asks all rules in one go
    assert isinstance(reader, JsonlReader)
    assert isinstance(writer, JsonlWriter)
    for rule in rules:
        rule.setup(None)
    lines = writer.open_writer(str(output))._lines
    for unit in reader.list_units():
        for chunk in _timed(reader.read(unit, ReadContext()), watch, READING):
            batch = _parsed(chunk.task, watch)
            with watch.part(RULES):
                *_, last = judges[0].verdicts(batch)
                raw = batch.take(last.left).raw_lines
            assert raw is not None
            with watch.part(GATHERING):
                text, lengths = raw.blob(), raw.ends - raw.starts + 1
            with watch.part(WRITING):
                lines.write(text, lengths)
    with watch.part(WRITING):
        lines.close()
    output.unlink()
    watch.seconds[RULES] -= watch.seconds.pop(RULES + "-")
    return dict(watch.seconds)


def _timed(items: Iterator[Any], watch: Stopwatch, part: str) -> Iterator[Any]:
    while True:
        with watch.part(part):
            item = next(items, None)
        if item is None:
            return
        yield item


def _parsed(chunk: RawChunk, watch: Stopwatch) -> DocumentBatch:
    """Do what `parse_chunk` does for lines that are all good, in parts."""
    view = memoryview(chunk.data)
    with watch.part(LINES):
        starts, ends = record_spans(view)
    with watch.part(UTF8):
        assert json_lines.is_utf8(view)
    with watch.part(JSON):
        doubtful, found = json_lines.check_lines(view, starts, ends, find_texts=True)
    assert not len(doubtful)
    ids = RecordIds((chunk.source,), chunk.offset + starts)
    return DocumentBatch.from_lines(RawLines(chunk.data, starts, ends, found), ids)


def _report_parts(rounds: list[dict[str, float]], size: int) -> dict[str, Spread]:
    total = "all parts"
    for seconds in rounds:
        seconds[total] = sum(seconds.values())
    parts = {part: Spread.of([seconds[part] for seconds in rounds]) for part in rounds[0]}
    whole = parts[total].median
    order = [READING, LINES, UTF8, JSON, *(part for part in parts if part.startswith(KERNEL))]
    order += [RULES, GATHERING, WRITING, total]
    rows = [
        [part, parts[part].show(3), f"{size / MB / parts[part].median:,.0f}", f"{parts[part].median / whole:.1%}"]
        for part in order
        if part in parts
    ]
    title = f"{size / MB:.0f} MB of JSON lines through the 22 English rules, one core, median (min..max)"
    header = ["part", "CPU s", "MB/s", "share"]
    print_table(title, header, rows)
    _into_page(header, rows)
    return parts


def _into_page(header: list[str], rows: list[list[str]]) -> None:
    """Put a table in the place of the one with the same header in the page."""
    if "--quick" in sys.argv:
        return
    first = f"| {' | '.join(header)} |"
    before, table, behind = PAGE.read_text(encoding="utf-8").partition(first + "\n")
    if not table:
        raise SystemExit(f"{PAGE} has no table that begins with: {first}")
    rest = behind[behind.index("\n\n") :]
    lines = [first, "|" + "---|" * len(header), *(f"| {' | '.join(row)} |" for row in rows)]
    PAGE.write_text(before + "\n".join(lines) + rest, encoding="utf-8")


def _report_formats(content: bytes, repeats: int) -> dict[str, Spread]:
    content = content[: content.rfind(b"\n") + 1]
    speeds = {
        name: Spread.of([len(content) / MB / _seconds(work) for _ in range(min(3, repeats))])
        for name, work in _format_works(content).items()
    }
    rows = [[name, speed.show(0)] for name, speed in speeds.items()]
    header = ["format", "MB/s"]
    print_table("the same lines in other formats, unpacked MB per CPU second, median (min..max)", header, rows)
    _into_page(header, rows)
    return speeds


def _format_works(content: bytes) -> dict[str, Callable[[], object]]:
    view = memoryview(content)
    starts, ends = record_spans(view)
    works: dict[str, Callable[[], object]] = {
        "JSON checked by msgspec": lambda: json_lines.all_objects(view, starts, ends),
        "JSON checked and texts taken": _texts_taken(content),
        "the same without escapes in the text": _texts_taken(_rewritten(content, _without_escapes)),
        "the same with escapes for all but ASCII": _texts_taken(_rewritten(content, json.dumps)),
    }
    for name, kind in (("zstd", Content.ZSTD), ("gzip", Content.GZIP)):
        compress = COMPRESSIONS[name].compressor()
        packed = compress(content)
        works[f"{name}: packing"] = lambda compress=compress: compress(content)  # type: ignore[misc]
        works[f"{name}: unpacking"] = lambda packed=packed, kind=kind: sum(map(len, unpack(io.BytesIO(packed), kind)))  # type: ignore[misc]
    frame = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(content)
    works["zstd: unpacking in one call"] = lambda: zstandard.ZstdDecompressor().decompress(frame)
    ids = RecordIds((("bench:", "bench"),), starts)
    batch = DocumentBatch.from_lines(RawLines(content, starts, ends), ids)
    found = json_lines.check_lines(view, starts, ends, find_texts=True)[1]
    known = DocumentBatch.from_lines(RawLines(content, starts, ends, found), ids)
    works["a table of JSON lines"] = lambda: piece_table(batch, None)
    works["a table of JSON lines, texts known"] = lambda: piece_table(known, None)
    path = scratch("where-time-goes.parquet")

    def write_parquet() -> None:
        writer = ParquetWriter(str(path)).open_writer(str(path))
        for rows in np.array_split(np.arange(len(starts)), max(1, len(content) // (4 * MB))):
            writer.write(batch.take(rows))
        writer.close()

    def read_parquet(fields: list[str] | None = None) -> None:
        reader = ParquetReader(str(path), fields=fields)
        for unit in reader.list_units():
            for item in reader.read(unit, ReadContext()):
                assert item.task is not None
                reader.parse(item.task)

    works["Parquet: writing (from JSON lines)"] = write_parquet
    works["Parquet: reading all columns"] = read_parquet
    works["Parquet: reading the text alone"] = lambda: read_parquet(["text"])
    return works


def _texts_taken(content: bytes) -> Callable[[], object]:
    view = memoryview(content)
    starts, ends = record_spans(view)
    return lambda: json_lines.check_lines(view, starts, ends, find_texts=True)


def _rewritten(content: bytes, encode: Callable[[Any], str]) -> bytes:
    """Every line encoded in another way."""
    return b"".join(encode(json.loads(line)).encode() + b"\n" for line in content.splitlines())


def _without_escapes(record: dict[str, Any]) -> str:
    text = re.sub(r'[\x00-\x1f"\\]', " ", record["text"])
    return json.dumps({**record, "text": text}, ensure_ascii=False)


def _seconds(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started


if __name__ == "__main__":
    main()
