# SPDX-License-Identifier: Apache-2.0
"""Stages that only judge, run in one go: nothing can be told from the counts, the records, or the notes of a death."""

from __future__ import annotations

import gc
import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from thresher import JsonlReader, Pipeline, ScoreFilter
from thresher.core.planning.plan import Plan, PlanSettings, make_plan
from thresher.core.scores import introduce
from thresher.core.source import ReadContext
from thresher.core.tally import StageTally
from thresher.core.unit import Unit
from thresher.runtime.crashes import crash_notes
from thresher.runtime.crashes.crash_notes import PROCESS, Note
from thresher.runtime.crashes.evidence import KNOWN, NO_CHARGE
from thresher.runtime.orders import TaskOrder
from thresher.runtime.worker import flow as flow_module
from thresher.runtime.worker.flow import Flow
from thresher.runtime.worker.worker import OpContext
from thresher.stages.text.rules.web.urls import UrlsFilter
from thresher.stages.text.rules.words.word_counts import MeanWordLengthFilter, WordCountFilter

CHUNK = 2000
TEXTS = ["one two three", "one", "a http://a.b/cdefgh b", "so it is", "longest words everywhere", ""] * 40


class Trouble(UrlsFilter):
    """A rule that fails on a text; its formula fails for all of them."""

    def score_counts(self, counts: Any) -> Any:
        raise ValueError("no formula today")

    def score_document(self, text: str) -> float:
        raise ValueError("no score today")


def planned(folder: Path, *rules: Any, texts: list[Any] | None = None, keep_dropped: bool = False) -> Plan:
    """A plan of a reader and a stage for each rule."""
    records = (json.dumps({"text": text}) for text in (TEXTS if texts is None else texts))
    (folder / "in.jsonl").write_text("\n".join(records), encoding="utf-8")
    stages = [ScoreFilter(rule).with_(name=f"stage{n}") for n, rule in enumerate(rules)]
    settings = PlanSettings(chunk_bytes=CHUNK, max_record_bytes=10**6)
    plan = make_plan(Pipeline("p", stages=[JsonlReader(str(folder / "in.jsonl")), *stages]), settings)
    # A plan that keeps dropped records has a writer, and this flow ends before it.
    plan = replace(plan, settings=replace(settings, keep_dropped=keep_dropped))
    introduce(plan.stages, ([step.stage for step in op.steps] for op in plan.ops))
    return plan


RULES = (WordCountFilter(2), MeanWordLengthFilter(3, 7), UrlsFilter(0.2))


def outcome(plan: Plan) -> tuple[list[Any], list[Any], list[Any]]:
    """What comes out of a plan: records, counts of all stages without their times, and what waits to be written."""
    number = plan.entries["unit"]
    flow = Flow(
        OpContext(plan, plan.ops[number]), TaskOrder(number, _unit(plan), 0, []), ReadContext(CHUNK, 10**6), None
    )
    records: list[Any] = []
    waiting: list[Any] = []
    for produced in flow.run():
        if produced.task is not None:
            assert produced.task.ids is not None
            records += zip(produced.task.ids.strings(), produced.task.json_lines(), strict=True)
            waiting += produced.task.metadata.values()
    (report,) = flow.take_reports()
    tallies: list[StageTally] = [report.tally.stage(n) for n in range(len(plan.stages))]
    counts = [msgspec.structs.asdict(msgspec.structs.replace(tally, busy_s=0.0)) for tally in tallies]
    return [(name, bytes(line)) for name, line in records], counts, [flow._baggage.dropped, report.quarantined, waiting]


def _unit(plan: Plan) -> Unit:
    reader = plan.stages[0]
    assert isinstance(reader, JsonlReader)
    (unit,) = reader.list_units()
    return unit


def called(plan: Plan) -> tuple[list[Any], list[Any], list[Any]]:
    """The same with every stage called."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_module, "begin_fused", lambda *_: None)
        return outcome(plan)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """For each fused call the step that comes after it; `None` where stages had to be called one by one."""
    found: list[Any] = []
    begin, judge = flow_module.begin_fused, Flow._judge

    def begun(*given: Any) -> Any:
        fused = begin(*given)
        found.extend([None] if fused is None else [])
        return fused

    def judging(flow: Flow, *given: Any) -> Any:
        after, left = judge(flow, *given)
        found.append(after)
        return after, left

    monkeypatch.setattr(flow_module, "begin_fused", begun)
    monkeypatch.setattr(Flow, "_judge", judging)
    return found


@pytest.mark.parametrize("keep_dropped", [False, True])
def test_records_and_counts_are_those_of_single_calls(tmp_path: Path, judged: list[Any], keep_dropped: bool) -> None:
    plan = planned(tmp_path, *RULES, keep_dropped=keep_dropped)
    found = outcome(plan)
    assert any(one is not None for one in judged), "it was not judged in one go"
    assert found == called(plan)
    assert found[1][2]["dropped"]
    assert found[1][3]["reasons"] == {"UrlsFilter": found[1][3]["dropped"]}


def test_a_stage_that_nothing_reaches_is_not_called(tmp_path: Path) -> None:
    plan = planned(tmp_path, WordCountFilter(2), WordCountFilter(50), UrlsFilter())
    found = outcome(plan)
    assert found == called(plan)
    assert found[1][3]["tasks"] == 0


def test_what_is_left_goes_on_stage_by_stage_where_a_rule_fails(tmp_path: Path, judged: list[Any]) -> None:
    plan = planned(tmp_path, WordCountFilter(2), Trouble(), MeanWordLengthFilter())
    found = outcome(plan)
    assert 3 in judged, "the first stage was judged before"
    assert found == called(plan)
    assert found[1][2]["errors"]


def test_records_without_a_text_are_set_aside_as_ever(tmp_path: Path) -> None:
    plan = planned(tmp_path, *RULES, texts=["one two three", None, 7, "four five six"])
    found = outcome(plan)
    assert found == called(plan)
    assert found[1][1]["quarantined"] == 2


def test_a_death_in_a_stage_is_noted_with_the_records_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[Note] = []

    class Keeper:
        def begin(self, note: Note, *_: Any) -> None:
            notes.extend([note] if note.kind == PROCESS else [])

        def end(self) -> None:
            pass

    monkeypatch.setattr(crash_notes, "keeper", Keeper())
    plan = planned(tmp_path, *RULES)
    outcome(plan)
    in_one_go, notes[:] = list(notes), []
    called(plan)
    assert in_one_go == notes
    assert len({note.stage for note in notes}) == len(RULES)


def test_a_flow_that_has_ended_lets_go_of_its_tasks_at_once(tmp_path: Path) -> None:
    plan = planned(tmp_path, *RULES)
    number = plan.entries["unit"]
    flow = Flow(
        OpContext(plan, plan.ops[number]), TaskOrder(number, _unit(plan), 0, []), ReadContext(CHUNK, 10**6), None
    )
    list(flow.run())
    alive = weakref.ref(flow)
    gc.disable()  # what it holds may be memory that others wait for: nobody may have to look for it
    try:
        del flow
        assert alive() is None
    finally:
        gc.enable()


def test_after_a_death_stages_are_called_one_by_one(
    tmp_path: Path, judged: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(tmp_path, *RULES)
    monkeypatch.setitem(KNOWN.charges, ("another stage", "a record"), NO_CHARGE)
    outcome(plan)
    assert judged
    assert all(one is None for one in judged)
