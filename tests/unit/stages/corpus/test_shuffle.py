# SPDX-License-Identifier: Apache-2.0
"""Ranges of a shuffle: blocks are not read again for the next small range, and large ones are not held for it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from thresher import DocumentBatch, ShuffleStage
from thresher.core.documents.records import RawLines, RecordIds
from thresher.core.files.filesystem import open_read
from thresher.core.phases import PhaseFile, PhaseFolder
from thresher.core.source import ReadContext
from thresher.stages.corpus import shuffle

FILES, RECORDS = 4, 400


class ByNumber(ShuffleStage):
    def places(self, batch: DocumentBatch) -> Any:
        return np.array(batch.values("n"))


def in_ranges(folder: Path, blocksize: int, padding: int) -> tuple[list[int], list[str]]:
    """Write files, then read all ranges; return the numbers as they come, and each file as often as it was opened."""
    stage = ByNumber()
    stage.blocksize = blocksize
    writer, reader = stage.phase_ends()
    files = []
    for number in range(FILES):
        lines = [b'{"n": %d, "text": "%s"}' % (n, b"x" * padding) for n in range(number, FILES * RECORDS, FILES)]
        ids = RecordIds((("file:", "path"),), np.arange(len(lines), dtype=np.int64))
        opened = writer.open_writer(str(folder / f"{number}"))
        opened.write(DocumentBatch.from_lines(RawLines.join(lines), ids))
        files.append(PhaseFile(str(folder / f"{number}"), opened.close().nbytes))

    def keep(name: str, content: bytes) -> str:
        (folder / name).write_bytes(content)
        return str(folder / name)

    units = reader.list_phase(PhaseFolder(files, keep, None, 1))
    assert len(units) > 10
    paths: list[str] = []

    def counted(path: str, **options: Any) -> Any:
        paths.append(path)
        return open_read(path, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shuffle, "open_read", counted)
        tasks = [item.task for unit in units for item in reader.read(unit, ReadContext())]
    return [n for task in tasks for n in task.values("n")], paths


def test_a_block_is_not_read_again_for_the_next_small_range(tmp_path: Path) -> None:
    numbers, paths = in_ranges(tmp_path, blocksize=2_000, padding=50)
    assert numbers == list(range(FILES * RECORDS))
    assert Counter(paths) == {str(tmp_path / name): 1 for name in ("index", *map(str, range(FILES)))}


def test_blocks_with_large_records_are_not_held_for_the_next_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle, "_KEPT_BYTES", 100_000)
    numbers, paths = in_ranges(tmp_path, blocksize=20_000, padding=2_000)
    assert numbers == list(range(FILES * RECORDS))
    assert Counter(paths)[str(tmp_path / "0")] > 100, "every range opens the file"
