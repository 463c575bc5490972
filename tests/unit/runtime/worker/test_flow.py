# SPDX-License-Identifier: Apache-2.0
"""An order on its way: large records ask for room before they are held, and give it back before anything can wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from thresher import DocumentBatch, JsonlReader, Pipeline, ProcessingStage
from thresher.core.planning.plan import Plan, PlanSettings, make_plan
from thresher.core.source import ReadContext
from thresher.core.task import Task
from thresher.core.unit import Unit
from thresher.runtime.orders import TaskOrder
from thresher.runtime.worker import worker as worker_module
from thresher.runtime.worker.flow import Flow
from thresher.runtime.worker.worker import OpContext
from thresher.stage_errors import ControlSignal

CHUNK = 1000
LARGE = "x" * 5000
UNIT = Unit("u-000000", (0, 0), (), "u")


class NotingGate:
    """A stand-in for the gate between workers that notes what is asked of it."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.inside = False

    def read(self, most_bytes: int, steps: Sequence[int]) -> None:
        """Let in."""
        if not self.inside:
            self.notes.append("reads")
        self.inside = True

    def enter(self, nbytes: int, step: int, steps: Sequence[int]) -> None:
        """Note the size."""
        assert step in steps
        self.inside = True
        self.notes.append(f"{nbytes // 1000} kB")

    def leave(self) -> None:
        """Note the end."""
        assert self.inside
        self.inside = False
        self.notes.append("out")


class Watcher(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Notes whether there is room reserved while it works."""

    name = "watcher"

    def __init__(self) -> None:
        self.gate = NotingGate()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        self.gate.notes.append("large" if self.gate.inside else "small")
        return task


@pytest.fixture
def watcher(monkeypatch: pytest.MonkeyPatch) -> Watcher:
    """A stage that looks at the gate which flows use."""
    stage = Watcher()
    monkeypatch.setattr(worker_module, "gate_for", lambda memory: stage.gate)
    return stage


def write(folder: Path, texts: list[str]) -> str:
    """A file of records."""
    folder.mkdir()
    lines = "".join(f'{{"text": "{text}"}}\n' for text in texts)
    (folder / "0.jsonl").write_text(lines)
    return str(folder)


def planned(*stages: Any) -> Plan:
    """A plan with small chunks."""
    return make_plan(Pipeline("p", stages=list(stages)), PlanSettings(chunk_bytes=CHUNK, max_record_bytes=10**6))


def run(plan: Plan, op: int, unit: Unit, tasks: list[Task]) -> Iterator[Any]:
    """What an op gives for an order."""
    context = ReadContext(CHUNK, 10**6)
    return Flow(OpContext(plan, plan.ops[op]), TaskOrder(op, unit, 0, tasks), context, None).run()


def test_a_large_record_has_room_while_it_is_worked_on_and_not_before_or_after(
    tmp_path: Path, watcher: Watcher
) -> None:
    source = JsonlReader(write(tmp_path / "in", ["a", LARGE, "b"]))
    plan = planned(source, watcher)
    watcher = next(stage for stage in plan.stages if isinstance(stage, Watcher))
    (unit,) = source.list_units()
    for produced in run(plan, plan.entries["unit"], unit, []):
        assert not watcher.gate.inside, "whatever leaves may make the flow wait"
        assert produced.task is not None
    notes = watcher.gate.notes
    assert notes.count("large") == 1
    assert notes.index("reads") < notes.index("5 kB") < notes.index("large") < notes.index("out")
    assert not watcher.gate.inside


def test_a_large_batch_of_another_worker_asks_too(tmp_path: Path, watcher: Watcher) -> None:
    plan = make_plan(Pipeline("p", stages=[watcher]), PlanSettings(chunk_bytes=CHUNK), initial_tasks=True)
    batch = DocumentBatch([{"text": LARGE}])
    list(run(plan, 0, UNIT, [batch]))
    assert watcher.gate.notes == ["5 kB", "large", "out"]


def test_an_order_that_is_given_up_leaves_its_room(tmp_path: Path, watcher: Watcher) -> None:
    class Fails(Watcher):
        name = "fails"

        def process(self, task: DocumentBatch) -> DocumentBatch:
            raise ControlSignal

    failing = Fails()
    failing.gate = watcher.gate
    plan = make_plan(Pipeline("p", stages=[failing]), PlanSettings(chunk_bytes=CHUNK), initial_tasks=True)
    with pytest.raises(ControlSignal):
        list(run(plan, 0, UNIT, [DocumentBatch([{"text": LARGE}])]))
    assert not watcher.gate.inside


def test_small_records_ask_for_nothing(tmp_path: Path, watcher: Watcher) -> None:
    source = JsonlReader(write(tmp_path / "in", ["a" * 100] * 100))
    plan = planned(source, watcher)
    (unit,) = source.list_units()
    list(run(plan, plan.entries["unit"], unit, []))
    assert set(watcher.gate.notes) == {"small"}
