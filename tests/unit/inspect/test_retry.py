# SPDX-License-Identifier: Apache-2.0
"""Counts of a run and its retries are those of one undisturbed run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thresher.core.tally import StageTally, Tally, counts_add_up
from thresher.inspect.audit_checks import check_counts, check_stages
from thresher.inspect.retry import correction

NAMES = ["Reader", "First", "Second", "Third", "Writer"]
LAST = len(NAMES) - 1


def walk(tally: Tally, enters: int, fails: int | None) -> None:
    """Count one record as the flow does: from stage `enters` on to its end, or to the stage that sets it aside."""
    tally.read += 1
    tally.stage(0).in_docs += 1
    if fails == 0:
        tally.stage(0).quarantined += 1
        tally.stage(0).errors["Error"] = tally.stage(0).errors.get("Error", 0) + 1
        return
    tally.stage(0).out_docs += 1
    for number in range(max(1, enters), LAST + 1):
        stage = tally.stage(number)
        stage.in_docs += 1
        if number == fails:
            stage.quarantined += 1
            stage.errors["Error"] = stage.errors.get("Error", 0) + 1
            return
        stage.out_docs += 1
    tally.written += 1


@given(st.lists(st.tuples(st.integers(0, LAST - 1), st.none() | st.integers(0, LAST - 1)), max_size=20))
def test_run_and_retry_add_up_to_an_undisturbed_run(records: list[tuple[int, int | None]]) -> None:
    """Each record fails at a stage in the run, and at another or at none in the retry."""
    total, undisturbed = Tally(stages={}), Tally(stages={})
    counts: dict[tuple[str, str, bool], int] = {}
    for before, after in records:
        walk(total, 0, before)
        walk(total, 0, after)
        walk(undisturbed, 0, after)
        key = (NAMES[before], "Error", False)
        counts[key] = counts.get(key, 0) + 1
    total.add(correction(NAMES, counts))
    assert counts_add_up(total.totals())
    assert total.totals() == undisturbed.totals()
    for number in range(LAST + 1):
        mine, other = total.stages.get(number, StageTally()), undisturbed.stages.get(number, StageTally())
        assert {**mine.errors, "Error": mine.errors.get("Error", 0)} == {"Error": other.errors.get("Error", 0)}
        assert (mine.in_docs, mine.out_docs, mine.quarantined) == (other.in_docs, other.out_docs, other.quarantined)
    assert not check_stages(total, NAMES).differences
    assert not check_counts(total).differences


@given(st.integers(1, LAST - 1))
def test_a_child_counts_from_the_stage_at_which_it_enters(failed: int) -> None:
    """The child was made before `failed`, so the stages before it have counted it already."""
    total = Tally(stages={})
    maker = total.stage(failed - 1) if failed > 1 else total.stage(0)
    walk(total, 0, None)
    maker.out_docs += 1
    maker.created += 1
    total.stage(failed).in_docs += 1
    total.stage(failed).quarantined += 1
    walk(total, failed, None)
    total.add(correction(NAMES, {(NAMES[failed], "Error", True): 1}))
    assert total.totals() == {"read": 1, "created": 1, "merged": 0, "written": 2, "dropped": 0, "quarantined": 0}
    assert not check_stages(total, NAMES).differences
