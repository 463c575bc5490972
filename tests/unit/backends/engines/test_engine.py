# SPDX-License-Identifier: Apache-2.0
"""An engine that schedules itself behind our driver: what it commits counts, what it leaves over is run by us."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from thresher import DocumentFilter, JsonlReader, JsonlWriter, Pipeline, ScoreFilter, SerialExecutor, Task
from thresher import processing_stage as as_stage
from thresher.backends.engines.engine import Engine, EngineExecutor
from thresher.backends.engines.unit_call import UnitWork, UnitWorker, metadata_here, op_chain
from thresher.cli.main import main
from thresher.core.tally import counts_add_up
from thresher.errors import TooManyErrorsError
from thresher.observe.event_log import decode_line, read_log
from thresher.runtime.orders import WorkerSetup
from thresher.runtime.processes.setup_pickle import dump_setup
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev


class ThreadEngine:
    """Runs all ops of a unit in this process, one unit after the other, and may be disturbed."""

    name = "the engine of this test"

    def __init__(self, disturb: Callable[[int, UnitWork], UnitWork | None]) -> None:
        self._disturb = disturb
        self.stopped = threading.Event()

    def run(self, setup: WorkerSetup, works: list[UnitWork], answer: Callable[[UnitWork], None]) -> None:
        worker = UnitWorker(dump_setup(setup), metadata_here())
        for number, work in enumerate(works):
            if self.stopped.is_set():
                break
            made = work
            for op in op_chain(setup.plan):
                made = worker.run(op.index, [made])[0]
            told = self._disturb(number, made)
            if told is not None:
                answer(told)
        worker.end()

    def stop(self) -> None:
        self.stopped.set()


class ThreadExecutor(EngineExecutor):
    """Has the engine of this test."""

    name = "thread"

    def __init__(self, disturb: Callable[[int, UnitWork], UnitWork | None] = lambda number, work: work) -> None:
        super().__init__({"workers": 1})
        self._disturb = disturb

    def make_engine(self) -> Engine:
        return ThreadEngine(self._disturb)


class No13(DocumentFilter):
    """Fails on one record, drops every tenth."""

    def score_document(self, text: str) -> int:
        number = int(text.split()[0])
        if number == 13:
            raise ValueError("unlucky")
        return number

    def keep_document(self, score: int) -> bool:
        return score % 10 != 0


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    lines = [json.dumps({"text": f"{number} " + "word " * 20}) for number in range(200)]
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def pipeline(corpus: Path, out: Path, **writer: Any) -> Pipeline:
    stages = [JsonlReader(str(corpus), blocksize="4kB"), ScoreFilter(No13()), JsonlWriter(str(out), **writer)]
    return Pipeline("engine", stages=stages)


def digest(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.glob("*.jsonl") if path.is_file())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def log_of(run_dir: str | None) -> list[Any]:
    assert run_dir is not None
    return [decode_line(line).item for line in read_log(str(Path(run_dir, "events", "001")))]


def check_as_serial(corpus: Path, tmp_path: Path, executor: EngineExecutor, **writer: Any) -> Any:
    """Run, and compare files, counts and log with what is right."""
    expected = pipeline(corpus, tmp_path / "expected", **writer).run(SerialExecutor(), progress="none")
    result = pipeline(corpus, tmp_path / "out", **writer).run(executor, progress="none")
    assert digest(tmp_path / "out") == digest(tmp_path / "expected")
    assert result.counts == expected.counts
    assert result.drop_reasons == expected.drop_reasons
    assert counts_add_up(result.counts)
    assert main(["audit", str(tmp_path / "out")]) == 0
    assert main(["replay", str(tmp_path / "out")]) == 0
    return result


def test_what_the_engine_commits_needs_no_worker_of_ours(corpus: Path, tmp_path: Path) -> None:
    result = check_as_serial(corpus, tmp_path, ThreadExecutor())
    log = log_of(result.run_dir)
    whole = [item for item in log if isinstance(item, ev.UnitCommitted) and item.whole]
    assert len(whole) == result.units_total > 3
    assert not any(isinstance(item, ev.WorkerReady | act.Dispatch) for item in log)
    metrics = json.loads(Path(result.run_dir, "metrics.json").read_text())
    assert metrics["stages"][1]["dropped"] == result.counts["dropped"] == 20
    assert (metrics["units_done"], metrics["quarantined"]) == (result.units_total, 1)


def test_units_that_the_engine_could_not_run_are_run_by_us(corpus: Path, tmp_path: Path) -> None:
    """Also where it had committed one of them and did not get to say so."""
    result = check_as_serial(corpus, tmp_path, ThreadExecutor(lambda number, work: None if number % 2 else work))
    log = log_of(result.run_dir)
    ours = {ref.unit for item in log if isinstance(item, act.Dispatch) for ref in item.tasks}
    assert len(ours) == result.units_total // 2


def test_a_unit_that_came_back_with_a_failure_is_run_by_us(corpus: Path, tmp_path: Path) -> None:
    told: list[str] = []

    def fail_second(number: int, work: UnitWork) -> UnitWork:
        return UnitWork(work.unit, failure="OSError: no such disk") if number == 1 else work

    executor = ThreadExecutor(fail_second)
    check_as_serial(corpus, tmp_path, executor)
    assert executor.notify is not None
    executor.notify = told.append
    executor._tell("heard")
    assert told == ["heard"]


def test_an_engine_that_gives_up_leaves_the_rest_to_us(corpus: Path, tmp_path: Path) -> None:
    def give_up(number: int, work: UnitWork) -> UnitWork:
        if number == 2:
            raise RuntimeError("no more")
        return work

    check_as_serial(corpus, tmp_path, ThreadExecutor(give_up))


def test_joined_files_are_made_behind_the_engine(corpus: Path, tmp_path: Path) -> None:
    result = check_as_serial(corpus, tmp_path, ThreadExecutor(), target_file_size="9kB")
    assert 1 < len(result.output_paths) < result.units_total


def test_a_unit_that_is_answered_twice_counts_once(corpus: Path, tmp_path: Path) -> None:
    class Twice(ThreadEngine):
        def run(self, setup: WorkerSetup, works: list[UnitWork], answer: Callable[[UnitWork], None]) -> None:
            super().run(setup, works, lambda work: (answer(work), answer(work))[0])

    executor = ThreadExecutor()
    executor.make_engine = lambda: Twice(lambda number, work: work)  # type: ignore[method-assign]  # for this test
    check_as_serial(corpus, tmp_path, executor)


def test_what_was_begun_by_one_executor_is_finished_by_another(corpus: Path, tmp_path: Path) -> None:
    """A run that stops in the engine is resumed serially, and the other way round nothing is left to do."""
    executor = ThreadExecutor()
    engine = ThreadEngine(lambda number, work: work if number < 2 or engine.stopped.wait() else None)
    executor.make_engine = lambda: engine  # type: ignore[method-assign]  # for this test
    with pytest.raises(TooManyErrorsError, match="ScoreFilter/ValueError"):
        pipeline(corpus, tmp_path / "out").run(executor, progress="none", max_errors=0)
    result = pipeline(corpus, tmp_path / "out").run(SerialExecutor(), progress="none")
    assert 0 < result.units_resumed < result.units_total
    again = pipeline(corpus, tmp_path / "out").run(ThreadExecutor(), progress="none")
    assert again.status == "nothing-to-do"


def test_fresh_replaces_the_files_of_the_old_run(corpus: Path, tmp_path: Path) -> None:
    for block in ("4kB", "8kB"):
        stages = [JsonlReader(str(corpus), blocksize=block), JsonlWriter(str(tmp_path / "out"))]
        result = Pipeline("fresh", stages=stages).run(ThreadExecutor(), progress="none", fresh=True)
        assert len(digest(tmp_path / "out")) == len(result.output_paths)


def test_ignore_failures_lets_any_number_of_records_fail(corpus: Path, tmp_path: Path) -> None:
    executor = ThreadExecutor()
    executor._ignore_failures = True
    result = pipeline(corpus, tmp_path / "out").run(executor, progress="none", max_errors=0)
    assert result.counts["quarantined"] == 1


def test_without_a_writer_results_come_back_in_order_whoever_ran_them() -> None:
    @as_stage(name="double")
    def double(task: Task) -> list[Task]:
        return [Task(data=task.data * 2), Task(data=task.data * 2 + 1)]

    for disturb in (lambda number, work: work, lambda number, work: None if number % 3 else work):
        tasks = [Task(data=number) for number in range(10)]
        result = Pipeline("tasks", stages=[double]).run(
            ThreadExecutor(disturb), initial_tasks=tasks, progress="none", ledger=False
        )
        assert [task.data for task in result] == list(range(20))
        assert counts_add_up(result.counts)
