# SPDX-License-Identifier: Apache-2.0
"""When failed records stop a run, and when a run that came to its end counts as failed."""

from __future__ import annotations

import pytest

from thresher import JsonlReader, JsonlWriter, ScoreFilter, UrlsFilter, WordCountFilter
from thresher.core.arguments.options import ErrorBudget
from thresher.core.tally import StageTally, Tally
from thresher.runtime.error_watch import SYSTEMATIC_FROM, ErrorWatch

STAGES = (JsonlReader("in"), ScoreFilter(WordCountFilter()), ScoreFilter(UrlsFilter()), JsonlWriter("out"))
SHARE = ErrorBudget.parse("5%")


def tally(read: int, *stages: StageTally, written: int = 0) -> Tally:
    return Tally(read, written, {1 + number: stage for number, stage in enumerate(stages)})


def failing(count: int, *, of: int | None = None, error: str = "field-missing") -> StageTally:
    taken = count if of is None else of
    return StageTally(in_docs=taken, out_docs=taken - count, quarantined=count, errors={error: count})


def watch(budget: ErrorBudget = SHARE, before: Tally | None = None) -> ErrorWatch:
    return ErrorWatch(STAGES, budget, before or Tally(stages={}))


def test_a_stage_that_fails_on_every_record_stops_the_run_long_before_the_share_counts() -> None:
    stopped = watch().verdict(tally(SYSTEMATIC_FROM, failing(SYSTEMATIC_FROM)))
    assert stopped is not None
    assert stopped.exit_code == 3
    for said in ("ScoreFilter", "field-missing", f"all {SYSTEMATIC_FROM}", "text_field", "Nothing was written"):
        assert said in str(stopped)


def test_a_few_failures_at_the_beginning_do_not_stop_a_run() -> None:
    few = tally(SYSTEMATIC_FROM - 1, failing(SYSTEMATIC_FROM - 1))
    assert watch().verdict(few) is None
    assert watch().verdict_at_end(few) is not None


def test_records_that_an_earlier_rule_dropped_do_not_hide_that_a_stage_fails_on_all_others() -> None:
    rule = StageTally(in_docs=900, out_docs=200, dropped=700)
    assert watch().verdict(tally(900, rule, failing(200))) is not None


def test_failures_of_a_stage_on_which_a_record_passed_are_left_to_the_budget() -> None:
    assert watch().verdict(tally(301, failing(300, of=301))) is None


def test_a_stage_that_fails_on_every_record_for_several_reasons_names_the_most_frequent_one() -> None:
    both = StageTally(in_docs=300, quarantined=300, errors={"KeyError": 1, "ValueError": 299})
    stopped = watch().verdict(tally(300, both))
    assert "failed on all 300 records" in str(stopped)
    assert "for 2 reasons; the most frequent one is ValueError" in str(stopped)


def test_a_share_is_one_of_the_records_that_were_read_or_made() -> None:
    made = StageTally(in_docs=0, out_docs=2000, created=2000)
    assert watch().verdict(tally(0, made, failing(60, of=2000))) is None
    stopped = watch().verdict(tally(0, made, failing(120, of=2000)))
    assert "120 of 2,000 records failed" in str(stopped)


def test_a_stage_that_worked_in_an_earlier_attempt_is_not_broken() -> None:
    before = tally(500, StageTally(in_docs=500, out_docs=500), written=500)
    assert watch(before=before).verdict(tally(200, failing(200))) is None


def test_a_reason_that_a_retried_unit_took_back_does_not_count_as_a_second_one() -> None:
    stage = failing(200)
    stage.errors["worker-crashed"] = 0
    assert watch().verdict(tally(200, stage)) is not None


def test_damage_in_the_first_file_is_no_reason_to_leave_out_the_others() -> None:
    damaged = Tally(900, 0, {0: StageTally(in_docs=900, out_docs=0, quarantined=900, errors={"damaged": 900})})
    assert watch().verdict(damaged) is None
    assert "no input could be read" in str(watch().verdict_at_end(damaged))


@pytest.mark.parametrize(("failed", "fails"), [(0, False), (1, False), (5, False), (6, True), (10, True)])
def test_a_run_that_ends_with_few_records_may_lose_half_of_them(failed: int, fails: bool) -> None:
    total = tally(10, failing(failed, of=11, error="ValueError"), written=10 - failed)
    assert (watch().verdict_at_end(total) is not None) is fails
    assert watch(ErrorBudget.parse("100%")).verdict_at_end(total) is None


def test_a_share_above_half_is_taken_at_its_word_at_the_end_too() -> None:
    total = tally(10, failing(8, of=11, error="ValueError"), written=2)
    assert watch(ErrorBudget.parse("90%")).verdict_at_end(total) is None
    assert "max_errors is 60%" in str(watch(ErrorBudget.parse("60%")).verdict_at_end(total))


def test_a_count_is_judged_by_the_count() -> None:
    total = tally(10, failing(8, of=11, error="ValueError"), written=2)
    assert watch(ErrorBudget.parse(8)).verdict_at_end(total) is None
    assert watch(ErrorBudget.parse(7)).verdict_at_end(total) is not None


def test_all_records_may_fail_where_that_was_asked_for() -> None:
    everything = tally(500, failing(500))
    assert watch(ErrorBudget.parse("100%")).verdict(everything) is None
    assert watch(ErrorBudget.parse("100%")).verdict_at_end(everything) is None
