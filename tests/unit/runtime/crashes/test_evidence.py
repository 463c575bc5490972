# SPDX-License-Identifier: Apache-2.0
"""What follows from the deaths of workers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thresher.runtime.crashes.crash_notes import PARSE, PROCESS, Note, NoteKeeper, read_note, timed_call
from thresher.runtime.crashes.diagnosis import Coroner
from thresher.runtime.crashes.evidence import (
    CERTAIN,
    CONDEMNS,
    CRASHED,
    CUTS,
    DOUBTFUL,
    PATIENCE,
    SEVERAL,
    Suspect,
    Suspicions,
)
from thresher.runtime.crashes.watchdog import NoteWatch
from thresher.runtime.payloads.arena import OwnArena, create_arena
from thresher.runtime.processes.pool import Gone


def crash(name: str, *, alone: bool = False, weight: int = CERTAIN, evidence: int = 0) -> Suspect:
    """A death in stage "s"."""
    return Suspect("s", (name,), 1 if alone else 100, alone, weight, evidence, CRASHED, "it crashed")


def test_a_record_that_crashes_alone_is_condemned_when_its_batch_had_crashed_before() -> None:
    known = Suspicions()
    known.learn(crash("batch"))
    assert not known.against("s", "batch").is_condemned
    known.learn(crash("record", alone=True, evidence=CERTAIN))
    assert known.against("s", "record").is_condemned
    assert not known.against("another stage", "record").is_condemned


def test_two_kills_that_may_have_come_from_outside_condemn_nothing_and_a_third_does() -> None:
    known = Suspicions()
    for _ in range(2):
        known.learn(crash("task", alone=True, weight=DOUBTFUL))
        assert not known.against("s", "task").is_condemned
    known.learn(crash("task", alone=True, weight=DOUBTFUL))
    assert known.against("s", "task").is_condemned


def test_a_record_that_is_killed_alone_once_is_tried_again_and_condemned_the_next_time() -> None:
    known = Suspicions()
    for _ in range(2):
        known.learn(crash("batch", weight=DOUBTFUL))
    known.learn(crash("record", alone=True, weight=DOUBTFUL, evidence=CERTAIN))
    assert not known.against("s", "record").is_condemned
    known.learn(crash("record", alone=True, weight=DOUBTFUL, evidence=CERTAIN))
    assert known.against("s", "record").is_condemned


def test_a_batch_that_failed_only_together_makes_the_next_ones_half_as_large() -> None:
    known = Suspicions()
    known.learn(crash("batch"))
    known.clear("s", "batch", 100)
    assert (known.most_rows("s"), known.against("s", "batch").deaths) == (50, 0)
    assert [news.names for news in known.take_news()] == [("batch",)]
    assert known.take_news() == []


def test_deaths_that_lead_to_nothing_are_not_borne_for_ever() -> None:
    known = Suspicions()
    for number in range(PATIENCE):
        known.learn(crash(f"batch {number}"))
    assert known.leads_somewhere("s")
    known.learn(crash("one more"))
    assert not known.leads_somewhere("s")
    known.learn(crash("record", alone=True, evidence=CERTAIN))
    assert known.leads_somewhere("s")


def test_a_stage_that_several_records_crashed_is_notorious() -> None:
    known = Suspicions()
    for number in range(SEVERAL):
        assert not known.is_notorious("s")
        known.learn(crash(f"record {number}", alone=True, evidence=CERTAIN))
    assert known.is_notorious("s")


@given(st.text(), st.lists(st.text(st.characters(blacklist_characters="\x1e")), min_size=1, max_size=9), st.booleans())
def test_what_a_worker_noted_is_what_is_read_of_it(stage: str, names: list[str], alone: bool) -> None:
    arena = OwnArena(1, create_arena(2**20), 0)
    keeper = NoteKeeper(arena.note_page)
    note = Note(PROCESS, stage.replace("\x1e", ""), tuple(names), 7, alone, 2)
    keeper.begin(note)
    assert read_note(arena._fd) == note
    keeper.end()
    assert read_note(arena._fd) is None


def test_a_note_holds_as_many_names_as_there_is_room_for() -> None:
    arena = OwnArena(1, create_arena(2**20), 0)
    NoteKeeper(arena.note_page).begin(Note(PROCESS, "s", tuple("n" * 600 for _ in range(100))))
    found = read_note(arena._fd)
    assert found is not None
    assert set(found.names) == {"n" * 600}


def overrun(*, alone: bool, evidence: int = 0) -> tuple[Gone, Note]:
    """A worker was ended because a call took too long."""
    note = Note(PROCESS, "s", ("record" if alone else "batch",), 1 if alone else 100, alone, evidence)
    return Gone(False, "killed", -9, overdue=True), note


def test_a_record_is_condemned_only_after_it_took_too_long_alone_twice() -> None:
    coroner = Coroner()
    assert not coroner.examine(1, *overrun(alone=False)).condemned
    known = Suspicions()
    known.learn_all(coroner.news_for(9))
    assert known.against("s", "batch").weight == CUTS, "the batch is run record by record at once"
    assert not coroner.examine(2, *overrun(alone=True, evidence=CUTS)).condemned
    assert coroner.examine(3, *overrun(alone=True, evidence=CUTS)).condemned == "s/timeout"


def test_a_task_that_cannot_be_cut_is_condemned_after_it_took_too_long_twice() -> None:
    coroner = Coroner()
    assert not coroner.examine(1, *overrun(alone=True)).condemned
    assert coroner.examine(2, *overrun(alone=True)).condemned == "s/timeout"


def test_a_stage_that_allows_one_attempt_has_its_record_condemned_at_once() -> None:
    assert Coroner().examine(1, *overrun(alone=True, evidence=CONDEMNS)).condemned == "s/timeout"


def test_only_a_call_that_is_under_way_can_take_too_long() -> None:
    arena = OwnArena(1, create_arena(2**20), 0)
    keeper = NoteKeeper(arena.note_page)
    watch = NoteWatch()
    watch.measure_calls(1)
    watch.watch(1, arena._fd)
    second = 10**9
    keeper.begin(Note(PROCESS, "s", ("x",)))
    assert timed_call(arena._fd) is None, "no limit was set"
    keeper.begin(Note(PROCESS, "s", ("x",)), timeout_s=1)
    assert watch.overdue(second) == []
    keeper.end()
    assert watch.overdue(100 * second) == [], "the call has ended"
    keeper.begin(Note(PROCESS, "s", ("slow",)), timeout_s=1)
    looks = [watch.overdue(200 * second + step * second // 10) for step in range(300)]
    assert [late for late in looks if late] == [[1]], "it is told once"
    # The worker goes on to another call before the signal arrives: the one that took too long is to blame.
    keeper.begin(Note(PROCESS, "s", ("innocent",)), timeout_s=1)
    note = watch.note_of_dead(1, expected=False)
    finding = Coroner().examine(1, Gone(False, "killed", -9, overdue=True), note)
    assert "slow" in finding.reason
    assert not finding.blamed


def test_a_death_outside_of_stages_is_blamed_and_its_place_is_named() -> None:
    note = Note(PARSE, "JsonlReader", ("a.jsonl from byte 5 on",))
    finding = Coroner().examine(1, Gone(False, "killed by SIGSEGV", -11), note)
    assert finding.blamed
    assert "JsonlReader parsed a.jsonl from byte 5 on" in finding.reason
