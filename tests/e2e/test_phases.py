# SPDX-License-Identifier: Apache-2.0
"""A run of several phases that ended early goes on in the phase in which it ended."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tests.memory_room import memory_beside_this_process
from thresher import (
    DocumentBatch,
    GlobalShuffle,
    GlobalSort,
    GroupBy,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    ParquetReader,
    ParquetWriter,
    Pipeline,
    ProcessingStage,
    RunResult,
    SerialExecutor,
    TopK,
)
from thresher.cli.main import main
from thresher.errors import OutputRefusedError, PlanError, RunFailedError, UsageError
from thresher.inspect.retry import RetryOptions, retry_run
from thresher.stages.corpus.shuffle import ShuffleWriter

ROWS = 3000


class FullAtThird(JsonlWriter):
    """Finds no room for the third file while another file exists."""

    def open_writer(self, local_path: str) -> Any:
        if "-000002-" in os.path.basename(local_path) and Path(f"{self.path}.full").exists():
            raise OSError(errno.ENOSPC, "no space left on device")
        return super().open_writer(local_path)


class Scene:
    """A pipeline of three phases over a corpus; its last phase fails at the third unit."""

    def __init__(self, folder: Path) -> None:
        self.input, self.output = folder / "in.jsonl", folder / "out"
        self.input.write_text("".join(json.dumps({"n": n, "text": f"text {n}"}) + "\n" for n in range(ROWS)))
        self.fault = folder / "out.full"

    def pipeline(self, output: Path) -> Pipeline:
        stages = [GlobalShuffle(3, blocksize=30_000), GlobalSort("n", blocksize=15_000), FullAtThird(str(output))]
        return Pipeline("phases", stages=[JsonlReader(str(self.input), blocksize=20_000), *stages])

    def run(self, executor: Any, output: Path | None = None) -> RunResult:
        return self.pipeline(output or self.output).run(executor, progress="none")

    def fail(self) -> None:
        self.fault.touch()
        with pytest.raises(RunFailedError, match="disk is full"):
            self.run(SerialExecutor())
        self.fault.unlink()

    def files(self, output: Path) -> dict[str, str]:
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in output.glob("*.jsonl")}

    def assert_complete(self) -> None:
        calm = self.output.with_name("calm")
        self.run(SerialExecutor(), calm)
        assert self.files(self.output) == self.files(calm)
        assert not (self.output / "_thresher" / "phases").exists()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def ledger_units(output: Path) -> list[str]:
    lines = [
        line for path in sorted((output / "_thresher/ledger").glob("*.jsonl")) for line in path.read_text().splitlines()
    ]
    return [json.loads(line)["unit"] for line in lines]


@pytest.mark.parametrize(
    "executor",
    [SerialExecutor, lambda: LocalExecutor(workers=3, memory=memory_beside_this_process(600 * 10**6))],
    ids=["serial", "local"],
)
def test_a_run_goes_on_in_its_last_phase_on_another_executor_with_other_memory(
    scene: Scene, executor: Callable[[], Any]
) -> None:
    scene.fail()
    before = ledger_units(scene.output)
    assert "phase-1-end" in before, "the second phase is complete"
    result = scene.run(executor())
    after = ledger_units(scene.output)
    assert after[: len(before)] == before
    assert len(set(after)) == len(after), "no unit was done twice"
    assert result.counts["written"] == ROWS
    scene.assert_complete()


def test_files_that_the_next_phase_has_read_are_removed_and_not_missed(scene: Scene) -> None:
    scene.fail()
    phases = scene.output / "_thresher" / "phases"
    assert not list((phases / "0").iterdir())
    assert list((phases / "1").glob("*.phase"))
    scene.run(SerialExecutor())
    scene.assert_complete()


class FailsToJoin(GlobalShuffle):
    """Fails in the fourth join of files while a file exists."""

    fault: Path

    def phase_ends(self) -> tuple[Any, Any]:
        _, reader = super().phase_ends()
        return FailingJoins(self), reader


class FailingJoins(ShuffleWriter):
    """Joins files until it fails."""

    joined: ClassVar[list[str]] = []

    def join_parts(self, part_paths: list[str], local_path: str, schema: str = "") -> Any:
        assert isinstance(self.stage, FailsToJoin)
        if len(self.joined) == 3 and self.stage.fault.exists():
            raise OSError(errno.ENOSPC, "no space left on device")
        self.joined.append(local_path)
        return super().join_parts(part_paths, local_path, schema)


@pytest.mark.parametrize("loses_a_file", [False, True])
def test_a_run_that_ended_while_files_were_joined_goes_on_with_the_joins_that_are_left(
    scene: Scene, loses_a_file: bool
) -> None:
    def run(output: Path, stage: GlobalShuffle) -> RunResult:
        stages = [JsonlReader(str(scene.input), blocksize=300), stage, JsonlWriter(str(output))]
        return Pipeline("joins", stages=stages).run(SerialExecutor(), progress="none")

    FailingJoins.joined.clear()
    stage = FailsToJoin(3, blocksize=30_000)
    stage.fault = scene.fault
    scene.fault.touch()
    with pytest.raises(RunFailedError, match="disk is full"):
        run(scene.output, stage)
    scene.fault.unlink()
    before = ledger_units(scene.output)
    assert sum(unit.startswith("join-1-") for unit in before) == 3
    if loses_a_file:
        next(iter(scene.output.glob("_thresher/phases/0/joined-*.phase"))).unlink()
    assert run(scene.output, stage).counts["written"] == ROWS
    after = ledger_units(scene.output)
    assert any(unit.startswith("join-2-") for unit in after), "joined files are joined once more"
    if not loses_a_file:
        assert len(set(after)) == len(after), "no unit was done twice"
    assert main(["audit", str(scene.output)]) == 0
    run(scene.output.with_name("calm"), stage)
    assert scene.files(scene.output) == scene.files(scene.output.with_name("calm"))
    assert not (scene.output / "_thresher" / "phases").exists()


@pytest.mark.parametrize("lost", ["_thresher/phases/1/*.phase", "*.jsonl"])
def test_a_lost_file_whose_input_is_removed_is_not_passed_over(scene: Scene, lost: str) -> None:
    if lost == "*.jsonl":
        scene.run(SerialExecutor())
    else:
        scene.fail()
    next(iter(scene.output.glob(lost))).unlink()
    with pytest.raises(OutputRefusedError, match="--fresh"):
        scene.run(SerialExecutor())


def test_a_lost_file_of_the_first_phase_is_made_again(scene: Scene) -> None:
    def run() -> RunResult:
        reader = JsonlReader(str(scene.input), blocksize=20_000)
        stages = [reader, GlobalShuffle(blocksize=15_000), FullAtThird(str(scene.output))]
        return Pipeline("lost", stages=stages).run(SerialExecutor(), progress="none")

    scene.fault.touch()
    with pytest.raises(RunFailedError):
        run()
    scene.fault.unlink()
    next(iter(scene.output.glob("_thresher/phases/0/*.phase"))).unlink()
    assert run().counts["written"] == ROWS


def test_a_record_that_fails_at_the_end_of_a_phase_is_set_aside_with_the_traceback(scene: Scene) -> None:
    class FailsOnFive(GlobalSort):
        def places(self, batch: Any) -> Any:
            if 5 in batch.values("n"):
                raise KeyError("five")
            return super().places(batch)

    stages = [JsonlReader(str(scene.input), blocksize=20_000), FailsOnFive("n"), JsonlWriter(str(scene.output))]
    result = Pipeline("fails", stages=stages).run(SerialExecutor(), progress="none")
    assert result.counts["quarantined"] == 1
    (path,) = (scene.output / "_thresher" / "quarantine").glob("*.jsonl")
    entry = json.loads(path.read_text())
    assert (entry["stage"], entry["error"]) == ("FailsOnFive", "KeyError")
    assert 'raise KeyError("five")' in entry["traceback"]


def test_an_interrupt_in_the_second_phase_says_which_phases_are_done(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            os.kill(os.getpid(), signal.SIGINT)
            return task

    reader = JsonlReader(str(scene.input), blocksize=20_000)
    stages = [reader, GlobalShuffle(blocksize=30_000), Interrupted(), JsonlWriter(str(scene.output))]
    with pytest.raises(KeyboardInterrupt):
        Pipeline("interrupted", stages=stages).run(SerialExecutor())
    assert "1 phase of 2 done, and a part of the next. Run the same command again to go on" in capsys.readouterr().err


def test_a_finished_run_has_nothing_to_do(scene: Scene) -> None:
    scene.run(SerialExecutor())
    assert scene.run(SerialExecutor()).status == "nothing-to-do"


def test_audit_finds_nothing_and_why_follows_a_document_through_the_phases(
    scene: Scene, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        f"name: r\nstages:\n  - JsonlReader: {{file_paths: {scene.input}}}\n  - GlobalShuffle: {{blocksize: 30kB}}\n"
        f"  - JsonlWriter: {{path: {scene.output}}}\n"
    )
    assert main(["run", str(recipe), "--quiet"]) == 0
    assert main(["audit", str(scene.output)]) == 0
    capsys.readouterr()
    assert main(["why", str(scene.output), "--text", "text 1234", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "globalshuffle-" in json.dumps(found)


def test_documents_from_standard_input_are_shuffled_to_standard_output(scene: Scene, tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    stages = "JsonlReader: {file_paths: '-'}", "GlobalShuffle: {blocksize: 30kB}", "JsonlWriter: {path: '-'}"
    recipe.write_text("name: r\nstages:\n" + "".join(f"  - {stage}\n" for stage in stages))
    command = [sys.executable, "-m", "thresher", "run", str(recipe), "--quiet"]
    ended = subprocess.run(command, input=scene.input.read_bytes(), capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    given, found = scene.input.read_bytes().splitlines(), ended.stdout.splitlines()
    assert found != given
    assert sorted(found) == sorted(given)


def test_columns_of_parquet_files_keep_their_types(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"n": list(range(200)), "key": ["a", "b"] * 100, "blob": [b"\x00\xff"] * 200, "real": [0.5] * 200})
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "0.parquet", row_group_size=50)
    stages = [
        ParquetReader(str(tmp_path / "in")),
        GlobalSort("n", descending=True),
        ParquetWriter(str(tmp_path / "out")),
    ]
    result = Pipeline("types", stages=stages).run(SerialExecutor(), progress="none")
    assert pq.read_table(result.output_paths[0]).equals(table.take(list(reversed(range(200)))))


@pytest.mark.parametrize("stage", [GlobalSort("nn"), TopK("nn", k=ROWS), GroupBy("nn")], ids=lambda stage: stage.name)
def test_a_column_that_no_document_has_is_said_in_the_report(scene: Scene, stage: Any) -> None:
    stages = [JsonlReader(str(scene.input)), stage, JsonlWriter(str(scene.output))]
    result = Pipeline("misspelt", stages=stages).run(SerialExecutor(), progress="none")
    assert "'nn'" in str(result.to_dict()["warnings"])


def test_scores_of_a_pipeline_with_phases_are_not_kept(scene: Scene) -> None:
    with pytest.raises(PlanError, match="GlobalShuffle puts documents into other units"):
        scene.pipeline(scene.output).run(SerialExecutor(), keep_scores=True, progress="none")


def test_dropped_and_failed_documents_of_all_phases_are_kept(scene: Scene, tmp_path: Path) -> None:
    class Odd(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            if 1001 in task.values("n"):
                raise ValueError("not this one")
            return task.take([row for row, n in enumerate(task.values("n")) if n % 2])

    stages = [JsonlReader(str(scene.input)), GlobalShuffle(), Odd(), JsonlWriter(str(scene.output))]
    dropped = tmp_path / "dropped"
    result = Pipeline("odd", stages=stages).run(SerialExecutor(), dropped_to=str(dropped), progress="none")
    assert (result.counts["dropped"], result.counts["quarantined"]) == (ROWS // 2, 1)
    assert sum(len(path.read_text().splitlines()) for path in dropped.glob("*.jsonl")) == ROWS // 2


def test_retry_says_why_it_cannot_add_records_after_the_others_are_in_order(scene: Scene) -> None:
    scene.run(SerialExecutor())
    with pytest.raises(UsageError, match="GlobalShuffle needs all documents"):
        retry_run(SerialExecutor(), scene.pipeline(scene.output), str(scene.output / "_thresher"), RetryOptions())


def test_retry_names_the_command_that_starts_over(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.yaml"
    stages = [f"JsonlReader: {{file_paths: {scene.input}}}", "GlobalShuffle", f"JsonlWriter: {{path: {scene.output}}}"]
    recipe.write_text("name: shuffled\nstages:\n" + "".join(f"  - {stage}\n" for stage in stages))
    assert main(["run", str(recipe), "--executor", "serial", "--quiet"]) == 0
    recipe.unlink()
    assert main(["retry", str(scene.output), "--executor", "serial"]) != 0
    command = capsys.readouterr().err.strip().rsplit("start over: thresher ", 1)[1].split()
    assert main([*command, "--executor", "serial", "--quiet"]) == 0
    lines = [line for path in scene.output.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert len(lines) == ROWS


def test_a_run_without_room_for_its_phases_is_refused_before_it_reads(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = scene.input.stat().st_size
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=size // 10))
    with pytest.raises(OutputRefusedError, match=r"between the phases of this run need about .* are free on this disk"):
        scene.run(SerialExecutor())
    assert ledger_units(scene.output) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=size))
    assert scene.run(SerialExecutor()).counts["written"] == ROWS


class Disk:
    """A disk on which the free space changes from one look to the next."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *free: int) -> None:
        self.free = list(free)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=self.free.pop(0)))


def test_a_phase_without_room_for_its_output_is_refused_when_it_begins_and_goes_on_once_there_is_room(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = scene.input.stat().st_size
    Disk(monkeypatch, size, size, size * 8 // 10)
    with pytest.raises(
        OutputRefusedError, match=r"phase 3 of this run will write about .* free on this disk\. Make room"
    ):
        scene.run(SerialExecutor())
    assert not scene.files(scene.output)
    before = ledger_units(scene.output)
    Disk(monkeypatch, size * 11 // 10)
    scene.run(SerialExecutor())
    assert ledger_units(scene.output)[: len(before)] == before, "the first phases were not done again"
    monkeypatch.undo()
    scene.assert_complete()


def test_a_phase_without_room_for_what_it_hands_on_is_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(monkeypatch, scene.input.stat().st_size, 1000)
    with pytest.raises(OutputRefusedError, match=r"phase 2 of this run will write about .* more, and 1\.0 kB are free"):
        scene.run(SerialExecutor())


def test_a_phase_that_drops_documents_is_not_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = [JsonlReader(str(scene.input)), TopK("n", k=10), JsonlWriter(str(scene.output))]
    Disk(monkeypatch, scene.input.stat().st_size // 2)
    assert Pipeline("few", stages=stages).run(SerialExecutor(), progress="none").counts["written"] == 10


def test_joining_is_refused_where_there_is_no_room_for_the_joined_files(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    Disk(monkeypatch, scene.input.stat().st_size, 100)
    stages = [JsonlReader(str(scene.input), blocksize=300), GlobalShuffle(3, blocksize=30_000)]
    with pytest.raises(OutputRefusedError, match=r"to join files of phase 1 takes .* kB, and 100 B are free"):
        Pipeline("joins", stages=[*stages, JsonlWriter(str(scene.output))]).run(SerialExecutor(), progress="none")


def test_documents_that_a_caller_gives_pass_through_phases(scene: Scene) -> None:
    stages = [GlobalSort("n", descending=True), JsonlWriter(str(scene.output))]
    rows = [{"n": n} for n in range(20)]
    result = Pipeline("given", stages=stages).run(SerialExecutor(), initial_tasks=rows, progress="none")
    written = "".join(Path(path).read_text() for path in result.output_paths)
    assert [json.loads(line)["n"] for line in written.splitlines()] == list(range(20))[::-1]


def test_bytes_of_documents_without_lines_are_known_when_the_next_phase_begins(tmp_path: Path) -> None:
    rows = [{"n": n, "text": f"{n} " * 20_000} for n in range(20)]
    stages = [GlobalShuffle(blocksize=100_000), ParquetWriter(str(tmp_path / "out"))]
    result = Pipeline("large", stages=stages).run(SerialExecutor(), initial_tasks=rows, progress="none")
    progress = json.loads(Path(result.run_dir or "", "metrics.json").read_text())
    assert progress["bytes_listed"] > sum(len(str(row["text"])) for row in rows)
