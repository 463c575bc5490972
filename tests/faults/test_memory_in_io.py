# SPDX-License-Identifier: Apache-2.0
"""Memory that runs out while a unit is read or written: the unit starts again, and nothing is lost or written twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from thresher import DocumentBatch, JsonlReader, JsonlWriter, LocalExecutor, Pipeline, ProcessingStage
from thresher.core.source import ReadContext, SourceItem
from thresher.core.unit import Unit
from thresher.ledger.unit_output import UnitOutput

RECORDS = 20_000


def first_time(marker: str) -> bool:
    """Whether this is asked for the first time in a run."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class FailsToRead(JsonlReader):
    """Memory runs out behind its second chunk, once."""

    marker = ""

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        for number, item in enumerate(super().read(unit, context)):
            if number == 1 and first_time(self.marker):
                raise MemoryError
            yield item


class FailsToWrite(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Lets the writer of its worker run out of memory, once."""

    name = "fails_to_write"

    def __init__(self, marker: str, error: Exception) -> None:
        self.marker = marker
        self.error = error

    def setup(self, worker_metadata: Any = None) -> None:
        write = UnitOutput.write

        def fails_once(output: UnitOutput, batch: DocumentBatch) -> None:
            if first_time(self.marker):
                raise self.error
            write(output, batch)

        UnitOutput.write = fails_once  # type: ignore[method-assign]  # in a worker of this run, which ends with it

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


def written(tmp_path: Path, reader: JsonlReader, *stages: ProcessingStage[Any, Any]) -> list[int]:
    """The numbers of the records that a run writes."""
    (tmp_path / "in").mkdir()
    lines = (json.dumps({"number": number, "text": "x" * 500}) for number in range(RECORDS))
    (tmp_path / "in" / "0.jsonl").write_text("\n".join(lines))
    pipeline = Pipeline("p", stages=[reader, *stages, JsonlWriter(str(tmp_path / "out"))])
    result = pipeline.run(LocalExecutor(workers=2), progress="none")
    assert (tmp_path / "failed").exists()
    return [json.loads(line)["number"] for path in result.output_paths for line in Path(path).read_bytes().splitlines()]


def test_a_unit_that_runs_out_of_memory_while_it_is_read_starts_again(tmp_path: Path) -> None:
    reader = FailsToRead(str(tmp_path / "in"))
    reader.marker = str(tmp_path / "failed")
    assert written(tmp_path, reader) == list(range(RECORDS))


@pytest.mark.parametrize("error", [MemoryError(), OSError(12, "Cannot allocate memory")], ids=["MemoryError", "ENOMEM"])
def test_a_unit_that_runs_out_of_memory_while_it_is_written_starts_again(tmp_path: Path, error: Exception) -> None:
    stage = FailsToWrite(str(tmp_path / "failed"), error)
    assert written(tmp_path, JsonlReader(str(tmp_path / "in")), stage) == list(range(RECORDS))
