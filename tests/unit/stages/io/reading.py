# SPDX-License-Identifier: Apache-2.0
"""Reads everything that a reader lists, the way a run does, and tells it in plain values."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

from thresher.core.source import ReadContext
from thresher.core.stage import SourceStage
from thresher.core.unit import Unit


@dataclass
class Found:
    """What came out of a reader."""

    records: list[tuple[str, bytes]] = field(default_factory=list)
    """Id and line of every record, in the order in which they came."""
    failed: list[tuple[str, str, bytes, str]] = field(default_factory=list)
    """Error, id, raw bytes and message of everything that was set aside."""
    units: dict[str, list[str]] = field(default_factory=dict)
    """Ids of the records of each unit."""
    closed: list[str] = field(default_factory=list)
    """Units of streams that were closed."""

    @property
    def ids(self) -> list[str]:
        """Ids of the records."""
        return [record_id for record_id, _ in self.records]

    @property
    def lines(self) -> list[bytes]:
        """The records themselves."""
        return [line for _, line in self.records]

    @property
    def errors(self) -> list[str]:
        """Kinds of what was set aside."""
        return [error for error, _, _, _ in self.failed]


def read_all(reader: SourceStage, context: ReadContext | None = None) -> Found:
    """All units, one after the other."""
    return read_units(reader, reader.list_units(), context)


def read_units(reader: SourceStage, units: Iterator[Unit], context: ReadContext | None = None) -> Found:
    """Some units."""
    found = Found()
    for unit in units:
        for item in reader.read(unit, context or ReadContext()):
            ids = found.units.setdefault(item.unit.id, [])
            assert item.unit.id not in found.closed, "nothing comes after a unit is closed"
            if item.closes:
                found.closed.append(item.unit.id)
            if item.task is None:
                continue
            batch = reader.parse(item.task)
            assert batch.ids is not None
            rows = list(zip(batch.ids.strings(), (bytes(line) for line in batch.json_lines()), strict=True))
            found.records.extend(rows)
            ids.extend(record_id for record_id, _ in rows)
            for rows_failed in batch._failed:
                assert rows_failed.ids is not None
                told = zip(rows_failed.ids.strings(), rows_failed.lines, rows_failed.messages, strict=True)
                found.failed.extend((rows_failed.error, *one) for one in told)
    return found


def lines_of(content: bytes) -> list[tuple[int, bytes]]:
    """The plain definition: place and bytes of every line that is more than white space."""
    place = 0
    found = []
    for line in content.split(b"\n"):
        shown, start = line, place
        if place == 0 and line.startswith(b"\xef\xbb\xbf"):
            shown, start = line[3:], 3
        if shown.strip():
            found.append((start, shown))
        place += len(line) + 1
    return found


def zstd_frames(parts: list[bytes], *, with_sizes: bool = True, checksum: bool = True) -> bytes:
    """Each part in a frame of its own, a skippable frame behind each."""
    compressor = zstandard.ZstdCompressor(write_content_size=with_sizes, write_checksum=checksum)
    skippable = b"\x5a\x2a\x4d\x18\x03\x00\x00\x00abc"
    if with_sizes:
        return b"".join(compressor.compress(part) + skippable for part in parts)
    return b"".join(_frame_without_size(compressor, part) + skippable for part in parts)


def _frame_without_size(compressor: zstandard.ZstdCompressor, part: bytes) -> bytes:
    stream = compressor.compressobj()
    return stream.compress(part) + stream.flush()


PACKERS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda content: zstandard.ZstdCompressor().compress(content),
}


def write_packed(folder: Path, ending: str, content: bytes) -> str:
    """A file `data.jsonl` with `ending`, packed as it says."""
    path = folder / f"data.jsonl{ending}"
    path.write_bytes(PACKERS[ending](content) if ending else content)
    return str(path)
