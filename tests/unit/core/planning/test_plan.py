# SPDX-License-Identifier: Apache-2.0
"""A reader of columns leaves out those that no stage looks at and the writer does not keep."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thresher import (
    AddId,
    DocumentBatch,
    JsonlReader,
    JsonlWriter,
    Modify,
    ParquetReader,
    ParquetWriter,
    Pipeline,
    ProcessingStage,
    ScoreFilter,
    SerialExecutor,
    WordCountFilter,
)
from thresher.core.planning.fingerprint import fingerprint
from thresher.core.planning.plan import PlanSettings, make_plan, needed_columns


class AnyStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A user's own, which promises nothing."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


class Honest(AnyStage):
    """A user's own that says what it looks at."""

    looks_at_inputs_only = True

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["language"]


LONG = ScoreFilter(WordCountFilter(min_words=2), text_field="text")
KEEPS_URL = JsonlWriter("out", fields=["url"])
READER = ParquetReader("in")


@pytest.mark.parametrize(
    ("stages", "needed"),
    [
        ([READER, LONG, KEEPS_URL], ["url", "text"]),
        ([READER, KEEPS_URL], ["url"]),
        ([READER, Honest(), KEEPS_URL], ["url", "language"]),
        ([READER, AddId("id"), KEEPS_URL], ["url", "id"]),
        ([READER, LONG, JsonlWriter("out")], None),
        ([READER, AnyStage(), KEEPS_URL], None),
        ([READER, LONG], None),
        ([LONG, KEEPS_URL], None),
    ],
)
def test_what_is_needed(stages: list[ProcessingStage[Any, Any]], needed: list[str] | None) -> None:
    assert needed_columns(stages) == needed


def columns_read(*stages: Any, keep_dropped: bool = False) -> list[str] | None:
    reader: Any = planned(*stages, keep_dropped=keep_dropped)[0]
    found: list[str] | None = getattr(reader, "columns_read", None)
    return found


def planned(*stages: Any, keep_dropped: bool = False) -> Sequence[ProcessingStage[Any, Any]]:
    return make_plan(Pipeline("p", stages=list(stages)), PlanSettings(keep_dropped=keep_dropped)).stages


@pytest.fixture
def table(tmp_path: Path) -> str:
    columns = {
        "id": [None, "b", None],
        "url": ["u1", "u2", "u3"],
        "text": ["two words", "one", "two more"],
        "x": [1, 2, 3],
    }
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    return str(tmp_path / "in.parquet")


def test_the_reader_of_a_plan_reads_what_is_needed_and_the_users_own_stays_as_it_is(table: str) -> None:
    reader = ParquetReader(table)
    assert columns_read(reader, LONG, KEEPS_URL) == ["url", "text"]
    assert reader.columns_read is None
    assert columns_read(ParquetReader(table, fields=["text", "x"]), LONG, KEEPS_URL) == ["text"]


def test_dropped_records_are_kept_whole(table: str) -> None:
    assert columns_read(ParquetReader(table), LONG, KEEPS_URL, keep_dropped=True) is None


def test_a_run_can_go_on_with_dropped_records_kept_or_not(table: str) -> None:
    """What is read makes no difference to what is written, so it is the same pipeline."""
    stages = [ParquetReader(table), LONG, KEEPS_URL]
    less, everything = planned(*stages), planned(*stages, keep_dropped=True)
    assert fingerprint(less, "1.0") == fingerprint(everything, "1.0")


def test_who_asks_for_whole_records_gets_them(table: str) -> None:
    stages = [ParquetReader(table), LONG, KEEPS_URL]
    plan = make_plan(Pipeline("p", stages=stages), PlanSettings(whole_records=True))
    assert getattr(plan.source, "columns_read", None) is None


def test_lines_of_json_are_read_as_ever() -> None:
    assert columns_read(JsonlReader("in"), LONG, KEEPS_URL) is None


@pytest.mark.parametrize(
    "between", [[], [LONG], [Modify(str.upper, input_fields="text")], [AddId("id", overwrite=True)]]
)
@pytest.mark.parametrize("writer", [JsonlWriter, ParquetWriter])
def test_the_output_is_the_same_as_if_everything_were_read(
    table: str, tmp_path: Path, between: list[Any], writer: Any
) -> None:
    def output(name: str, *more: Any) -> dict[str, bytes]:
        folder = tmp_path / name
        stages = [ParquetReader(table), *between, *more, writer(str(folder), fields=["url", "id", "text"])]
        Pipeline("p", stages=stages).run(SerialExecutor(), progress="none")
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    assert output("less") == output("everything", AnyStage())


def test_a_record_that_has_an_id_already_is_still_found(table: str, tmp_path: Path) -> None:
    stages = [ParquetReader(table), AddId("id"), JsonlWriter(str(tmp_path / "out"), fields=["url"])]
    result = Pipeline("p", stages=stages).run(SerialExecutor(), progress="none")
    lines = b"".join(path.read_bytes() for path in sorted((tmp_path / "out").glob("*.jsonl")))
    assert [json.loads(line)["url"] for line in lines.splitlines()] == ["u1", "u3"]
    assert result.counts["quarantined"] == 1
