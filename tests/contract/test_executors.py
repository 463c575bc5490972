# SPDX-License-Identifier: Apache-2.0
"""One suite over every executor: the same pipeline gives the same bytes, counts and reasons, whoever runs it."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.contract.ray_rows import units_by_runner
from thresher import (
    DocumentBatch,
    DocumentFilter,
    JsonlReader,
    JsonlWriter,
    ParquetReader,
    ParquetWriter,
    Pipeline,
    ProcessingStage,
    RunResult,
    ScoreFilter,
    SerialExecutor,
    Task,
    WordCountFilter,
    processing_stage,
)
from thresher.core.tally import counts_add_up


def digest(folder: Path) -> dict[str, str]:
    """Names and hashes of the output files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "_thresher" not in path.parts)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def record(number: int) -> dict[str, Any]:
    return {"id": f"{number:05d}", "text": f"word{number} " * (number % 90), "n": number, "meta": {"k": [number, None]}}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Plain files that are split, a gzip stream that is cut, and small files that are packed; some lines are broken."""
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    lines = [json.dumps(record(number), ensure_ascii=False) for number in range(900)]
    lines[100] = "{broken"
    lines[500] = "[1, 2]"
    (folder / "a.jsonl").write_text("\n".join(lines[:400]) + "\n")
    with gzip.open(folder / "b.jsonl.gz", "wt") as file:
        file.write("\n".join(lines[400:700]) + "\n")
    for number in range(700, 704):
        (folder / "sub" / f"small{number}.jsonl").write_text(lines[number] + "\n")
    (folder / "z.jsonl").write_text("\n".join(lines[704:]))
    return folder


Reference = tuple[dict[str, int], dict[str, int], dict[str, str]]
_REFERENCES: dict[str, Reference] = {}
"""Counts, drop reasons and files of the plain serial run, by the function that makes its stages; all rows share it."""


def reference(stages: Callable[[Path], list[Any]], tmp_path: Path, **options: Any) -> Reference:
    if stages.__qualname__ not in _REFERENCES:
        folder = tmp_path / "reference"
        result = Pipeline("suite", stages=stages(folder)).run(SerialExecutor(), progress="none", **options)
        _REFERENCES[stages.__qualname__] = (result.counts, result.drop_reasons, digest(folder))
    return _REFERENCES[stages.__qualname__]


def check_same(stages: Callable[[Path], list[Any]], executor: Any, tmp_path: Path, **options: Any) -> RunResult:
    """Run on `executor` and on the plain serial one, and compare files, counts and reasons."""
    counts, reasons, files = reference(stages, tmp_path, **options)
    folder = tmp_path / "out"
    result = Pipeline("suite", stages=stages(folder)).run(executor, progress="none", **options)
    assert digest(folder) == files
    assert result.counts == counts
    assert result.drop_reasons == reasons
    assert counts_add_up(result.counts)
    assert not list((folder / "_thresher").glob("tmp/**/*"))
    if getattr(executor, "schedules_itself", False):
        listed, whole = units_by_runner(result.run_dir)
        assert listed == whole != set()  # nothing was left to our own scheduler
    return result


class Upper(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A user's pandas code: changes some records and drops others by index."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        frame = task.to_pandas()
        frame.loc[frame["n"] % 3 == 0, "text"] = frame["text"].str.upper()
        self.count("seen", len(frame))
        return DocumentBatch(frame[frame["n"] % 7 != 0])


class FanOut(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A generator: three new batches of each."""

    def process(self, task: DocumentBatch) -> Iterator[DocumentBatch]:
        for copy in range(3):
            yield DocumentBatch([{"copy": copy, "n": n, "text": "x" * (n % 50)} for n in task.values("n")])


class NotSeven(DocumentFilter):
    """A rule that fails on some records."""

    def score_document(self, text: str) -> int:
        if text.startswith("word77 "):
            raise ValueError("no 77")
        return len(text)

    def keep_document(self, score: int) -> bool:
        return score < 500


class NeedsSetup(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Must be set up before it works, on workers of its own."""

    ready = False

    def setup(self, worker_metadata: Any = None) -> None:
        self.ready = True

    def num_workers(self) -> int:
        return 1

    def process(self, task: DocumentBatch) -> DocumentBatch:
        assert self.ready
        return task.replace("ready", [True] * len(task))


def test_a_copy_gives_back_every_good_line_as_it_came(every_executor: Any, corpus: Path, tmp_path: Path) -> None:
    def stages(out: Path) -> list[Any]:
        return [JsonlReader(str(corpus), blocksize="20kB"), JsonlWriter(str(out))]

    result = check_same(stages, every_executor, tmp_path)
    assert result.counts == {
        "read": 900, "created": 0, "merged": 0, "written": 898, "dropped": 0, "quarantined": 2,
    }  # fmt: skip
    lines = [line for path in result.output_paths for line in Path(path).read_text().splitlines()]
    assert [json.loads(line)["n"] for line in lines] == [n for n in range(900) if n not in (100, 500)]
    assert lines[3] == json.dumps(record(3), ensure_ascii=False)


def test_rules_and_users_code_agree_and_dropped_records_are_kept(
    every_executor: Any, corpus: Path, tmp_path: Path
) -> None:
    dropped = tmp_path / "dropped"

    def stages(out: Path) -> list[Any]:
        return [
            JsonlReader(str(corpus), blocksize="30kB"),
            ScoreFilter(WordCountFilter(min_words=10)),
            Upper(),
            ScoreFilter(NotSeven()).with_(name="NotSeven"),
            JsonlWriter(str(out), compression="gzip"),
        ]

    result = check_same(stages, every_executor, tmp_path, max_errors="50%", dropped_to=str(dropped), fresh=True)
    kept = [json.loads(line) for path in dropped.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert len(kept) + result.counts["quarantined"] + result.counts["written"] == 900
    assert all(list(line)[-1] == "_dropped" for line in kept)


def test_a_failing_record_is_set_aside_alone(every_executor: Any, corpus: Path, tmp_path: Path) -> None:
    def stages(out: Path) -> list[Any]:
        return [
            JsonlReader(str(corpus), blocksize="30kB"),
            ScoreFilter(NotSeven()),
            JsonlWriter(str(out)),
        ]

    result = check_same(stages, every_executor, tmp_path, max_errors=10)
    assert result.counts["quarantined"] == 3
    assert result.run_dir is not None
    entries = [
        json.loads(line)
        for path in sorted(Path(result.run_dir, "quarantine").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    failing = [entry for entry in entries if entry["stage"] == "ScoreFilter"]
    assert [json.loads(entry["record"])["n"] for entry in failing] == [77]
    assert failing[0]["error"] == "ValueError"
    assert "no 77" in failing[0]["traceback"]


def test_fan_out_keeps_input_order(executor: Any, corpus: Path, tmp_path: Path) -> None:
    def stages(out: Path) -> list[Any]:
        return [JsonlReader(str(corpus), blocksize="30kB"), FanOut(), NeedsSetup(), JsonlWriter(str(out))]

    result = check_same(stages, executor, tmp_path)
    assert result.counts["written"] == 3 * 898
    # The first batch of each holds the given records, as the column `n` tells. The others are new.
    assert result.counts["created"] == 2 * 898
    assert result.counts["merged"] == 0


def test_files_of_a_target_size_hold_the_records_in_order(executor: Any, corpus: Path, tmp_path: Path) -> None:
    def stages(out: Path) -> list[Any]:
        writer = JsonlWriter(str(out), compression="zstd", target_file_size="3kB")
        return [JsonlReader(str(corpus), blocksize="20kB"), writer]

    result = check_same(stages, executor, tmp_path)
    assert 1 < len(result.output_paths) < result.units_total


def test_parquet_in_and_out(executor: Any, corpus: Path, tmp_path: Path) -> None:
    first = tmp_path / "parquet"
    Pipeline("p", stages=[JsonlReader(str(corpus)), ParquetWriter(str(first))]).run(SerialExecutor(), progress="none")

    def stages(out: Path) -> list[Any]:
        return [ParquetReader(str(first), blocksize="40kB"), Upper(), ParquetWriter(str(out))]

    check_same(stages, executor, tmp_path)


def test_parquet_files_of_a_run_have_one_schema(executor: Any, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    values = ["null", "1", "2.5", '"three"', '{"four": 4}']
    for number, value in enumerate(values):
        lines = [f'{{"n": {n}, "text": "text {n}", "value": {value}, "only{number}": {n}}}\n' for n in range(20)]
        (source / f"{number}.jsonl").write_text("".join(lines))

    def stages(out: Path) -> list[Any]:
        return [JsonlReader(str(source), files_per_partition=1), ParquetWriter(str(out))]

    result = check_same(stages, executor, tmp_path)
    assert len(result.output_paths) == len(values)
    assert len({pq.read_schema(path) for path in result.output_paths}) == 1


def test_without_a_writer_the_tasks_come_back_in_order(executor: Any) -> None:
    @processing_stage(name="double")
    def double(task: Task) -> Task:
        return Task(data=task.data * 2, metadata=task.metadata)

    @processing_stage(name="odd only")
    def odd_only(task: Task) -> Task | None:
        return task if task.data % 4 else None

    tasks = [Task(data=number, metadata={"n": number}) for number in range(50)]
    result = Pipeline("tasks", stages=[double, odd_only]).run(
        executor, initial_tasks=tasks, progress="none", ledger=False
    )
    assert [task.data for task in result] == [2 * n for n in range(50) if n % 2]
    assert [task.metadata["n"] for task in result] == [n for n in range(50) if n % 2]
    assert result.counts["read"] == 50
    assert result.counts["dropped"] == 25


def test_the_same_command_again_has_nothing_to_do(executor: Any, corpus: Path, tmp_path: Path) -> None:
    stages = [JsonlReader(str(corpus), blocksize="20kB"), JsonlWriter(str(tmp_path / "out"))]
    pipeline = Pipeline("again", stages=stages)
    first = pipeline.run(executor, progress="none")
    before = digest(tmp_path / "out")
    again = pipeline.run(executor, progress="none")
    assert again.status == "nothing-to-do"
    assert again.counts == first.counts
    assert again.units_resumed == again.units_total == first.units_total
    assert digest(tmp_path / "out") == before


class Tokens(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Leaves a statistic of its own in the task."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        task.metadata["tokens"] = sum(len(text.split()) for text in task.values("text"))
        self.count("batches")
        return task


def test_users_own_statistics_reach_the_report(executor: Any, corpus: Path, tmp_path: Path) -> None:
    stages = [JsonlReader(str(corpus), blocksize="50kB"), Tokens(), JsonlWriter(str(tmp_path / "out"))]
    result = Pipeline("statistics", stages=stages).run(executor, progress="none")
    words = sum(number % 90 for number in range(900) if number not in (100, 500))
    assert result.stages[2]["user_counts"]["tokens"] == words
    assert result.stages[1]["user_counts"]["batches"] >= 1
